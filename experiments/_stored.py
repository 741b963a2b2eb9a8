"""Rows of a table, kept in a file as soon as each is done, with what they were made with.

    stored = StoredRows(RESULTS / "beauty.rows.json")
    stored.add("full", configuration, {"ndcg": 0.031})
    stored.fitting({"full": configuration})["full"]["ndcg"]

A row of another configuration is not taken for one of today's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from widemax.storage.files import atomic_write

Configuration = Mapping[str, Any]


class StoredRows(NamedTuple):
    """The rows of one file; two programs may add to it in turn."""

    file: Path

    def fitting(self, made_with: Mapping[str, Configuration]) -> dict[str, dict[str, Any]]:
        """The stored rows that were made as asked, in the order of the names."""
        stored = self._read()
        return {
            name: stored[name]["row"]
            for name, configuration in made_with.items()
            if name in stored and stored[name]["configuration"] == configuration
        }

    def add(self, name: str, made_with: Configuration, row: Mapping[str, Any]) -> None:
        """Add a row to those of the file as it is now, in the place of an older one."""
        stored = self._read()
        stored[name] = {"configuration": made_with, "row": row}
        self.file.parent.mkdir(exist_ok=True)
        with atomic_write(self.file) as file:
            file.write((json.dumps(stored, indent=1, ensure_ascii=False) + "\n").encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        stored: dict[str, dict[str, Any]] = (
            json.loads(self.file.read_text()) if self.file.exists() else {}
        )
        return stored


def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Reads a list like full,adaptive on the command line; the order is that of ``known``."""
    names = list(known)

    def chosen(text: str) -> list[str]:
        unknown = sorted(set(text.split(",")) - set(names))
        if unknown:
            raise argparse.ArgumentTypeError(f"no row {unknown[0]!r}; there are {', '.join(names)}")
        return [name for name in names if name in text.split(",")]

    return chosen
