"""Skip-gram pairs with labels, as the tutorials of the field make them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from widemax.data.sequences import MAX_WINDOW
from widemax.validation import (
    ABSENT,
    MAX_SAMPLES,
    MAX_TABLE_CLASSES,
    check_ids,
    check_not_negative,
    check_num_classes,
    check_positive,
    check_whole,
)

_EULER_GAMMA = 0.577
"""As many digits as Keras has."""


def skipgrams(
    sequence: Tensor | Sequence[int],
    num_classes: int,
    *,
    window: int = 4,
    negatives: float = 1.0,
    sampling_table: Tensor | Sequence[float] | None = None,
    shuffle: bool = True,
    one_hot: bool = False,
    num_reserved_ids: int = 1,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Return pairs of a word and a neighbour, int64 [N, 2], and their labels, int64 [N].

    A pair of a word with one of up to ``window`` places before or after it has the label 1. For
    each such pair there are ``negatives`` (a fraction is rounded down over all of them) of one of
    these words with a class drawn uniformly, labelled 0; like in Keras, such a class may by chance
    be a neighbour. With ``one_hot`` labels are [N, 2]: [0, 1] for a pair, [1, 0] for a negative.
    ``sampling_table`` [V] is the probability with which each class is kept as the first of its
    pairs; as the second it always is.

    Ids below ``num_reserved_ids`` stand for no word: they keep their place, but are in no pair and
    never drawn. It is 1 by default, as in Keras, where 0 is padding; for the ids of a
    ``Vocabulary``, whose class 0 is its most frequent word, pass 0. Id -1 is always padding.

    It is ``tf.keras.preprocessing.sequence.skipgrams`` with other names: ``vocabulary_size`` is
    ``num_classes``, ``window_size`` ``window``, ``negative_samples`` ``negatives``,
    ``categorical`` ``one_hot``, ``seed`` ``generator``.

    >>> sentence = "The wide road shimmered in the hot sun".lower().split()
    >>> words = ["<pad>", *dict.fromkeys(sentence)]
    >>> ids = [words.index(word) for word in sentence]
    >>> ids
    [1, 2, 3, 4, 5, 1, 6, 7]
    >>> pairs, labels = skipgrams(ids, len(words), window=2, negatives=0, shuffle=False)
    >>> len(pairs), labels.unique().tolist()
    (26, [1])
    >>> for word, neighbour in pairs[:5].tolist():
    ...     print(words[word], words[neighbour])
    the wide
    the road
    wide the
    wide road
    wide shimmered

    As many negatives as pairs, in random order:

    >>> generator = torch.Generator().manual_seed(0)
    >>> pairs, labels = skipgrams(ids, len(words), window=2, generator=generator)
    >>> len(pairs), int(labels.sum()), bool((pairs > 0).all())
    (52, 26, True)
    """
    num_classes = check_num_classes(num_classes)
    num_reserved_ids = check_whole("num_reserved_ids", num_reserved_ids, 0, num_classes - 1)
    ids = _as_ids(sequence, num_classes)
    window = min(check_whole("window", window, 1, MAX_WINDOW), max(len(ids) - 1, 1))
    check_whole("len(sequence) · 2 · window", len(ids) * 2 * window, 0, MAX_SAMPLES)
    check_not_negative("negatives", negatives)
    kept = ids >= num_reserved_ids
    ids = torch.where(kept, ids, ABSENT)
    if sampling_table is not None:
        table = _check_table(sampling_table, num_classes)
        drawn = torch.rand(len(ids), dtype=torch.float64, generator=generator)
        kept = kept & (drawn < table[ids.clamp(min=0)])
    pairs = _neighbours(ids, kept, window)
    num_negatives = int(len(pairs) * negatives)
    check_whole("negatives · pairs", num_negatives, 0, MAX_SAMPLES)
    labels = torch.ones(len(pairs) + num_negatives, dtype=torch.int64)
    labels[len(pairs) :] = 0
    if num_negatives:
        firsts = pairs[torch.randperm(len(pairs), generator=generator), 0]
        # Round and round, so that each word has its share even where negatives are few.
        firsts = firsts[torch.arange(num_negatives) % len(firsts)]
        drawn = torch.randint(num_reserved_ids, num_classes, (num_negatives,), generator=generator)
        pairs = torch.cat([pairs, torch.stack([firsts, drawn], 1)])
    if shuffle:
        order = torch.randperm(len(pairs), generator=generator)
        pairs, labels = pairs[order], labels[order]
    return pairs, torch.stack([1 - labels, labels], 1) if one_hot else labels


def zipf_sampling_table(num_classes: int, *, threshold: float = 1e-5) -> Tensor:
    """Return how likely the class of each rank is to be kept, float64 [V], if counts follow Zipf.

    Entry y is min(1, sqrt(t / f)) with t the threshold and f the share of rank y among all words,
    taken to be 1 / (y · (ln y + γ) + 1/2 − 1/(12y)); entry 0 is that of rank 1. It is Keras'
    ``make_sampling_table(size, sampling_factor)``, for the ``sampling_table`` of ``skipgrams``.
    Where counts are known, ``widemax.models.keep_probability`` takes them.

    >>> [round(each, 5) for each in zipf_sampling_table(4).tolist()]
    [0.00315, 0.00315, 0.00548, 0.00742]
    """
    num_classes = check_num_classes(num_classes, limit=MAX_TABLE_CLASSES)
    check_positive("threshold", threshold)
    rank = np.arange(num_classes, dtype=np.float64)
    rank[0] = 1.0
    inverse_frequency = rank * (np.log(rank) + _EULER_GAMMA) + 0.5 - 1.0 / (12.0 * rank)
    return torch.from_numpy(np.minimum(1.0, np.sqrt(threshold * inverse_frequency)))


def _as_ids(sequence: Tensor | Sequence[int], num_classes: int) -> Tensor:
    if not isinstance(sequence, Tensor):
        array = np.asarray(sequence)
        if array.dtype.kind not in "iu" and array.size:
            raise ValueError(f"sequence must hold whole numbers, got dtype {array.dtype}")
        sequence = torch.from_numpy(array.astype(np.int64))
    if sequence.dim() != 1:
        raise ValueError(f"sequence must have one dimension, got {list(sequence.shape)}")
    return check_ids("sequence", sequence, num_classes, absent=True)


def _check_table(table: Tensor | Sequence[float], num_classes: int) -> Tensor:
    table = torch.as_tensor(table, dtype=torch.float64)
    if table.shape != (num_classes,):
        raise ValueError(
            f"sampling_table must have one probability a class, {num_classes:,}, got "
            f"{list(table.shape)}"
        )
    wrong = ~((table >= 0) & (table <= 1))
    if bool(wrong.any()):
        place = int(wrong.nonzero()[0])
        raise ValueError(
            f"sampling_table must lie between 0 and 1, got {float(table[place])} for class {place}"
        )
    return table


def _neighbours(ids: Tensor, kept: Tensor, window: int) -> Tensor:
    """Return the pairs of the ids that are kept with those around them, in their order, [N, 2]."""
    if not len(ids):
        return ids.new_empty(0, 2)
    around = pad(ids, (window, window), value=ABSENT).unfold(0, 2 * window + 1, 1)
    there = (around >= 0) & kept[:, None]
    there[:, window] = False  # the word itself
    return torch.stack([ids[:, None].expand_as(around)[there], around[there]], 1)
