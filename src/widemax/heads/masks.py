"""Which candidates must not compete in which row."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from widemax.candidates import Candidates
from widemax.devices import by_kernels
from widemax.kernels.sampling.distinct import mark_among, mark_hits, rows_among

_FEW = 4
_NEARLY_ALL = 1 - 2.0**-40


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
    if ids.dim() == 1 and by_kernels(ids, classes):
        return torch.from_numpy(mark_among(classes.numpy(), ids.numpy()))
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
    if not by_kernels(ids, classes):
        return ids == classes[:, None]
    rows = rows_among(classes.numpy(), ids.numpy())
    if not len(rows):
        return torch.zeros_like(ids, dtype=torch.bool).expand(len(classes), -1)
    hits = torch.zeros(len(classes), len(ids), dtype=torch.bool)
    mark_hits(hits.numpy(), rows, classes.numpy(), ids.numpy())
    return hits


def hits_by_query(
    rows: Tensor, query_ids: Tensor, query_ids_of_rows: Tensor | None = None
) -> Tensor:
    """Mark the candidates that another example of the same query brought into the batch.

    hits[b, s] = query_ids[rows[s]] == query_ids[b], where rows[s] ≥ 0, for ``Candidates.rows`` [S]
    or [B, S] and query_ids [B] → bool [B, S]: what a user chose in one example is no negative in
    their others. Where rows of other batches count too, ``query_ids_of_rows`` are those of all.

    >>> hits_by_query(torch.tensor([0, 1, 2, -1]), torch.tensor([7, 8, 7])).int().tolist()
    [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0]]
    """
    of_rows = query_ids if query_ids_of_rows is None else query_ids_of_rows
    brought_by = of_rows[rows.clamp(min=0)]
    return (brought_by == query_ids[:, None]) & (rows >= 0)


def own_rows(rows: Tensor, num_rows: int) -> Tensor:
    """Mark the candidates that each row brought into the batch itself, bool [B, S].

    >>> own_rows(torch.tensor([0, 1, 1, -1]), 2).int().tolist()
    [[1, 0, 0, 0], [0, 1, 1, 0]]
    """
    return rows == torch.arange(num_rows, device=rows.device)[:, None]


def without_own_rows(candidates: Candidates, own: Tensor) -> Candidates:
    """Return the candidates with the expected counts of those that are not a row's own.

    Q(y) − m·p(y) for a row that brought m of them, [B, S]: the targets of the other rows are
    independent of it, its own is not.

    >>> from widemax.sampling import InBatchSampler, UniformSampler
    >>> candidates = InBatchSampler(4, UniformSampler(4)).sample(None, torch.tensor([1, 0, 1]))
    >>> others = without_own_rows(candidates, own_rows(candidates.rows, 3))
    >>> others.target_log_expected_count.exp().round(decimals=4).tolist()  # of two, 1/4 each
    [0.5, 0.5, 0.5]
    """
    row_log_prob, target_log_prob = candidates.row_log_prob, candidates.target_row_log_prob
    if row_log_prob is None or target_log_prob is None:
        raise ValueError(
            "sampler must say how likely a class is to be the target of one row (row_log_prob) "
            "for an objective that keeps hits; a mixture does if one of its samplers takes "
            "candidates from the batch, not several"
        )
    number = own.sum(-1, keepdim=True)
    targets = candidates.target_log_expected_count
    target_number = number if targets.dim() == 2 else number[:, 0]
    return replace(
        candidates,
        log_expected_count=_less(candidates.log_expected_count, row_log_prob, number),
        target_log_expected_count=_less(targets, target_log_prob, target_number),
    )


def _less(log_count: Tensor, log_prob: Tensor, number: Tensor) -> Tensor:
    """Return log(Q − number · p); above −inf where nothing is left, which has no loss anyway."""
    share = number * (log_prob - log_count).exp()
    # A class of probability 0 has no count to take from: −inf less −inf.
    share = share.masked_fill(torch.isneginf(log_prob), 0.0).clamp(max=_NEARLY_ALL)
    return log_count + torch.log1p(-share)
