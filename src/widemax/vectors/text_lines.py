"""Lines of text: numbers with or without a key in front, in blocks; or only keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from widemax.storage.files import read_text
from widemax.vectors.rows import BLOCK_BYTES, RowGatherer
from widemax.vocabulary.spelling import quoted


@dataclass(frozen=True, kw_only=True)
class LineFormat:
    """What a line holds: perhaps a key, then numbers."""

    separator: str
    """What separates two fields."""
    dimension: int
    """How many numbers there are."""
    keyed: bool
    """Whether a key comes first."""

    @property
    def fields(self) -> int:
        """How many fields a sound line has."""
        return self.dimension + self.keyed

    @property
    def min_bytes(self) -> int:
        """The bytes of the shortest sound line: one a field, and what follows each."""
        return 2 * self.fields

    def problem(self, line: str | None) -> str:
        """Return what is wrong with a line that is not sound, null being one that is not UTF-8."""
        if line is None:
            return "not UTF-8"
        fields = _fields(pl.Series([line]), self.separator)[0].to_list()
        if self.keyed and not fields[0]:
            return "the key is empty"
        numbers = fields[self.keyed :]
        values = pl.Series(numbers, dtype=pl.String).cast(pl.Float32, strict=False)
        for field, value in zip(numbers, values, strict=True):
            if value is None or not np.isfinite(value):
                return f"must hold numbers that are finite in float32, got {quoted(field)}"
        wanted = f"{'a key and ' if self.keyed else ''}{self.dimension:,} numbers"
        return f"must hold {wanted}, got {len(numbers):,} numbers"


def gather_lines(
    file: BinaryIO,
    gatherer: RowGatherer,
    line_format: LineFormat,
    *,
    rows: int,
    first_line: int,
    keys: pl.Series | None = None,
) -> None:
    """Take ``rows`` lines from ``file``; lines without a key get theirs from ``keys``."""
    seen = 0
    while block := file.read(BLOCK_BYTES):
        block += file.readline()
        lines = _lines(block)
        line = first_line + seen
        if seen + len(lines) > rows:
            raise gatherer.fault(first_line + rows, f"more than the {rows:,} rows stated")
        if not block.endswith(b"\n"):
            # The last number may have lost digits, and nothing else would show it.
            raise gatherer.fault(line + len(lines) - 1, "the file ends within the line")
        some = None if keys is None else keys.slice(seen, len(lines))
        _take(gatherer, lines, line, line_format, some)
        seen += len(lines)
    if seen < rows:
        raise gatherer.fault(first_line + seen, f"the file ends after {seen:,} of {rows:,} rows")


def _take(
    gatherer: RowGatherer,
    lines: pl.Series,
    first_line: int,
    line_format: LineFormat,
    keys: pl.Series | None,
) -> None:
    fields = _fields(lines, line_format.separator)
    sound = fields.list.len() == line_format.fields
    if keys is None:
        keys = fields.list.first()
        sound &= keys != ""
    sound = sound.fill_null(False)
    matrix = _numbers(fields.filter(sound), line_format)
    finite = np.isfinite(matrix).all(axis=1)
    taken = np.flatnonzero(sound.to_numpy())[finite]
    for row in np.setdiff1d(np.arange(len(lines)), taken):
        gatherer.refuse(first_line + int(row), line_format.problem(lines[int(row)]))
    # Through a list, because a gathered Series would keep the text of the whole block in memory.
    kept = pl.Series(keys.gather(taken).to_list(), dtype=pl.String)
    gatherer.take(kept, matrix[finite], first_line + taken)


def _lines(block: bytes) -> pl.Series:
    """Return the lines of a block, null where one is not UTF-8."""
    block = block.removesuffix(b"\n")
    try:
        return pl.Series([block.decode()]).str.split("\n").explode()
    except UnicodeDecodeError:
        return pl.Series([_decoded(line) for line in block.split(b"\n")], dtype=pl.String)


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _fields(lines: pl.Series, separator: str) -> pl.Series:
    # word2vec's own tool leaves a space at the end of each line, Windows a carriage return.
    return lines.str.strip_chars_end(separator + "\r").str.split(separator)


def _numbers(fields: pl.Series, line_format: LineFormat) -> NDArray[np.float32]:
    """Return the numbers of lines with the right number of fields, NaN for any other text."""
    numbers = fields.list.slice(int(line_format.keyed)).explode(empty_as_null=False)
    values = numbers.cast(pl.Float32, strict=False).to_numpy()
    return values.reshape(-1, line_format.dimension)


def write_lines(
    file: BinaryIO, vectors: NDArray[np.float32], separator: str, keys: pl.Series | None = None
) -> None:
    """Write one line a row: its key, if there are keys, and the shortest digits that read back."""
    step = max(1, BLOCK_BYTES // (4 * vectors.shape[1]))
    for start in range(0, len(vectors), step):
        table = pl.DataFrame(vectors[start : start + step], orient="row")
        if keys is not None:
            table.insert_column(0, keys.slice(start, step).alias("key"))
        table.write_csv(file, include_header=False, separator=separator, quote_style="never")


def write_keys(file: BinaryIO, keys: pl.Series) -> None:
    """Write one key a line; a key must hold no line break."""
    pl.DataFrame(keys).write_csv(file, include_header=False, quote_style="never")


def read_keys(path: Path) -> pl.Series:
    """Return the lines of a file, of which there must be at least one."""
    text = read_text(path)
    if not text:
        raise ValueError(f"{path} is empty: there must be at least one key")
    lines = pl.Series("key", [text.removesuffix("\n")]).str.split("\n").explode()
    return lines.str.strip_suffix("\r")
