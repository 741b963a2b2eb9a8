"""From codes to classes: by falling counts, without what is too rare or too short."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.data.reading.columns import seconds_of
from widemax.data.sequences import Sequences, offsets_of
from widemax.kernels.data import words as kernel
from widemax.kernels.data.grouping import counted
from widemax.kernels.data.k_core import Peeled
from widemax.kernels.data.slices import kept_classes, kept_lengths
from widemax.validation import ABSENT, check_whole
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import Key

MAX_LENGTH = 2**40
"""Largest ``min_length`` that can be asked for."""


def to_classes(
    codes: Tensor,
    keys: pl.Series,
    lengths: Tensor,
    *,
    names: pl.Series | None = None,
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
    min_length: int = 1,
) -> tuple[Sequences, Vocabulary]:
    """Return the sequences of these codes as classes, and the vocabulary of the classes.

    Formula: rare keys go first (to ``unknown``, or out of their sequence), then sequences of fewer
    than ``min_length``, once each; what is left is counted anew, so that
    vocabulary.counts[y] = the number of y in sequences.values.

    Shapes: ``codes`` [T] with ``keys`` [V] in order of appearance; ``lengths`` [N] adds up to T.

    Cost: a few passes over T.

    Reference: none.

    Use when: writing a reader. Avoid when: ``read_source`` reads the format already.

    >>> codes = torch.tensor([0, 1, 1, 2])
    >>> keys, lengths = pl.Series(["tea", "rum", "gin"]), torch.tensor([3, 1])
    >>> sequences, vocabulary = to_classes(codes, keys, lengths, min_length=2)
    >>> vocabulary.keys.to_list(), sequences.values.tolist()
    (['rum', 'tea'], [1, 0, 0])
    """
    coded = Coded(codes.int().numpy(), offsets_of(lengths).numpy(), names)
    sequences, vocabulary, _ = classes_of(
        coded,
        keys,
        min_count=min_count,
        max_size=max_size,
        unknown=unknown,
        min_length=min_length,
    )
    return sequences, vocabulary


class Coded(NamedTuple):
    """Sequences of codes as a reader finds them, before it is known which codes are classes.

    ``times`` are those of ``as_times``, of which ``per_second`` make a second, less ``since``.
    """

    codes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    names: pl.Series | None = None
    times: NDArray[Any] | None = None
    per_second: float = 1.0
    since: int = 0


def classes_of(
    coded: Coded,
    keys: pl.Series,
    *,
    core: Peeled | None = None,
    beside: Tensor | None = None,
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
    min_length: int = 1,
) -> tuple[Sequences, Vocabulary, Tensor | None]:
    """Return what ``to_classes`` does, with the times, and with what else stands beside the codes.

    Formula: see ``to_classes``; codes that are not in the ``core`` go before anything is counted.

    Shapes: ``coded`` holds T codes of ``keys`` [V]; ``core`` is None if all are in it; beside [T] →
    sequences of T' ≤ T classes, the vocabulary, and [T'] of ``beside``.

    Cost: three passes over T: to count, to decide, to copy; after ``peeled``, the last alone.

    Reference: none.

    Use when: something stands beside each value, such as its time. Avoid when: nothing does.

    >>> coded = Coded(np.array([0, 1, 1, 2], np.int32), np.array([0, 3, 4]))
    >>> goals = torch.tensor([True, False, False, True])
    >>> keys = pl.Series(["tea", "rum", "gin"])
    >>> classes_of(coded, keys, beside=goals, min_length=2)[2].tolist()
    [True, False, False]
    """
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
    lengths[~stays] = 0
    values, times = _left(coded, class_of, kept, lengths)
    if len(values) < counts.sum():
        again = torch.bincount(values, minlength=len(vocabulary))
        vocabulary, values = _counted_anew(vocabulary, again, values)
    if beside is not None:
        beside = beside[torch.from_numpy(_is_left(coded, class_of, kept, stays))]
    names, offsets = coded.names, offsets_of(torch.from_numpy(lengths[stays]))
    if names is not None and not stays.all():
        names = names.filter(pl.Series(stays))
    return Sequences.trusted(values, offsets, names, times), vocabulary, beside


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
    places = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=places[1:])
    # Whole seconds are made float64 on the way; nanoseconds must be divided before.
    whole = times is not None and times.dtype.kind == "i" and per_second != 1.0
    time_type = np.int64 if whole else np.float64
    values, left = kept_classes(codes, offsets, class_of, kept, places, times, time_type, since)
    seconds = None if left is None else torch.from_numpy(seconds_of(left, per_second))
    return torch.from_numpy(values), seconds


def _is_left(
    coded: Coded, class_of: NDArray[np.int32], kept: NDArray[np.bool_] | None,
    stays: NDArray[np.bool_],
) -> NDArray[np.bool_]:  # fmt: skip
    left = (class_of >= 0)[coded.codes] & np.repeat(stays, np.diff(coded.offsets))
    return left if kept is None else left & kept


def _counted_anew(
    vocabulary: Vocabulary, counts: Tensor, values: Tensor
) -> tuple[Vocabulary, Tensor]:
    """Return the vocabulary with these counts, in their order, and the values that fit it."""
    if torch.equal(counts, vocabulary.counts):
        return vocabulary, values
    keys, unknown = vocabulary.keys, vocabulary.unknown
    counted = Vocabulary.from_counts(keys, counts, min_count=1, unknown=unknown)
    return counted, counted.encode(keys, missing="mark")[values]


def recoded(sequences: Sequences, class_of: Tensor) -> tuple[Sequences, Tensor]:
    """Return sequences with other classes, int64 [V], and which values have one, bool [T].

    Formula: value y becomes class_of[y], and is left out if that is −1; rows keep their numbers,
    and may become empty.

    Shapes: ``sequences`` with T values → sequences of as many rows, and bool [T].

    Cost: a few passes over T.

    Reference: none.

    Use when: the vocabulary has changed. Avoid when: keys are not numbered yet.

    >>> sequences, kept = recoded(Sequences.from_lists([[0, 2], [1]]), torch.tensor([5, -1, 3]))
    >>> sequences.values.tolist(), sequences.lengths.tolist(), kept.tolist()
    ([5, 3], [2, 0], [True, True, False])
    """
    classes = class_of[sequences.values]
    kept = classes >= 0
    if bool(kept.all()):
        left = sequences
    else:
        left, classes = sequences.kept(kept), classes[kept]
    return Sequences.trusted(classes, left.offsets, left.names, left.times), kept


def without_gaps(
    codes: Tensor, lengths: Tensor, class_of: Tensor, min_length: int
) -> tuple[Tensor, Tensor]:
    """Return the classes of the codes, and what is left of each length: see ``keep_classes``."""
    arrays = (codes.int().numpy(), lengths.numpy(), class_of.numpy())
    values, kept = kernel.keep_classes(*arrays, min_length)
    return torch.from_numpy(values), torch.from_numpy(kept)
