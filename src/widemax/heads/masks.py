"""Which candidates must not compete in which row."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.kernels.sampling.distinct import rows_among

_FEW = 4


def hits_by_class(ids: Tensor, classes: Tensor) -> Tensor:
    """Mark the candidates of each row that are among the row's given classes, every copy.

    Formula: hits[b, s] = ids[s] ∈ classes[b].

    Shapes: ids [S] or [B, S]; classes [B] or [B, H], -1 for nothing → bool [B, S].

    Cost: O(B·S·H) for H ≤ 4, else O(B·S·log H). For ids [S] and classes [B] only the rows that
    have a hit are looked at closely: O((B + S)·log S) and one bool for each candidate.

    Reference: none.

    Use when: removing targets (accidental hits) or a user's history from the negatives. Avoid
    when: two rows share a user but not a class (``hits_by_query``).

    >>> import torch
    >>> hits_by_class(torch.tensor([3, 5, 3]), torch.tensor([3, 4])).int().tolist()
    [[1, 0, 1], [0, 0, 0]]
    """
    if ids.dim() == 1 and classes.dim() == 1 and len(ids):
        return _hits_of_shared(ids, classes)
    classes = classes if classes.dim() == 2 else classes[:, None]
    ids = ids.expand(len(classes), ids.shape[-1])
    if classes.shape[1] == 0:
        return torch.zeros_like(ids, dtype=torch.bool)
    if classes.shape[1] <= _FEW:
        hits = ids == classes[:, :1]
        for column in classes[:, 1:].unbind(1):
            hits |= ids == column[:, None]
        return hits
    ordered = classes.sort(dim=-1).values
    place = torch.searchsorted(ordered, ids.contiguous()).clamp(max=classes.shape[1] - 1)
    return ordered.gather(1, place) == ids


def _hits_of_shared(ids: Tensor, classes: Tensor) -> Tensor:
    """Return the hits of one class a row among shared candidates, which most rows do not have."""
    rows = _rows_with_hits(ids, classes)
    if len(rows) == 0:
        return torch.zeros_like(ids, dtype=torch.bool).expand(len(classes), -1)
    hits = torch.zeros(len(classes), len(ids), dtype=torch.bool, device=ids.device)
    hits[rows] = ids == classes[rows, None]
    return hits


def _rows_with_hits(ids: Tensor, classes: Tensor) -> Tensor:
    """Return the rows whose class is among the ids; a class of -1 is none."""
    if ids.device.type == "cpu" and not torch.compiler.is_compiling():
        return torch.from_numpy(rows_among(classes.numpy(), ids.numpy()))
    return torch.isin(classes, ids).nonzero()[:, 0]


def hits_by_query(rows: Tensor, query_ids: Tensor) -> Tensor:
    """Mark the candidates that another example of the same query brought into the batch.

    Formula: hits[b, s] = query_ids[rows[s]] == query_ids[b], where rows[s] ≥ 0.

    Shapes: rows [S] or [B, S] (``Candidates.rows``); query_ids [B] → bool [B, S].

    Cost: O(B·S).

    Reference: none.

    Use when: the same user stands twice in the batch: what he chose there is no negative here.
    Avoid when: candidates do not come from the batch.

    >>> import torch
    >>> hits_by_query(torch.tensor([0, 1, 2, -1]), torch.tensor([7, 8, 7])).int().tolist()
    [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0]]
    """
    brought_by = query_ids[rows.clamp(min=0)]
    return (brought_by == query_ids[:, None]) & (rows >= 0)
