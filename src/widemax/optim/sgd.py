"""Stochastic gradient descent on the rows that a gradient touches."""

from __future__ import annotations

from torch import Tensor
from torch.optim.optimizer import ParamsT

from widemax.kernels.optim import rows as kernel
from widemax.optim.base import Group, RowOptimizer, State, decay_of
from widemax.optim.rows import GroupedRows, as_rows


class RowSGD(RowOptimizer):
    """Stochastic gradient descent that touches only the rows of a sparse gradient.

    w_r ← w_r − lr·(g_r + weight_decay·w_r) for each row r of the gradient, duplicates summed first.
    Decoupled decay is the same here. It keeps no state. The rate is the same for all rows: where
    frequent and rare classes share a table, Adagrad gives each row a rate of its own.

    >>> import torch
    >>> table = torch.nn.Embedding(1000, 4, sparse=True)
    >>> before = table.weight.detach().clone()
    >>> optimiser = RowSGD(table.parameters(), lr=0.5)
    >>> table(torch.tensor([7, 7, 3])).sum().backward()
    >>> optimiser.step()
    >>> (table.weight.detach() - before)[[3, 7, 8], 0].round(decimals=4).tolist()
    [-0.5, -1.0, 0.0]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        *,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    def _apply(self, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        weight -= float(group["lr"]) * gradient

    def _run_kernel(self, parameter: Tensor, rows: GroupedRows, state: State, group: Group) -> None:
        step = int(state["step"]) if state else 0
        kernel.sgd(as_rows(parameter), *rows, float(group["lr"]), *decay_of(group), step)
