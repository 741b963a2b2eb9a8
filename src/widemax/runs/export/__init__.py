"""What a run becomes for other tools, beside files of vectors: a Faiss index, ONNX, a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from widemax.declarations import Declaration, find
from widemax.declarations.table import load
from widemax.stores.addresses import place_of
from widemax.vocabulary.spelling import quoted

if TYPE_CHECKING:
    from widemax.runs.run import Run


def export_run(path: str | Path, run: Run, *, to: str, table: str) -> str:
    """Write a run, or its vectors, in a format, and return what there is to say of it."""
    declaration = find("export", to, argument="to")
    check_destination(declaration, path, table)
    write = load(declaration)
    if "database" in declaration.traits:
        return str(write(path, run, table=table))
    if "run" in declaration.traits:
        write(path, run)
    elif "titles" in declaration.traits:
        write(path, run.vectors(), run.catalogue.titles or ())
    else:
        write(path, run.vectors())
    return ""


def check_destination(format: Declaration, path: str | Path, table: str) -> None:
    """Raise if a format does not go where it is to be written.

    >>> from widemax.declarations import find
    >>> check_destination(find("export", "pgvector"), "vectors.txt", "")
    Traceback (most recent call last):
    ValueError: pgvector is written into a database, postgresql://host/name, got vectors.txt
    """
    place = place_of(path)
    in_database = "database" in format.traits
    if in_database and isinstance(place, Path):
        raise ValueError(
            f"{format.name} is written into a database, postgresql://host/name, got {place}"
        )
    if not in_database and not isinstance(place, Path):
        raise ValueError(f"{format.name} is written into a file or a folder, got {place}")
    if table and not in_database:
        raise ValueError(f"table is for a database, got {quoted(table)} for {format.name}")
