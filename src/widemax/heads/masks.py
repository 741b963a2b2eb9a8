"""Which candidates must not compete in which row."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.kernels.sampling.distinct import rows_among

_FEW = 4


def hits_by_class(ids: Tensor, classes: Tensor) -> Tensor:
    """Mark the candidates of each row that are among the row's given classes, every copy.

    hits[b, s] = ids[s] ∈ classes[b], for ids [S] or [B, S] and classes [B] or [B, H], -1 for
    nothing → bool [B, S]: targets (accidental hits) or a user's history among the negatives.

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
    """Return the hits of one class a row among shared candidates, which most rows do not have.

    Only the rows that have one are looked at closely: O((B + S)·log S).
    """
    if ids.device.type == "cpu" and not torch.compiler.is_compiling():
        rows = torch.from_numpy(rows_among(classes.numpy(), ids.numpy()))
    else:
        rows = torch.isin(classes, ids).nonzero()[:, 0]
    if len(rows) == 0:
        return torch.zeros_like(ids, dtype=torch.bool).expand(len(classes), -1)
    hits = torch.zeros(len(classes), len(ids), dtype=torch.bool, device=ids.device)
    hits[rows] = ids == classes[rows, None]
    return hits


def hits_by_query(rows: Tensor, query_ids: Tensor) -> Tensor:
    """Mark the candidates that another example of the same query brought into the batch.

    hits[b, s] = query_ids[rows[s]] == query_ids[b], where rows[s] ≥ 0, for ``Candidates.rows`` [S]
    or [B, S] and query_ids [B] → bool [B, S]: what a user chose in one example is no negative in
    their others.

    >>> hits_by_query(torch.tensor([0, 1, 2, -1]), torch.tensor([7, 8, 7])).int().tolist()
    [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0]]
    """
    brought_by = query_ids[rows.clamp(min=0)]
    return (brought_by == query_ids[:, None]) & (rows >= 0)
