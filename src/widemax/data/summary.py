"""What a model is built from: counts, sizes and features of the data, never the data themselves."""

from __future__ import annotations

from dataclasses import dataclass

from widemax.data.features.table import FeatureTable
from widemax.data.reading.source import Source
from widemax.vocabulary import Vocabulary

_SECONDS_A_DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class DataSummary:
    """The classes of some data, what is known of them, and how the data came.

    A run keeps it, so that its model can be built again where its data are not.
    """

    kind: str
    """text, or the format of the log."""
    vocabulary: Vocabulary
    """The classes and their counts."""
    days: float = 0.0
    """From the first interaction to the last; 0 where the log has no times."""
    item_features: FeatureTable | None = None
    """A row for each class."""
    user_features: FeatureTable | None = None
    """A row for each user of the log."""

    @property
    def source(self) -> str:
        """Which settings the data have: those of a "text" or of a "log"."""
        return "text" if self.kind == "text" else "log"

    @classmethod
    def of(cls, source: Source) -> DataSummary:
        """Return the summary of what was read.

        >>> from widemax.data import Sequences
        >>> words, text = Vocabulary.count(["tea", "rum", "tea"]), Sequences.from_lists([[0, 1, 0]])
        >>> source = Source(kind="text", sequences=text, vocabulary=words)
        >>> DataSummary.of(source).vocabulary.counts.tolist()
        [2, 1]
        """
        times = source.sequences.times
        seconds = 0.0
        if times is not None and len(times):
            # A log of one moment has an age, too: whoever divides by it must not meet 0.
            seconds = max(float(times.max() - times.min()), 0.1)
        return cls(
            kind=source.kind,
            vocabulary=source.vocabulary,
            days=seconds / _SECONDS_A_DAY,
            item_features=source.item_features,
            user_features=source.user_features,
        )
