"""The vectors of padded contexts."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.scoring.rows import gather_rows
from widemax.validation import ABSENT


def context_vectors(
    table: Tensor, context: Tensor, absent_vector: Tensor, *, sparse: bool
) -> Tensor:
    """Return the row of each class in a context, and one given vector at each -1.

    Formula: out[b, h] = table[context[b, h]], or ``absent_vector`` where context[b, h] = -1.

    Shapes: table [V, D], context int64 [B, H], absent_vector [D] → [B, H, D] in its dtype.

    Cost: O(B·H·D). Only classes that are there are looked up: a sparse gradient of the table names
    no row for padding, and an optimiser moves none for it.

    Reference: none.

    Use when: padding has a vector of its own, or none. Avoid when: vectors are averaged
    (``BagEncoder``).

    >>> import torch
    >>> table = torch.arange(6.0).view(3, 2)
    >>> context_vectors(table, torch.tensor([[-1, 2]]), torch.zeros(2), sparse=False).tolist()
    [[[0.0, 0.0], [4.0, 5.0]]]
    """
    known = context >= 0
    rows = gather_rows(table, context[known], sparse=sparse).to(absent_vector.dtype)
    absent = absent_vector.expand(*context.shape, -1)
    return absent.masked_scatter(known[..., None], rows)


def moved_left(context: Tensor, lengths: Tensor) -> Tensor:
    """Return contexts with their padding on the right, no wider than the longest."""
    longest = int(lengths.max()) if len(lengths) else 0
    steps = torch.arange(longest, device=context.device)
    places = steps + (context.shape[1] - lengths)[:, None]
    moved = context.gather(1, places.clamp(max=max(context.shape[1] - 1, 0)))
    return torch.where(steps < lengths[:, None], moved, ABSENT)
