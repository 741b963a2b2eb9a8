"""The k best classes of each row, kept while tiles of scores arrive, classes in rising order.

Of equal scores the smaller id comes first: the result does not depend on the tiles.
"""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.candidates import TopK
from widemax.devices import by_kernels
from widemax.kernels.compiling import is_loaded
from widemax.kernels.heads import topk as kernel
from widemax.validation import ABSENT

_FEW = 4


def best_keeper(
    queries: Tensor, k: int, exclude: Tensor | None = None
) -> KernelKeeper | TorchKeeper:
    """Return a keeper of the k best for each query: the kernel on the CPU, torch elsewhere.

    It never keeps what a row excludes, [B, E] with -1 for nothing. A few queries do not wait for
    Numba, which takes longer to load than they take: both keepers find the same.
    """
    if len(queries) <= _FEW and not is_loaded():
        return TorchKeeper(queries, k, exclude)
    if by_kernels(queries) and queries.dtype in (torch.float32, torch.float64):
        return KernelKeeper(queries, k, exclude)
    return TorchKeeper(queries, k, exclude)


class KernelKeeper:
    """Keeps the best on the CPU: torch takes the maxima of blocks, a kernel what stands out.

    After the first tiles hardly a block holds a score above the k-th best so far, so that only
    the maxima cost a pass over the scores. torch takes them fastest, and the kernel continues in
    OpenMP's threads, which are still awake from that. Excluded classes are looked up when they
    would enter: removing them from every tile would cost more.
    """

    def __init__(self, queries: Tensor, k: int, exclude: Tensor | None = None) -> None:
        self.k = k
        dtype = queries.new_empty(0).numpy().dtype
        excluded = None if exclude is None else exclude.numpy()
        self.kept = kernel.nothing_kept(len(queries), k, dtype, excluded)

    def offer(self, rows: slice, first_id: int, scores: Tensor) -> None:
        """Take the scores of classes ``first_id`` and following for these rows."""
        whole = scores.shape[1] // kernel.BLOCK
        blocks = scores[:, : whole * kernel.BLOCK].view(len(scores), whole, kernel.BLOCK)
        maxima, kept = blocks.amax(-1).numpy(), self.kept.rows(rows)
        if not kernel.offer(scores.numpy(), maxima, first_id, self.k, kept):
            raise _nan_error()

    def result(self) -> TopK:
        """Return the best of all offered, best first."""
        kernel.finish(self.k, self.kept)
        ids = torch.from_numpy(self.kept.ids)[:, : self.k]
        scores = torch.from_numpy(self.kept.scores)[:, : self.k]
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        return TopK(ids=ids.gather(1, order), scores=scores)


class TorchKeeper:
    """Keeps the best on any device, in plain torch: the reference of ``KernelKeeper``."""

    def __init__(self, queries: Tensor, k: int, exclude: Tensor | None = None) -> None:
        self.scores = queries.new_full((len(queries), k), -torch.inf)
        self.ids = torch.full((len(queries), k), ABSENT, device=queries.device)
        self.exclude = exclude

    def offer(self, rows: slice, first_id: int, scores: Tensor) -> None:
        """Take the scores of classes ``first_id`` and following for these rows."""
        k = self.scores.shape[1]
        if self.exclude is not None:
            columns = self.exclude[rows] - first_id
            here = (columns >= 0) & (columns < scores.shape[1])
            excluded = (here.nonzero()[:, 0], columns[here])
            scores = scores.index_put(excluded, scores.new_tensor(-torch.inf))
        found, columns = _best_columns(scores, min(k, scores.shape[1]))
        # Those kept come first: they have the smaller ids, and the sort is stable.
        both = torch.cat([self.scores[rows], found], dim=1)
        ids = torch.cat([self.ids[rows], columns + first_id], dim=1)
        ranked, order = both.sort(dim=1, descending=True, stable=True)
        self.scores[rows] = ranked[:, :k]
        self.ids[rows] = ids.gather(1, order[:, :k])

    def result(self) -> TopK:
        """Return the best of all offered, best first."""
        if bool(self.scores.isnan().any()):
            raise _nan_error()
        ids = self.ids.masked_fill(self.scores == -torch.inf, ABSENT)
        return TopK(ids=ids, scores=self.scores)


def _best_columns(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best scores of each row and their columns, equal ones by the smaller column."""
    found = scores.topk(min(k + 1, scores.shape[1]))
    columns = found.indices[:, :k].sort(dim=1).values
    # Where the next one equals the k-th, topk has taken any of them.
    last, following = found.values[:, k - 1], found.values[:, k:]
    tied = (last[:, None] == following) & (following > -torch.inf)
    if bool(tied.any()):
        rows = tied[:, 0].nonzero()[:, 0]
        columns[rows] = scores[rows].argsort(dim=1, descending=True, stable=True)[:, :k]
        columns = columns.sort(dim=1).values
    values, order = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)


def _nan_error() -> ValueError:
    return ValueError("scores hold NaN: check hidden and the class vectors")
