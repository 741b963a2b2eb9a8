"""How many users each two items share, from sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit, prange
from widemax.kernels.threads import num_blocks

# Choices of users that are worth a thread of their own.
_CHOICES_A_THREAD = 4096

_Ids = NDArray[np.int64]
_Floats = NDArray[np.float64]


def lower_gram(
    user_offsets: _Ids,
    user_items: _Ids,
    user_weights: _Floats,
    item_offsets: _Ids,
    item_users: _Ids,
    item_weights: _Floats,
) -> _Floats:
    """Return G_ij = Σ over users of w_ui·w_uj for j ≤ i, 0 above the diagonal, [V, V].

    Given are sets end to end, the items of each user in rising order, and the users of each item,
    each with its weights. Takes O(Σ over users of their items squared).

    >>> one = np.ones(3)
    >>> lower_gram(np.array([0, 2, 3]), np.array([0, 1, 1]), one, np.array([0, 1, 3]),
    ...     np.array([0, 0, 1]), one).tolist()
    [[1.0, 0.0], [1.0, 2.0]]
    """
    given = (user_offsets, user_items, user_weights, item_offsets, item_users, item_weights)
    gram = np.zeros((len(item_offsets) - 1, len(item_offsets) - 1))
    threads = num_blocks(len(item_users), smallest=_CHOICES_A_THREAD)
    if threads == 1:
        _fill_rows(0, 1, *given, gram)
    else:
        _fill_in_turns(threads, *given, gram)
    return gram


@njit(cache=True, nogil=True, parallel=True)
def _fill_in_turns(
    threads: int,
    user_offsets: _Ids,
    user_items: _Ids,
    user_weights: _Floats,
    item_offsets: _Ids,
    item_users: _Ids,
    item_weights: _Floats,
    gram: _Floats,
) -> None:
    # Items in turn: later ones have longer rows, and first ones are often the popular ones.
    for part in prange(threads):
        _fill_rows(
            part, threads, user_offsets, user_items, user_weights, item_offsets, item_users,
            item_weights, gram,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _fill_rows(
    start: int,
    step: int,
    user_offsets: _Ids,
    user_items: _Ids,
    user_weights: _Floats,
    item_offsets: _Ids,
    item_users: _Ids,
    item_weights: _Floats,
    gram: _Floats,
) -> None:
    for item in range(start, len(gram), step):
        row = gram[item]
        for place in range(item_offsets[item], item_offsets[item + 1]):
            user, weight = item_users[place], item_weights[place]
            for other_place in range(user_offsets[user], user_offsets[user + 1]):
                other = user_items[other_place]
                if other > item:
                    break
                row[other] += weight * user_weights[other_place]
