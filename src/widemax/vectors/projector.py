"""The files of TensorBoard's embedding projector: numbers in one table, labels in another."""

from __future__ import annotations

from pathlib import Path

from widemax.vectors.key_lines import atomic_pair, read_keys, write_keys
from widemax.vectors.keyed import KeyedVectors
from widemax.vectors.number_lines import LineFormat, gather_lines, write_lines
from widemax.vectors.rows import RowGatherer, as_array, check_shape, check_writable, opened
from widemax.vocabulary.keys import first_row, quoted

VECTORS_FILE = "vectors.tsv"
METADATA_FILE = "metadata.tsv"


def read_projector_vectors(folder: str | Path) -> KeyedVectors:
    """Read ``vectors.tsv`` and ``metadata.tsv`` of a folder.

    Formula: line i of ``metadata.tsv`` is the key of the numbers in line i of ``vectors.tsv``.

    Shapes: V lines of D numbers with one tab between any two; V lines with a key each.

    Cost: O(bytes), as ``read_word2vec_text``. Memory: the matrix, at most twice the file.

    Reference: TensorBoard's embedding projector.

    Use when: vectors were exported for the projector and nothing else is left. Avoid when: there
    is metadata of several columns, of which the projector reads the first line as names: an error
    says so.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "vectors.tsv").write_text("1\\t0.5\\n2\\t0\\n")
    10
    >>> (folder / "metadata.tsv").write_text("green tea\\nrum\\n")
    14
    >>> read_projector_vectors(folder).vector("green tea").tolist()
    [1.0, 0.5]
    """
    labels = Path(folder) / METADATA_FILE
    keys = read_keys(labels)
    several = keys.str.contains("\t", literal=True)
    if several.any():
        row = first_row(several)
        raise ValueError(
            f"{labels}, line {row + 1:,}: must have one column, the key, got {quoted(keys[row])}"
        )
    path = Path(folder) / VECTORS_FILE
    with opened(path) as file:
        dimension = file.readline().count(b"\t") + 1
        file.seek(0)
        lines = LineFormat(separator="\t", dimension=dimension, keyed=False)
        shape = check_shape(path, file, (len(keys), dimension), lines.smallest)
        gatherer = RowGatherer(path, "line", shape, "error")
        gather_lines(file, gatherer, lines, rows=len(keys), first_line=1, keys=keys)
    return gatherer.finish()


def write_projector_vectors(folder: str | Path, vectors: KeyedVectors) -> None:
    """Write ``vectors.tsv`` and ``metadata.tsv``, which the embedding projector loads.

    Formula: line i of ``metadata.tsv`` is the key of the numbers in line i of ``vectors.tsv``.
    With one column of metadata the projector expects no line of names.

    Shapes: V lines of D numbers with one tab between any two; V lines with a key each.

    Cost: O(V·D), as ``write_word2vec_text``. The folder is made if it is not there.

    Reference: TensorBoard's embedding projector.

    Use when: you want to look at some ten thousand vectors. Avoid when: a program is to read them
    back, or keys are empty or contain tabs or line breaks: an error names the first.

    >>> import tempfile, torch
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_projector_vectors(folder, KeyedVectors(["green tea"], torch.tensor([[1.0, 0.1]])))
    >>> (folder / "vectors.tsv").read_text()
    '1.0\\t0.1\\n'
    """
    rule = f"must not be empty nor contain tab, line break or byte order mark in {METADATA_FILE}"
    check_writable(vectors.keys, r"^$|[\t\n\r\x{feff}]", rule)
    with atomic_pair(folder, (VECTORS_FILE, METADATA_FILE)) as (numbers, labels):
        write_lines(numbers, as_array(vectors), "\t")
        write_keys(labels, vectors.keys)
