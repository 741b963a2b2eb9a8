"""The binary format of word2vec: a header, then for each key its bytes and its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import polars as pl

from widemax.declarations import declare
from widemax.storage.files import atomic_write, open_to_read
from widemax.vectors.keyed import KeyedVectors, finite_rows
from widemax.vectors.rows import (
    BLOCK_BYTES,
    BadRows,
    RowGatherer,
    as_array,
    check_shape,
    check_writable,
    read_header,
)
from widemax.vectors.word2vec_text import UNWRITABLE, WRITABLE_RULE
from widemax.vocabulary.spelling import quoted

_NUMBER_BYTES = 4


class _Block(NamedTuple):
    """Some bytes of the file, and where in them the key of each whole row starts and ends."""

    offset: int
    data: bytes
    spans: list[tuple[int, int]]


def read_word2vec_binary(path: str | Path, *, bad_rows: BadRows = "error") -> KeyedVectors:
    """Read a word2vec binary file, such as the original tool and gensim write.

    That is a line ``V D``, then V times the key, one space, D little-endian float32 and perhaps a
    newline. A file of fastText that ends in ``.bin`` is another format; its ``.vec`` is word2vec
    text.

    Whatever is wrong with a row is reported with the byte at which the row starts. A row count that
    does not fit the file is an error. So is any bad row: a key that is empty, not UTF-8 or a
    repeat, or a number that is not finite; ``bad_rows="skip"`` leaves such rows out, with one
    warning that counts them.

    >>> import tempfile
    >>> import torch
    >>> path = Path(tempfile.mkdtemp()) / "vectors.bin"
    >>> write_word2vec_binary(path, KeyedVectors(["tea"], torch.tensor([[1.0, -0.5]])))
    >>> read_word2vec_binary(path).vector("tea").tolist()
    [1.0, -0.5]
    """
    with open_to_read(path) as file:
        rows, dimension = read_header(path, file)
        smallest = len("k ") + dimension * _NUMBER_BYTES
        shape = check_shape(path, file, (rows, dimension), smallest)
        gatherer = RowGatherer(path, "byte", shape, bad_rows)
        for block in _blocks(file, gatherer, *shape):
            _take(gatherer, block, dimension)
    return gatherer.finish()


def _blocks(file: BinaryIO, gatherer: RowGatherer, rows: int, dimension: int) -> Iterator[_Block]:
    """Yield the rows of the file in blocks, and raise if they are not ``rows`` whole ones."""
    width = dimension * _NUMBER_BYTES
    offset, data = file.tell(), b""
    while rows:
        data += file.read(BLOCK_BYTES + width)
        start = 0
        spans: list[tuple[int, int]] = []
        while len(spans) < rows:
            end = data.find(b" ", start)
            if end < 0 or end + 1 + width > len(data):
                break
            spans.append((start, end))
            start = end + 1 + width
        if not spans:
            raise gatherer.fault(
                offset, f"no whole row starts here, and {rows:,} more are stated in the header"
            )
        yield _Block(offset, data, spans)
        rows -= len(spans)
        offset, data = offset + start, data[start:]
    if data + file.read(2) not in (b"", b"\n"):
        raise gatherer.fault(offset, "more rows than the header states")


def _take(gatherer: RowGatherer, block: _Block, dimension: int) -> None:
    matrix = np.empty((len(block.spans), dimension), np.float32)
    for row, (_, end) in enumerate(block.spans):
        matrix[row] = np.frombuffer(block.data, "<f4", dimension, end + 1)
    finite = finite_rows(matrix).tolist()
    keys, rows = [], []
    for row, (start, end) in enumerate(block.spans):
        # The original tool ends each row with a newline, which is not part of the next key.
        raw = block.data[start:end].lstrip(b"\n")
        key = raw.decode("utf-8", "replace")
        problem = _problem(raw, key, finite=finite[row])
        if problem:
            gatherer.refuse(block.offset + start, problem)
        else:
            keys.append(key)
            rows.append(row)
    places = np.array([block.offset + block.spans[row][0] for row in rows], np.int64)
    gatherer.take(pl.Series(keys, dtype=pl.String), matrix[rows], places)


def _problem(raw: bytes, key: str, *, finite: bool) -> str:
    """Return what is wrong with a row, or nothing."""
    if not raw:
        return "the key is empty"
    if key.encode() != raw:
        return f"key {quoted(key)} is not UTF-8"
    return "" if finite else f"key {quoted(key)} has a number that is not finite"


@declare.export(
    "word2vec-binary", help="A word2vec binary file, which gensim reads; every bit is kept."
)
def write_word2vec_binary(path: str | Path, vectors: KeyedVectors) -> None:
    """Write a word2vec binary file that gensim and the original tool read; every bit is kept.

    Keys must not contain white space, which ends a key in this format.

    >>> import tempfile
    >>> import torch
    >>> path = Path(tempfile.mkdtemp()) / "vectors.bin"
    >>> write_word2vec_binary(path, KeyedVectors(["tea"], torch.tensor([[1.0]])))
    >>> path.read_bytes()
    b'1 1\\ntea \\x00\\x00\\x80?\\n'
    """
    check_writable(vectors.keys, UNWRITABLE, WRITABLE_RULE)
    matrix = as_array(vectors)
    with atomic_write(path) as file:
        file.write(f"{len(vectors)} {vectors.dimension}\n".encode())
        for key, row in zip(vectors.keys, matrix, strict=True):
            file.write(b"%b %b\n" % (key.encode(), row.tobytes()))
