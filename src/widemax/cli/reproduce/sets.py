"""What can be reproduced: data, commands and figures, as ``sets.toml`` and ``figures.toml`` say."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Figure:
    """What a figure was published as, and what it comes to with this version."""

    published: float | None = None
    """In the literature."""
    by: str = ""
    """By whom."""
    expected: float | None = None
    """Measured with the commands of the set."""
    spread: float = 0.0
    """How far from ``expected`` another seed or machine may be."""


@dataclass(frozen=True)
class Row:
    """A model that is trained and evaluated."""

    flags: tuple[str, ...]
    """Of ``widemax train``."""
    figures: Mapping[str, Figure]
    """By the names that ``widemax evaluate --json`` gives them."""


@dataclass(frozen=True)
class PublishedSet:
    """A set of data and all that is trained on it."""

    about: str
    """In a line."""
    source: str
    """The file or folder that is trained on, below the folder of the data."""
    files: tuple[str, ...]
    """What must be there."""
    holds: str
    """What is in these files, and where they come from."""
    evaluate: tuple[str, ...]
    """Flags of ``widemax evaluate``."""
    rows: Mapping[str, Row]
    """By their names."""

    def missing(self, data: Path) -> list[str]:
        """Return the files that are not in a folder of data."""
        return [name for name in self.files if not (data / name).is_file()]


@cache
def published_sets() -> dict[str, PublishedSet]:
    """Return all sets by their names.

    >>> published_sets()["gowalla"].rows["youtube-dnn"].flags[:2]
    ('--model', 'youtube-dnn')
    """
    sets, figures = (
        tomllib.loads((_HERE / name).read_text(encoding="utf-8"))
        for name in ("sets.toml", "figures.toml")
    )
    return {
        name: PublishedSet(
            about=given["about"],
            source=given["source"],
            files=tuple(given["files"]),
            holds=given["holds"],
            evaluate=tuple(given["evaluate"]),
            rows={
                row: Row(
                    tuple(flags),
                    {each: Figure(**values) for each, values in figures[name][row].items()},
                )
                for row, flags in given["rows"].items()
            },
        )
        for name, given in sets.items()
    }
