"""Counting n-grams of any length by sorting whole numbers: a key never outgrows 64 bits."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from widemax.validation import ABSENT

MAX_ORDER = 16
"""Longest n-gram that is counted."""

MOST_KEYS = 2**62
"""Keys lie below this, so that neither they nor the key after them overflow."""

Ids = NDArray[np.int64]


class CountedLevel(NamedTuple):
    """The different n-grams of one length n, in the order of their keys; each [G].

    ``keys``: place of the first n − 1 ids · (num_classes + 1) + last id; ``counts``: how often each
    was seen as something to predict; ``suffixes``: the place of its last n − 1 ids;
    ``from_begin``: whether it starts with the begin marker.
    """

    keys: Ids
    counts: Ids
    suffixes: Ids
    from_begin: NDArray[np.bool_]


def count_levels(stream: Ids, num_classes: int, order: int) -> list[CountedLevel]:
    """Count the n-grams, n = 1 … ``order``, of sentences that each start with id ``num_classes``.

    Places run through all lengths: 0 is the empty n-gram, 1 + y is class y, then come the bigrams
    in the order of their keys, and so on. The begin marker is a context, never predicted.

    >>> unigrams, bigrams = count_levels(np.array([2, 0, 1, 0, 2, 0, 0]), 2, 2)
    >>> unigrams.counts.tolist(), bigrams.keys.tolist(), bigrams.counts.tolist()
    ([4, 1, 0], [3, 4, 6, 9], [1, 1, 1, 2])
    """
    levels = [_unigrams(stream, num_classes)]
    first_place = 1
    place = first_place + stream
    for _ in range(1, order):
        key, valid = extended_keys(place[:-1], stream[1:], num_classes + 1, last=num_classes)
        ends = np.flatnonzero(valid) + 1
        keys, seen_at, number, counts = _numbered(key)
        parents = keys // (num_classes + 1) - first_place
        levels.append(
            CountedLevel(
                keys=keys,
                counts=counts,
                suffixes=place[ends[seen_at]],
                from_begin=levels[-1].from_begin[parents],
            )
        )
        first_place += len(levels[-2].keys)
        place = np.full(len(stream), ABSENT, dtype=np.int64)
        place[ends] = first_place + number
    return levels


def continuation_counts(levels: list[CountedLevel]) -> list[Ids]:
    """Return the counts of Kneser and Ney: below the longest length, how many ids came before.

    An n-gram that starts with the begin marker has nothing before it and keeps its own count.
    """
    counts, first_place = [], 1
    for level, longer in pairwise(levels):
        before = np.bincount(longer.suffixes - first_place, minlength=len(level.keys))
        counts.append(np.where(level.from_begin, level.counts, before))
        first_place += len(level.keys)
    return [*counts, levels[-1].counts]


def count_ngrams(corpus: Ids, num_classes: int, order: int) -> list[Ids]:
    """Return for each n up to ``order`` the sorted keys of all n-grams, repeats included.

    The key of an n-gram is g · num_classes + (its last id); g is the place of its first n − 1 ids
    in the table before, which numbers them without a table of contexts. −1 ends a text.
    """
    tables = []
    gram = np.zeros(len(corpus) + 1, dtype=np.int64)
    for _ in range(order):
        # gram[i]: the number of the (n − 1)-gram that ends before position i.
        key, valid = extended_keys(gram[:-1], corpus, num_classes, last=ABSENT)
        table = np.sort(key)
        tables.append(table)
        gram = np.full(len(corpus) + 1, ABSENT, dtype=np.int64)
        gram[1:][valid] = np.searchsorted(table, key)
    return tables


def extended_keys(gram: Ids, ids: Ids, base: int, *, last: int) -> tuple[Ids, NDArray[np.bool_]]:
    """Return the keys of numbered n-grams with one more id each, and which there are.

    There is none where the n-gram is absent, nor where the id is ``last``, which follows nothing.
    """
    valid = (gram != ABSENT) & (ids != last)
    return gram[valid] * base + ids[valid], valid


def _numbered(key: Ids) -> tuple[Ids, Ids, Ids, Ids]:
    """Return the different keys in order, where each is seen, the number of each, and how often.

    Like ``np.unique``, but any place where a key is seen will do: its sort need not be stable, and
    takes half the time.
    """
    order = np.argsort(key)
    ordered = key[order]
    new = np.ones(len(key), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    number = np.empty_like(order)
    number[order] = np.cumsum(new) - 1
    return ordered[starts], order[starts], number, np.diff(starts, append=len(key))


def _unigrams(stream: Ids, num_classes: int) -> CountedLevel:
    """Return all classes and the begin marker, seen or not."""
    keys = np.arange(num_classes + 1)
    counts = np.bincount(stream, minlength=num_classes + 1)
    counts[num_classes] = 0
    return CountedLevel(keys, counts, np.zeros_like(keys), keys == num_classes)
