"""The items that share most users with each item."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit

_Ids = NDArray[np.int64]
_Floats = NDArray[np.float64]


@njit(cache=True)
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


@njit(cache=True)
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
    shared = np.zeros(num_items, np.int64)
    touched = np.empty(num_items, np.int64)
    for item in range(num_items):
        count = 0
        for place in range(item_offsets[item], item_offsets[item + 1]):
            user = item_users[place]
            for other_place in range(user_offsets[user], user_offsets[user + 1]):
                other = user_items[other_place]
                if other != item:
                    if shared[other] == 0:
                        touched[count] = other
                        count += 1
                    shared[other] += 1
        own_users = item_offsets[item + 1] - item_offsets[item]
        for n in range(count):
            other = touched[n]
            users = float(item_offsets[other + 1] - item_offsets[other])
            similarity = shared[other] / (np.sqrt(own_users * users) + shrinkage)
            _insert(ids[item], similarities[item], other, similarity)
            shared[other] = 0
    return ids, similarities


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
