"""The files of TensorBoard's embedding projector: numbers in one table, labels in another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from widemax.declarations import declare
from widemax.storage.files import atomic_pair, open_to_read
from widemax.vectors.keyed import KeyedVectors
from widemax.vectors.rows import RowGatherer, as_array, check_shape, check_writable
from widemax.vectors.text_lines import LineFormat, gather_lines, read_keys, write_keys, write_lines
from widemax.vocabulary.keys import first_row
from widemax.vocabulary.spelling import quoted

VECTORS_FILE = "vectors.tsv"
METADATA_FILE = "metadata.tsv"
_TITLED = "key\ttitle"
"""The first line of metadata with titles: the projector reads it as the names of the columns."""


def read_projector_vectors(folder: str | Path) -> KeyedVectors:
    """Read ``vectors.tsv`` and ``metadata.tsv`` of a folder: lines of numbers, and of one key each.

    Of keys with titles, as they are written here, the titles are left out. Other metadata of
    several columns, of which the projector reads the first line as names, is refused.

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
    if len(keys) > 1 and keys[0] == _TITLED:
        keys = keys.slice(1).str.split_exact("\t", 1).struct.field("field_0").alias("key")
    several = keys.str.contains("\t", literal=True)
    if several.any():
        row = first_row(several)
        raise ValueError(
            f"{labels}, line {row + 1:,}: must have one column, the key, got {quoted(keys[row])}"
        )
    path = Path(folder) / VECTORS_FILE
    with open_to_read(path) as file:
        dimension = file.readline().count(b"\t") + 1
        file.seek(0)
        lines = LineFormat(separator="\t", dimension=dimension, keyed=False)
        shape = check_shape(path, file, (len(keys), dimension), lines.min_bytes)
        gatherer = RowGatherer(path, "line", shape, "error")
        gather_lines(file, gatherer, lines, rows=len(keys), first_line=1, keys=keys)
    return gatherer.finish()


@declare.export(
    "projector",
    traits=["titles"],
    help="A folder with vectors.tsv and metadata.tsv for TensorBoard's embedding projector.",
)
def write_projector_vectors(
    folder: str | Path, vectors: KeyedVectors, titles: Sequence[str] = ()
) -> None:
    """Write ``vectors.tsv`` and ``metadata.tsv``, which TensorBoard's embedding projector loads.

    The folder is made if it does not exist. Keys must be neither empty nor contain tabs or line
    breaks. Titles, one for each key, stand behind them, with blanks for white space of any kind.

    >>> import tempfile, torch
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_projector_vectors(folder, KeyedVectors(["green tea"], torch.tensor([[1.0, 0.1]])))
    >>> (folder / "vectors.tsv").read_text()
    '1.0\\t0.1\\n'
    """
    rule = f"must not be empty nor contain tab, line break or byte order mark in {METADATA_FILE}"
    check_writable(vectors.keys, r"^$|[\t\n\r\x{feff}]", rule)
    lines = _titled(vectors.keys, titles) if titles else vectors.keys
    with atomic_pair(folder, (VECTORS_FILE, METADATA_FILE)) as (numbers, labels):
        write_lines(numbers, as_array(vectors), "\t")
        write_keys(labels, lines)


def _titled(keys: pl.Series, titles: Sequence[str]) -> pl.Series:
    """Return the lines of keys and titles, the names of both before them."""
    if len(titles) != len(keys):
        raise ValueError(
            f"titles must be one for each of the {len(keys):,} keys, got {len(titles):,}"
        )
    plain = pl.Series([" ".join(title.split()) for title in titles], dtype=pl.String)
    lines = pl.select(pl.concat_str(pl.lit(keys), pl.lit(plain), separator="\t")).to_series()
    return pl.concat([pl.Series([_TITLED]), lines.alias("")])
