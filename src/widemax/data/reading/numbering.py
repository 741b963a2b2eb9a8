"""From keys to codes, as they come, to classes: by falling counts, without what is too rare."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.data.reading.columns import seconds_of
from widemax.data.sequences import Sequences, offsets_of
from widemax.kernels.data.grouping import MAX_ROWS, counted, number_dense
from widemax.kernels.data.k_core import Peeled, peeled
from widemax.kernels.data.slices import kept_classes, kept_lengths
from widemax.validation import ABSENT, check_whole
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.spelling import Key

MAX_LENGTH = 2**40
"""Largest ``min_length`` that can be asked for."""

MAX_CORE = 2**40
"""Largest core that can be asked for."""

# A table of all numbers between the ids may have this many places, and this many for each id.
_SMALL_SPAN = 2**16
_MOST_PER_KEY = 4


class Encoder:
    """Gives each key a code, 0 for the first one seen, over as many calls as it takes.

    Inside polars, in O(N + V) for N keys of which V differ. Whole numbers that lie close together,
    all in one call, are counted off in a table instead.

    >>> encoder = Encoder(pl.String())
    >>> encoder.encode(pl.Series(["tea", "rum", "tea"])).tolist()
    [0, 1, 0]
    >>> encoder.encode(pl.Series(["gin", "rum"])).tolist(), encoder.keys.to_list()
    ([2, 1], ['tea', 'rum', 'gin'])
    """

    def __init__(self, dtype: pl.DataType) -> None:
        self.keys = pl.Series("key", [], dtype=dtype)

    def encode(self, keys: pl.Series) -> NDArray[np.int32]:
        """Return the codes of ``keys`` [N], int32 [N]; new keys get new codes."""
        if len(keys) > MAX_ROWS:
            raise ValueError(f"keys must be at most {MAX_ROWS:,} in one call, got {len(keys):,}")
        if self.keys.is_empty() and (dense := _dense_span(keys)):
            chunks = [chunk.to_numpy() for chunk in keys.get_chunks()]
            codes, seen = number_dense(chunks, *dense)
            self.keys = pl.Series("key", seen)
            return codes
        block = keys.to_frame("key")
        unseen = block.unique(maintain_order=True).join(
            self.keys.to_frame(), on="key", how="anti", maintain_order="left"
        )["key"]
        # In memory of their own: strings would hold on to the block they stand in.
        unseen = unseen + "" if unseen.dtype == pl.String else unseen
        self.keys = self.keys.append(unseen).rechunk()
        index = self.keys.to_frame().with_row_index("code")
        found = block.join(index, on="key", how="left", maintain_order="left")["code"]
        return found.cast(pl.Int32).to_numpy(writable=True)


def _dense_span(keys: pl.Series) -> tuple[int, int] | None:
    """Return the least key and how many numbers lie up to the most; None if far more than keys."""
    if keys.dtype != pl.Int64 or keys.is_empty():
        return None
    low = cast(int, keys.min())
    span = cast(int, keys.max()) - low + 1
    return (low, span) if span <= max(_SMALL_SPAN, _MOST_PER_KEY * len(keys)) else None


def numbered(ids: pl.Series) -> tuple[NDArray[np.int32], pl.Series]:
    """Return the codes of a column of ids, and the key of each code."""
    encoder = Encoder(ids.dtype)
    return encoder.encode(ids), encoder.keys


class Limits(NamedTuple):
    """Which keys become classes, and which sequences stay."""

    min_count: int = 1
    """Keys seen less often go to ``unknown``, or out of their sequence."""
    max_size: int | None = None
    """So do keys beyond this many of the most frequent."""
    unknown: Key | None = None
    """The class of the keys that go."""
    min_length: int = 1
    """Sequences left with fewer classes go."""


NO_LIMITS = Limits()


class Coded(NamedTuple):
    """Sequences of codes as a reader finds them, before it is known which codes are classes."""

    codes: NDArray[np.int32]
    """[T], of all sequences end to end."""
    offsets: NDArray[np.int64]
    """[N + 1], where each sequence starts, and where the last one ends."""
    names: pl.Series | None = None
    """[N], the users."""
    times: NDArray[Any] | None = None
    """[T], those of ``as_times`` less ``since``."""
    per_second: float = 1.0
    """How many of the times make a second."""
    since: int = 0


def classes_of(
    coded: Coded,
    keys: pl.Series,
    limits: Limits = NO_LIMITS,
    *,
    core: Peeled | None = None,
    beside: Tensor | None = None,
) -> tuple[Sequences, Vocabulary, Tensor | None]:
    """Return the sequences of codes as classes, their vocabulary, and what stood beside the codes.

    ``keys`` [V] has the key of each code. Codes that are not in the ``core`` go before anything is
    counted; then the ``limits`` apply, to keys first and then to sequences, once each; what is
    left is counted again, so that vocabulary.counts[y] is the number of y in sequences.values.
    ``beside`` [T] loses what the codes lose. Three passes over T: to count, to decide, to copy.

    >>> coded = Coded(np.array([0, 1, 1, 2], np.int32), np.array([0, 3, 4]))
    >>> goals = torch.tensor([True, False, False, True])
    >>> keys = pl.Series(["tea", "rum", "gin"])
    >>> sequences, vocabulary, left = classes_of(coded, keys, Limits(min_length=2), beside=goals)
    >>> vocabulary.keys.to_list(), sequences.values.tolist(), left.tolist()
    (['rum', 'tea'], [1, 0, 0], [True, False, False])
    """
    min_count, max_size, unknown, min_length = limits
    check_whole("min_length", min_length, 1, MAX_LENGTH)
    counts = counted(coded.codes, len(keys)) if core is None else core.item_counts
    vocabulary = Vocabulary.from_counts(
        keys, counts, min_count=min_count, max_size=max_size, unknown=unknown
    )
    class_of = _class_of(vocabulary, keys, counts)
    kept = None if core is None else core.kept
    if (class_of[counts > 0] >= 0).all():
        lengths = np.diff(coded.offsets) if core is None else core.user_counts.copy()
    else:
        lengths = kept_lengths(coded.codes, coded.offsets, class_of, kept)
    stays = lengths >= min_length
    if not stays.any():
        raise ValueError(f"min_length = {min_length:,} leaves no sequence")
    # Keys that go leave the others' counts alone; a short sequence takes some of each.
    recounts = bool(lengths[~stays].any())
    lengths[~stays] = 0
    values, times = _left(coded, class_of, kept, lengths)
    if recounts:
        left_counts = torch.bincount(values, minlength=len(vocabulary))
        vocabulary, new_class_of = recounted(vocabulary.keys, left_counts, unknown)
        values = new_class_of[values]
    if beside is not None:
        left = (class_of >= 0)[coded.codes] & np.repeat(stays, np.diff(coded.offsets))
        beside = beside[torch.from_numpy(left if kept is None else left & kept)]
    names, offsets = coded.names, offsets_of(torch.from_numpy(lengths[stays]))
    if names is not None and not stays.all():
        names = names.filter(pl.Series(stays))
    return Sequences.trusted(values, offsets, names, times, vocabulary), vocabulary, beside


def _class_of(
    vocabulary: Vocabulary, keys: pl.Series, counts: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return the class of each key that was counted, −1 for one that has none."""
    if vocabulary.unknown is not None:
        return vocabulary.encode(keys, missing="mark").int().numpy()
    # Classes stand in falling count, equal ones as they came: no key need be looked up.
    codes = np.argsort(-counts, kind="stable")[: len(vocabulary)]
    class_of = np.full(len(keys), ABSENT, np.int32)
    class_of[codes] = np.arange(len(vocabulary), dtype=np.int32)
    return class_of


