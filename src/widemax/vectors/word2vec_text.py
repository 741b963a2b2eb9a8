"""The text format of word2vec: a header, then one line for each key with its numbers."""

from __future__ import annotations

from pathlib import Path

from widemax.storage.files import atomic_write
from widemax.vectors.keyed import KeyedVectors
from widemax.vectors.number_lines import LineFormat, gather_lines, write_lines
from widemax.vectors.rows import (
    BadRows,
    RowGatherer,
    as_array,
    check_shape,
    check_writable,
    opened,
    read_header,
)

# The original tool ends a word at any of these, gensim at a space.
UNWRITABLE = r"^$|[ \t\n\v\f\r]"
WRITABLE_RULE = (
    "must not be empty nor contain white space in a word2vec file (replace it first, "
    "by underscores as word2vec's phrases do)"
)


def read_word2vec_text(path: str | Path, *, bad_rows: BadRows = "error") -> KeyedVectors:
    """Read a word2vec text file, such as gensim's ``save_word2vec_format`` writes.

    Formula: line 1 is ``V D``; each of the V lines after it is a key and D decimal numbers with
    one space between any two. Each number becomes the nearest float32.

    Shapes: the result has V keys and a matrix [V, D].

    Cost: O(bytes), 10 to 20 seconds for a million keys of 100 numbers on one core, an eighth
    of gensim's time. Memory: the matrix, at most twice the file, and blocks of 1 MB.

    Reference: Mikolov et al. 2013, the file format of their tool.

    Use when: vectors come from gensim, fastText (.vec) or word2vec. Avoid when: you choose the
    format: the binary one is four times as fast, ``read_safetensors_vectors`` more still.

    A wrong row count, or an end without a newline, is an error. So is any bad row: too many or too
    few numbers (a key with a space), a number that is none or not finite, an empty key, bytes
    that are not UTF-8, a key for the second time. ``bad_rows="skip"`` leaves such rows out, with
    one warning that counts them.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "vectors.txt"
    >>> path.write_text("2 3\\ntea 1 0 .5\\nrum 2 1e-1 -3\\n")
    29
    >>> read_word2vec_text(path).vector("rum").tolist()
    [2.0, 0.10000000149011612, -3.0]
    """
    with opened(path) as file:
        rows, dimension = read_header(path, file)
        lines = LineFormat(separator=" ", dimension=dimension, keyed=True)
        shape = check_shape(path, file, (rows, dimension), lines.smallest)
        gatherer = RowGatherer(path, "line", shape, bad_rows)
        gather_lines(file, gatherer, lines, rows=rows, first_line=2)
    return gatherer.finish()


def write_word2vec_text(path: str | Path, vectors: KeyedVectors) -> None:
    """Write a word2vec text file that gensim's ``load_word2vec_format`` reads.

    Formula: a line ``V D``, then for each key a line of the key and its D numbers. A number has
    the fewest digits that no other float32 shares, so that reading returns the same bits.

    Shapes: V keys and a matrix [V, D].

    Cost: O(V·D), some 15 seconds for a million keys of 100 numbers on one core; about 11 bytes a
    number. The file takes its name when it is whole.

    Reference: Mikolov et al. 2013, the file format of their tool.

    Use when: another tool, or a person, wants to read text. Avoid when: keys contain white space,
    which the format cannot tell from its separators: an error names the first.

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
