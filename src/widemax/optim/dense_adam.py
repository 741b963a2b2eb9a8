"""Adam on all rows of a table, whichever a gradient touches."""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

import torch

from widemax.optim.adam import RowAdam


class DenseAdam(RowAdam):
    """torch's Adam, which also takes sparse gradients: rows that they leave out have gradient 0.

    The momentum of a row goes on while no batch uses it, and its mean square shrinks: a row that a
    share p of the steps touch moves by about lr/√p for each of them, by ``RowAdam`` by lr. So rare
    classes learn faster, in passes over all rows at each step: O(V·D) instead of O(nnz·D). All rows
    decay at each step, too.

    >>> table = torch.nn.Embedding(1000, 4, sparse=True)
    >>> before = table.weight.detach().clone()
    >>> optimiser = DenseAdam(table.parameters(), lr=0.5)
    >>> for ids in ([7], [3]):
    ...     optimiser.zero_grad()
    ...     table(torch.tensor(ids)).sum().backward()
    ...     optimiser.step()
    >>> moved = (table.weight.detach() - before)[[3, 7, 8], 0]
    >>> [round(each, 3) for each in moved.tolist()]
    [-0.372, -0.835, 0.0]
    """

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient; return what ``closure`` returns, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.to_dense()
        super().step()
        return loss
