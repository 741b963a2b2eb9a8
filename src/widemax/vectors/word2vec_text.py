"""The text format of word2vec: a header, then one line for each key with its numbers."""

from __future__ import annotations

from pathlib import Path

from widemax.declarations import declare
from widemax.storage.files import atomic_write, open_to_read
from widemax.vectors.keyed import KeyedVectors
from widemax.vectors.rows import (
    BadRows,
    RowGatherer,
    as_array,
    check_shape,
    check_writable,
    read_header,
)
from widemax.vectors.text_lines import LineFormat, gather_lines, write_lines

# The original tool ends a word at any of these, gensim at a space.
UNWRITABLE = r"^$|[ \t\n\v\f\r]"
WRITABLE_RULE = (
    "must not be empty nor contain white space in a word2vec file (replace it first, "
    "by underscores as word2vec's phrases do)"
)


def read_word2vec_text(path: str | Path, *, bad_rows: BadRows = "error") -> KeyedVectors:
    """Read a word2vec text file, such as gensim and fastText (``.vec``) write.

    Line 1 is ``V D``; each of the V lines after it is a key and D decimal numbers with one space
    between any two. A million keys of 100 numbers take 10 to 20 seconds on one core, an eighth of
    gensim's time; the binary format is four times as fast.

    A wrong row count, or an end without a newline, is an error. So is any bad row: too many or too
    few numbers (a key with a space), a field that is not a finite number, an empty key, bytes that
    are not UTF-8, a repeated key. ``bad_rows="skip"`` leaves such rows out, with one warning that
    counts them.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "vectors.txt"
    >>> path.write_text("2 3\\ntea 1 0 .5\\nrum 2 1e-1 -3\\n")
    29
    >>> read_word2vec_text(path).vector("rum").tolist()
    [2.0, 0.10000000149011612, -3.0]
    """
    with open_to_read(path) as file:
        rows, dimension = read_header(path, file)
        lines = LineFormat(separator=" ", dimension=dimension, keyed=True)
        shape = check_shape(path, file, (rows, dimension), lines.min_bytes)
        gatherer = RowGatherer(path, "line", shape, bad_rows)
        gather_lines(file, gatherer, lines, rows=rows, first_line=2)
    return gatherer.finish()


@declare.export("word2vec", help="A word2vec text file, which gensim reads.")
def write_word2vec_text(path: str | Path, vectors: KeyedVectors) -> None:
    """Write a word2vec text file that gensim's ``load_word2vec_format`` reads.

    A number has the fewest digits that no other float32 shares, so that reading returns the same
    bits. Keys must not contain white space, which the format cannot distinguish from its
    separators.

    >>> import tempfile, torch
    >>> path = Path(tempfile.mkdtemp()) / "vectors.txt"
    >>> write_word2vec_text(path, KeyedVectors(["tea"], torch.tensor([[1.0, 0.1]])))
    >>> path.read_text()
    '1 2\\ntea 1.0 0.1\\n'
    """
    check_writable(vectors.keys, UNWRITABLE, WRITABLE_RULE)
    with atomic_write(path) as file:
        file.write(f"{len(vectors)} {vectors.dimension}\n".encode())
        write_lines(file, as_array(vectors), " ", vectors.keys)