def _left(
    coded: Coded, class_of: NDArray[np.int32], kept: NDArray[np.bool_] | None,
    lengths: NDArray[np.int64],
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return the classes that are left, and when each was chosen, in seconds."""
    codes, offsets, _, times, per_second, since = coded
    places = offsets_of(torch.from_numpy(lengths)).numpy()
    # Whole seconds are made float64 on the way; nanoseconds must be divided before.
    whole = times is not None and times.dtype.kind == "i" and per_second != 1.0
    time_type = np.int64 if whole else np.float64
    values, left = kept_classes(codes, offsets, class_of, kept, places, times, time_type, since)
    seconds = None if left is None else torch.from_numpy(seconds_of(left, per_second))
    return torch.from_numpy(values), seconds


def recounted(keys: pl.Series, counts: Tensor, unknown: Key | None) -> tuple[Vocabulary, Tensor]:
    """Return the vocabulary of the keys that are still there, and the class of each key, or −1.

    >>> vocabulary, class_of = recounted(pl.Series(["tea", "rum"]), torch.tensor([0, 3]), None)
    >>> vocabulary.keys.to_list(), class_of.tolist()
    (['rum'], [-1, 0])
    """
    vocabulary = Vocabulary.from_counts(keys, counts, min_count=1, unknown=unknown)
    return vocabulary, vocabulary.encode(keys, missing="mark")


def recoded(sequences: Sequences, class_of: Tensor) -> tuple[Sequences, Tensor]:
    """Return sequences with other classes, int64 [V], and which values have one, bool [T].

    Value y becomes class_of[y], and is left out if that is −1; rows keep their numbers, and may
    become empty.

    >>> sequences, kept = recoded(Sequences.from_lists([[0, 2], [1]]), torch.tensor([5, -1, 3]))
    >>> sequences.values.tolist(), sequences.lengths.tolist(), kept.tolist()
    ([5, 3], [2, 0], [True, True, False])
    """
    classes = class_of[sequences.values]
    kept = classes >= 0
    if not bool(kept.all()):
        sequences, classes = sequences.kept(kept), classes[kept]
    recoded_values = Sequences.trusted(
        classes,
        sequences.offsets,
        sequences.names,
        sequences.times,
        weights=sequences.weights,
    )
    return recoded_values, kept


def core_of(sequences: Sequences, core: int) -> Tensor:
    """Return which values belong to the core of a log, bool [T]; ``sequences.kept`` keeps them.

    Sequences (users) and classes (items) with fewer than ``core`` values are removed, and again
    those that have too few since then, until each has at least ``core`` or none at all (Seidman,
    "Network Structure and Minimum Degree", 1983). What is left does not depend on the order of
    removal. A repeated interaction counts every time. Sequences that are removed are empty
    afterwards: rows keep their numbers. O(T), however long the chain of removals.

    Published results are mostly on the 5-core or 10-core, which is easier than the log it comes
    from: a recommender must serve the users and items that go, too.

    >>> sequences = Sequences.from_lists([[0, 1], [1, 0], [0, 2]])
    >>> core_of(sequences, 2).tolist()
    [True, True, True, True, False, False]
    """
    core = check_whole("core", core, 0, MAX_CORE)
    if not len(sequences.values):
        return torch.zeros(0, dtype=torch.bool)
    num_items = int(sequences.values.max()) + 1
    arrays = sequences.values.numpy(), sequences.offsets.numpy()
    return torch.from_numpy(left_in_core(*arrays, num_items, core).kept)


def left_in_core(
    items: NDArray[Any], offsets: NDArray[np.int64], num_items: int, core: int
) -> Peeled:
    """Return what ``peeled`` does; that nothing is left is an error."""
    left = peeled(items, offsets, num_items, core)
    if not left.kept.any():
        raise ValueError(f"core = {core:,} leaves no interaction of {len(items):,}")
    return left
