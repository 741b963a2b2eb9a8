"""What a database says of a table of vectors: of which run it is, and how it is searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from widemax.filters import ColumnKind

FORMAT_VERSION = 1
MANIFEST_TABLE = "widemax_manifest"


@dataclass(frozen=True, kw_only=True)
class StoreManifest:
    """The row of ``widemax_manifest`` about one table."""

    table: str
    """The name of the table."""
    run: str
    """The name of the folder of the run."""
    run_sha256: str
    """Of its ``run.json``, which names its data, vocabulary and configuration."""
    model_sha256: str
    """Of the parameters of the checkpoint."""
    step: int
    """The step of the checkpoint."""
    size: int
    """The number of items."""
    dimension: int
    """The length of what ``similar`` compares."""
    point_dimension: int = 0
    """The length of what ``recommend`` searches; 0: the model does not rank by products."""
    columns: Mapping[str, ColumnKind] = field(default_factory=dict)
    """What filters may be on, and what each has of an item."""
    search_breadth: int = 40
    """How many of the nearest a search of the index keeps (``hnsw.ef_search``)."""
    recall: Mapping[str, float] = field(default_factory=dict)
    """The share of the exact 10 best that was found when it was written, by purpose."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StoreManifest:
        """Return what ``to_json`` described; anything else is refused.

        >>> StoreManifest.from_json({"table": "items"})
        Traceback (most recent call last):
        ValueError: widemax_manifest does not describe a table of vectors: export the run again
        """
        known = {each.name for each in fields(cls)}
        if set(given) != known or not isinstance(given["columns"], Mapping):
            raise ValueError(
                f"{MANIFEST_TABLE} does not describe a table of vectors: export the run again"
            )
        return cls(**given)

    def __str__(self) -> str:
        found = ", ".join(f"recall@10 {value:.3f} of {name}" for name, value in self.recall.items())
        return (
            f"table {self.table}: {self.size:,} items of {self.run}, step {self.step:,}"
            f"{f'; {found}' if found else ''}"
        )
