"""The k-core of a log: users and items with few interactions peeled off until none is left."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from widemax.kernels.grouping import grouped

Numbers = NDArray[np.int64]


@njit(cache=True, nogil=True)
def k_core(items: Numbers, offsets: Numbers, num_items: int, core: int) -> NDArray[np.bool_]:
    """Return which interactions are left when every user and item has ``core`` of them or none.

    Formula: the largest set of interactions in which each user and each item that has one has at
    least ``core``. There is one such set: whatever the order of removal, the same is left.

    Shapes: items [T], each in 0 … num_items − 1; user u has items[offsets[u] : offsets[u + 1]] →
    bool [T].

    Cost: O(T), however long the chain of removals is; 16 bytes for each interaction.

    Reference: Batagelj and Zaveršnik, "An O(m) Algorithm for Cores Decomposition of Networks",
    2003, for one value of k.

    Use when: a log is to be reduced to users and items that can be learned. Avoid when: one pass
    over the items is wanted (``min_count``).

    >>> k_core(np.array([0, 1, 0, 1, 2]), np.array([0, 2, 4, 5]), 3, 2).tolist()
    [True, True, True, True, False]
    """
    num_users = len(offsets) - 1
    kept = np.ones(len(items), np.bool_)
    left = np.zeros(num_users + num_items, np.int64)  # users first, then items
    for user in range(num_users):
        left[user] = offsets[user + 1] - offsets[user]
    for place in range(len(items)):
        left[num_users + items[place]] += 1
    poor = np.empty(num_users + num_items, np.int64)
    num_poor = 0
    for node in range(len(left)):
        if left[node] < core:
            poor[num_poor] = node
            num_poor += 1
    if num_poor == 0:
        return kept
    places, starts = grouped(items, num_items)
    user_of = np.empty(len(items), np.int64)
    for user in range(num_users):
        user_of[offsets[user] : offsets[user + 1]] = user
    while num_poor > 0:
        num_poor -= 1
        node = poor[num_poor]
        is_user = node < num_users
        if is_user:
            start, stop = offsets[node], offsets[node + 1]
        else:
            start, stop = starts[node - num_users], starts[node - num_users + 1]
        for index in range(start, stop):
            place = index if is_user else places[index]
            if not kept[place]:
                continue
            kept[place] = False
            other = num_users + items[place] if is_user else user_of[place]
            left[other] -= 1
            if left[other] == core - 1:  # it has just become poor, and is listed once
                poor[num_poor] = other
                num_poor += 1
    return kept


def k_core_reference(
    items: Numbers, offsets: Numbers, num_items: int, core: int
) -> NDArray[np.bool_]:
    """Return the same as ``k_core``, by counting again until nothing changes."""
    users = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    kept = np.ones(len(items), np.bool_)
    while True:
        user_counts = np.bincount(users[kept], minlength=len(offsets) - 1)
        item_counts = np.bincount(items[kept], minlength=num_items)
        enough = kept & (user_counts[users] >= core) & (item_counts[items] >= core)
        if (enough == kept).all():
            return kept
        kept = enough
