"""What is known before a choice: the data, what they are for, and what there is to compute with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from widemax.advising.popularity import MAX_CLASSES, Popularity
from widemax.advising.units import bytes_of, whole
from widemax.config import Config
from widemax.config.resolution import is_ordered
from widemax.data import Source
from widemax.declarations import Value, find
from widemax.limits import check_positive
from widemax.runs.source.configured import configured_for
from widemax.runs.source.reading import read_configured

NEEDS = {
    "probabilities": "scores that are probabilities over all classes",
    "new-items": "classes that training never saw, known by their features or their spelling",
    "serving": "the best classes of a query found quickly, by an index of vectors",
}
"""What a model may be needed for, as ``--needs`` names it."""

LANGUAGE_NEEDS = {"probabilities", "new-items"}
"""What only a language model has, of those that read a text."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The facts that a choice follows from."""

    source: str
    """Whether the data are a "log" or a "text"."""
    popularity: Popularity
    """How often classes are targets."""
    labels: float = 1.0
    """Right answers of one example."""
    num_targets: int = 0
    """Interactions or words to train on; 0 where nobody knows."""
    length: float = 0.0
    """Items of a user or words of a line, on average; 0 where nobody knows."""
    ordered: bool = True
    """Whether the order of a user's items means anything."""
    features: bool = False
    """Whether features of the items are known."""
    needs: frozenset[str] = frozenset()
    """Names of ``NEEDS``."""
    memory: float = 0.0
    """Bytes that there are; 0 sets no limit."""
    given: Mapping[str, Value] = field(default_factory=dict)
    """Settings that are decided already."""
    path: Path | None = None
    """The source; None for a plan."""

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return self.popularity.num_classes

    @property
    def objects(self) -> str:
        """What the classes are."""
        return "words" if self.source == "text" else "items"


def planned(
    classes: float,
    *,
    data: str = "log",
    labels: float = 1.0,
    examples: float = 0,
    needs: Collection[str] = (),
    memory: str | float = 0,
    given: Mapping[str, Value] | None = None,
) -> Situation:
    """Return the situation of a plan: so many classes, popular by Zipf's law.

    >>> planned(50e6, memory="8GB").memory
    8000000000.0
    >>> planned(0.5)
    Traceback (most recent call last):
    ValueError: classes must be a whole number between 1 and 1,099,511,627,776, got 0.5
    """
    number = whole("classes", classes, 1, MAX_CLASSES)
    if data not in ("log", "text"):
        raise ValueError(f"data must be one of log, text, got {data!r}")
    wanted = check_needs(needs)
    return Situation(
        source=data,
        popularity=Popularity.zipf(number),
        labels=check_labels(labels),
        num_targets=whole("examples", examples, 0, MAX_CLASSES),
        # Who plans for new items has something to know them by.
        features="new-items" in wanted,
        needs=wanted,
        memory=bytes_of(memory),
        given=dict(given or {}),
    )


def read_situation(
    path: str | Path,
    *,
    labels: float | None = None,
    needs: Collection[str] = (),
    memory: str | float = 0,
    given: Mapping[str, Value] | None = None,
) -> Situation:
    """Return the situation of a source, read as ``widemax train`` reads it.

    >>> import tempfile
    >>> log = Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = log.write_text("user,item\\n" + "ann,tea\\nann,rum\\nbob,tea\\n" * 9)
    >>> situation = read_situation(log)
    >>> situation.num_classes, situation.ordered, situation.labels
    (2, True, 1.0)
    """
    wanted, limit = check_needs(needs), bytes_of(memory)
    settings: dict[str, Any] = dict(given or {})
    config = configured_for(path, Config(**settings))
    if config.source == "text" and "model" not in settings and wanted & LANGUAGE_NEEDS:
        # A text is read as a language model reads it, where it is to become one.
        config = configured_for(path, Config(model="nnlm", **settings))
    source = read_configured(path, config)
    situation = of_source(source, config)
    return replace(
        situation,
        labels=situation.labels if labels is None else check_labels(labels),
        needs=wanted,
        memory=limit,
        given=dict(given or {}),
        path=Path(path),
    )


def of_source(source: Source, config: Config) -> Situation:
    """Return what data say of themselves."""
    text = config.source == "text"
    ordered = text or is_ordered(config.item_order, find("format", source.kind).traits)
    sequences = source.sequences
    return Situation(
        source=str(config.source),
        popularity=Popularity.from_counts(source.vocabulary.counts.numpy()),
        num_targets=len(sequences.values),
        length=len(sequences.values) / max(1, len(sequences)),
        ordered=ordered,
        features=source.item_features is not None,
    )


def check_needs(needs: Collection[str]) -> frozenset[str]:
    """Return the names of needs, each of them known."""
    for name in needs:
        if name not in NEEDS:
            raise ValueError(f"needs must be some of {', '.join(NEEDS)}, got {name!r}")
    return frozenset(needs)


def check_labels(labels: float) -> float:
    """Return how many labels an example has, one at least."""
    if check_positive("labels", labels) < 1:
        raise ValueError(f"labels must be at least 1, got {labels!r}")
    return float(labels)
