"""The items that share most users with each item."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.heads.topk import kth_best
from widemax.kernels.threads import num_blocks

# Choices of users that are worth a thread of their own.
_CHOICES_A_THREAD = 4096

_Ids = NDArray[np.int64]
_Floats = NDArray[np.float64]


@njit(cache=True, nogil=True)
def _insert(ids: _Ids, similarities: _Floats, other: int, similarity: float) -> None:
    """Put one neighbour among the best so far, nearest first, if it is nearer than the last."""
    place = len(ids)
    while place > 0 and (
        similarity > similarities[place - 1]
        or (similarity == similarities[place - 1] and other < ids[place - 1])
    ):
        place -= 1
        if place + 1 < len(ids):
            ids[place + 1] = ids[place]
            similarities[place + 1] = similarities[place]
    if place < len(ids):
        ids[place] = other
        similarities[place] = similarity


def nearest_items(
    user_offsets: _Ids,
    user_items: _Ids,
    item_offsets: _Ids,
    item_users: _Ids,
    shrinkage: float,
    num_neighbours: int,
) -> tuple[_Ids, _Floats]:
    """Return the items most similar to each item, by their users (Deshpande & Karypis 2004).

    s(i, j) = n_ij / (√(n_i·n_j) + shrinkage), n_i the users of i, n_ij those of both; of equal ones
    the smaller id is the nearer. Given are sets end to end, the items of each user and the users of
    each item; ids and similarities are [V, num_neighbours], -1 and 0 where fewer items share a
    user. Takes O(Σ over users of their items squared), so users should not have thousands of items.

    >>> ids, found = nearest_items(np.array([0, 2, 4]), np.array([0, 1, 1, 2]),
    ...     np.array([0, 1, 3, 4]), np.array([0, 0, 1, 1]), 0.0, 2)
    >>> ids.tolist(), found.round(4).tolist()
    ([[1, -1], [0, 2], [1, -1]], [[0.7071, 0.0], [0.7071, 0.7071], [0.7071, 0.0]])
    """
    num_items = len(item_offsets) - 1
    ids = np.full((num_items, num_neighbours), -1, np.int64)
    similarities = np.zeros((num_items, num_neighbours))
    given = (user_offsets, user_items, item_offsets, item_users, shrinkage, ids, similarities)
    threads = num_blocks(len(item_users), smallest=_CHOICES_A_THREAD)
    if threads == 1:
        _nearest_of_some(0, num_items, *given)
    else:
        _nearest_in_blocks(threads, *given)
    return ids, similarities


@njit(cache=True, nogil=True, parallel=True)
def _nearest_in_blocks(
    threads: int,
    user_offsets: _Ids,
    user_items: _Ids,
    item_offsets: _Ids,
    item_users: _Ids,
    shrinkage: float,
    ids: _Ids,
    similarities: _Floats,
) -> None:
    # Cut by users, not by items: some have thousands.
    cuts = np.searchsorted(item_offsets, len(item_users) * np.arange(threads + 1) // threads)
    cuts[threads] = len(ids)
    for part in prange(threads):
        start, stop = cuts[part], cuts[part + 1]
        _nearest_of_some(
            start, stop, user_offsets, user_items, item_offsets, item_users, shrinkage, ids,
            similarities,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _nearest_of_some(
    start: int,
    stop: int,
    user_offsets: _Ids,
    user_items: _Ids,
    item_offsets: _Ids,
    item_users: _Ids,
    shrinkage: float,
    ids: _Ids,
    similarities: _Floats,
) -> None:
    num_items, num_neighbours = len(item_offsets) - 1, ids.shape[1]
    shared = np.zeros(num_items, np.int32)
    touched = np.empty(num_items + 1, np.int64)
    found = np.empty(num_items)
    for item in range(start, stop):
        count = 0
        shared[item] = 1  # as if it were known already: an item is no neighbour of itself
        for place in range(item_offsets[item], item_offsets[item + 1]):
            user = item_users[place]
            for other_place in range(user_offsets[user], user_offsets[user + 1]):
                # Without a branch, which would be a guess: what is no news is written over.
                other = user_items[other_place]
                touched[count] = other
                count += shared[other] == 0
                shared[other] += 1
        own_users = item_offsets[item + 1] - item_offsets[item]
        for n in range(count):
            other = touched[n]
            users = float(item_offsets[other + 1] - item_offsets[other])
            found[n] = shared[other] / (np.sqrt(own_users * users) + shrinkage)
            shared[other] = 0
        shared[item] = 0
        least = kth_best(found[:count], num_neighbours) if count > num_neighbours else 0.0
        for n in range(count):
            if found[n] >= least:
                _insert(ids[item], similarities[item], touched[n], found[n])


def nearest_items_reference(
    user_offsets: _Ids,
    user_items: _Ids,
    item_offsets: _Ids,
    item_users: _Ids,
    shrinkage: float,
    num_neighbours: int,
) -> tuple[_Ids, _Floats]:
    """Return the same from the whole matrix of users and items."""
    chosen = np.zeros((len(user_offsets) - 1, len(item_offsets) - 1))
    chosen[np.repeat(np.arange(len(chosen)), np.diff(user_offsets)), user_items] = 1
    shared = chosen.T @ chosen
    users = np.diff(item_offsets)
    similarities = shared / np.maximum(np.sqrt(np.outer(users, users)) + shrinkage, 1e-300)
    np.fill_diagonal(similarities, 0)
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :num_neighbours]
    best = np.take_along_axis(similarities, order, axis=1)
    ids = np.where(best > 0, order, -1)
    missing = num_neighbours - ids.shape[1]
    return np.pad(ids, ((0, 0), (0, missing)), constant_values=-1), np.pad(
        best, ((0, 0), (0, missing))
    )
