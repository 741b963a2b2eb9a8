"""An export of your own: vectors as CSV.

widemax --plugin examples/plugins/csv_export.py export run vectors.csv --to csv
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

import widemax as wm
from widemax.storage.files import atomic_write


@wm.declare.export("csv")
def write_csv_vectors(path: str | Path, vectors: wm.KeyedVectors) -> None:
    """Vectors as CSV: the key, then a column for each dimension."""
    columns = {f"x{place}": column.numpy() for place, column in enumerate(vectors.vectors.T)}
    with atomic_write(path) as file:
        pl.DataFrame({"key": vectors.keys, **columns}).write_csv(file)
