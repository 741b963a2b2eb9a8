"""The k-core of a log: users and items with few interactions peeled off until none is left."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.data.grouping import counted, row_type
from widemax.kernels.data.memory import unset

Numbers = NDArray[np.int64]
Items = NDArray[Any]
"""Whole numbers of any size."""

# Times the core: an item with fewer interactions may well become poor.
_FEW = 4


class Peeled(NamedTuple):
    """What is left of a log."""

    kept: NDArray[np.bool_]
    """Which interactions, [T]."""
    user_counts: Numbers
    """How many of each user."""
    item_counts: Numbers
    """How many of each item."""


def peeled(items: Items, offsets: Numbers, num_items: int, core: int) -> Peeled:
    """Return what is left when every user and item has ``core`` interactions or none.

    That is the largest set of interactions in which each user and each item that has one has at
    least ``core``; whatever the order of removal, the same is left. User u has the items
    items[offsets[u] : offsets[u + 1]]. O(T), however long the chain of removals is (Batagelj and
    Zaveršnik 2003, for one value of k), and at most 9 bytes for each interaction.

    >>> peeled(np.array([0, 1, 0, 1, 2]), np.array([0, 2, 4, 5]), 3, 2).kept.tolist()
    [True, True, True, True, False]
    """
    kept = unset(len(items), np.bool_)
    kept.fill(True)
    counts = counted(items, num_items)
    left = np.concatenate([np.diff(offsets), counts])
    poor = np.empty(len(left), np.int64)
    first = np.flatnonzero(left < core)
    poor[: len(first)] = first
    num_poor = len(first)
    # Most items that go never had many interactions: often it is enough to know where these are.
    for most in (_FEW * core, len(items) + 1):
        if num_poor:
            index = _indexed(items, offsets, np.where(counts < most, counts, 0))
            num_poor = _peel(items, offsets, *index, core, left, poor, num_poor, kept)
    left[left < core] = 0  # they are gone, whatever was counted when they went
    num_users = len(offsets) - 1
    return Peeled(kept, left[:num_users], left[num_users:])


def _indexed(items: Items, offsets: Numbers, counts: Numbers) -> tuple[Numbers, Items, Items]:
    """Return where each item with a count starts in the index, and the index: places and users."""
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    places, users = (np.empty(starts[-1], row_type(len(items))) for _ in range(2))
    _fill(items, offsets, counts > 0, starts[:-1].copy(), places, users)
    return starts, places, users


@njit(cache=True, nogil=True)
def _fill(
    items: Items, offsets: Numbers, wanted: NDArray[np.bool_], free: Numbers,
    places: Items, users: Items,
) -> None:  # fmt: skip
    for user in range(len(offsets) - 1):
        for place in range(offsets[user], offsets[user + 1]):
            item = items[place]
            if wanted[item]:
                places[free[item]] = place
                users[free[item]] = user
                free[item] += 1


@njit(cache=True, nogil=True)
def _peel(
    items: Items, offsets: Numbers, starts: Numbers, places: Items, users: Items, core: int,
    left: Numbers, poor: Numbers, num_poor: int, kept: NDArray[np.bool_],
) -> int:  # fmt: skip
    """Remove the poor, users first and then items in one numbering, and who becomes poor by it.

    Return how many are still listed: not 0 if the last of them is an item without an index.
    """
    num_users = len(offsets) - 1
    while num_poor > 0:
        node = poor[num_poor - 1]
        is_user = node < num_users
        if is_user:
            start, stop = offsets[node], offsets[node + 1]
        else:
            start, stop = starts[node - num_users], starts[node - num_users + 1]
            if start == stop and left[node] > 0:
                break
        num_poor -= 1
        for index in range(start, stop):
            place = index if is_user else np.int64(places[index])
            if not kept[place]:
                continue
            kept[place] = False
            other = num_users + items[place] if is_user else np.int64(users[index])
            left[other] -= 1
            if left[other] == core - 1:  # it has just become poor, and is listed once
                poor[num_poor] = other
                num_poor += 1
    return num_poor


def k_core_reference(
    items: Numbers, offsets: Numbers, num_items: int, core: int
) -> NDArray[np.bool_]:
    """Return which interactions are left, by counting again until nothing changes."""
    users = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    kept = np.ones(len(items), np.bool_)
    while True:
        user_counts = np.bincount(users[kept], minlength=len(offsets) - 1)
        item_counts = np.bincount(items[kept], minlength=num_items)
        enough = kept & (user_counts[users] >= core) & (item_counts[items] >= core)
        if (enough == kept).all():
            return kept
        kept = enough
