"""What a model is built from: counts, sizes and features of the data, never the data themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from widemax.data.features.table import FeatureTable
from widemax.data.reading.tables import TEXT
from widemax.data.source import Source
from widemax.validation import Counts, check_counts
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import Keys, as_keys

_SECONDS_A_DAY = 86_400


def source_of(kind: str) -> str:
    """Return which settings data of a kind have: those of a "text" or of a "log".

    >>> source_of("text"), source_of("csv")
    ('text', 'log')
    """
    return TEXT if kind == TEXT else "log"


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
        return source_of(self.kind)

    @classmethod
    def from_counts(
        cls,
        counts: Counts,
        *,
        keys: Keys | None = None,
        days: float = 0.0,
        item_features: FeatureTable | None = None,
        user_features: FeatureTable | None = None,
    ) -> DataSummary:
        """Return the summary of an ordered log of classes of these counts [V].

        The keys are 0, 1, … unless they are given.

        >>> DataSummary.from_counts([3, 0, 1], keys=["tea", "rum", "gin"]).vocabulary
        Vocabulary(3 keys, total 4: 'tea' 3, 'rum' 0, 'gin' 1)
        """
        array = check_counts(counts, all_zero=True)
        whole = array.astype(np.int64)
        if (whole != array).any():
            raise ValueError(
                f"counts must be whole numbers, got {array[whole != array][0]} for class "
                f"{int(np.flatnonzero(whole != array)[0]):,}"
            )
        key = as_keys(np.arange(len(array)) if keys is None else keys)
        for name, rows in (("keys", key), ("item_features", item_features)):
            if rows is not None and len(rows) != len(array):
                raise ValueError(
                    f"{name} must have a row for each of {len(array):,} classes, got {len(rows):,}"
                )
        return cls(
            kind="pairs",
            vocabulary=Vocabulary(pl.DataFrame({"key": key, "count": whole})),
            days=days,
            item_features=item_features,
            user_features=user_features,
        )

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
