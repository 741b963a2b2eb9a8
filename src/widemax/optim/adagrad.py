"""Adagrad on the rows that a gradient touches, with a sum per element or one per row."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from widemax.kernels.optim import rows as kernel
from widemax.kernels.threads import num_blocks
from widemax.optim.base import Group, RowOptimizer, State, decay_of, per_row, zeros
from widemax.optim.rows import GroupedRows, arithmetic_dtype, as_rows
from widemax.validation import check_not_negative, check_positive


class RowAdagrad(RowOptimizer):
    """Adagrad that touches only the rows of a sparse gradient (Duchi, Hazan & Singer 2011).

    s ← s + g²; w ← w − lr·g / (√s + eps), element by element; s, the state ``sum``, starts at
    ``initial_accumulator_value``. Memory for the state is paid as its pages are touched, at once
    if that value is not 0. Rare classes learn as fast as frequent ones.

    >>> import torch
    >>> table = torch.nn.Embedding(1000, 4, sparse=True)
    >>> before = table.weight.detach().clone()
    >>> optimiser = RowAdagrad(table.parameters(), lr=0.5)
    >>> table(torch.tensor([7, 7, 3])).sum().backward()
    >>> optimiser.step()
    >>> (table.weight.detach() - before)[[3, 7, 8], 0].round(decimals=4).tolist()
    [-0.5, -0.5, 0.0]
    """

    _state_names = ("sum",)

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        eps: float = 1e-10,
        initial_accumulator_value: float = 0.0,
        weight_decay: float = 0.0,
        *,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "eps": eps,
                "initial_accumulator_value": initial_accumulator_value,
                "weight_decay": weight_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        check_positive("eps", group["eps"])
        check_not_negative("initial_accumulator_value", group["initial_accumulator_value"])

    def _new_state(self, parameter: Tensor, grad: Tensor, group: Group) -> State:
        total = zeros(self._sum_shape(parameter, grad), parameter, arithmetic_dtype(parameter))
        if group["initial_accumulator_value"]:
            total.fill_(group["initial_accumulator_value"])
        return {"sum": total}

    def _sum_shape(self, parameter: Tensor, grad: Tensor) -> torch.Size:
        return parameter.shape

    def _apply(self, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        total = state["sum"].addcmul_(gradient, gradient)
        weight.addcdiv_(gradient, total.sqrt().add_(group["eps"]), value=-float(group["lr"]))

    def _run_kernel(self, parameter: Tensor, rows: GroupedRows, state: State, group: Group) -> None:
        sums = as_rows(state["sum"])
        kernel.adagrad(as_rows(parameter), *rows, sums, *_kernel_options(state, group))


class RowwiseAdagrad(RowAdagrad):
    """Adagrad with one value of state per row: a rate for each class, at 1/D of the memory.

    s_r ← s_r + Σ_d g_rd² / D; w_r ← w_r − lr·g_r / (√s_r + eps), as FBGEMM's EXACT_ROWWISE_ADAGRAD;
    s_r starts at ``initial_accumulator_value``. The usual choice for a large table of class vectors
    or embeddings; where columns have gradients of very different size, ``RowAdagrad`` is better.

    The first gradient of a parameter decides the shape of ``sum``, and so the rule, for good: if it
    is sparse, one sum per row, by which a later dense gradient touches all rows; else one sum per
    element, as in ``RowAdagrad``, also for later sparse gradients.

    >>> import torch
    >>> table = torch.nn.Embedding(1000, 4, sparse=True)
    >>> optimiser = RowwiseAdagrad(table.parameters(), lr=0.5)
    >>> (table(torch.tensor([7])) @ torch.tensor([1.0, 1.0, 1.0, 5.0])).sum().backward()
    >>> optimiser.step()
    >>> optimiser.state[table.weight]["sum"][[6, 7]].tolist()
    [0.0, 7.0]
    """

    def _sum_shape(self, parameter: Tensor, grad: Tensor) -> torch.Size:
        return parameter.shape[:1] if grad.is_sparse else parameter.shape

    def _fits(self, name: str, value: Tensor, parameter: Tensor) -> bool:
        one_per_row = name == "sum" and value.shape == parameter.shape[:1]
        return one_per_row or super()._fits(name, value, parameter)

    def _apply(self, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        if state["sum"].shape == weight.shape:
            super()._apply(weight, gradient, state, group)
        else:
            total = state["sum"].add_(gradient.flatten(1).square().mean(1))
            rates = float(group["lr"]) / (total.sqrt() + group["eps"])
            weight -= per_row(rates, weight) * gradient

    def _run_kernel(self, parameter: Tensor, rows: GroupedRows, state: State, group: Group) -> None:
        if state["sum"].shape == parameter.shape:
            super()._run_kernel(parameter, rows, state, group)
            return
        sums, options = state["sum"].numpy(), _kernel_options(state, group)
        arrays = (as_rows(parameter), *rows, sums, *options)
        # Blocks of at least 2^16 values: below, waking a thread costs more than it saves.
        blocks = num_blocks(rows.values.size, smallest=2**16)
        if blocks == 1:
            kernel.rowwise_adagrad(*arrays)
        else:
            kernel.rowwise_adagrad_in_blocks(kernel.block_edges(rows.ids, blocks), *arrays)


def _kernel_options(state: State, group: Group) -> tuple[float, float, float, float, int]:
    step = int(state["step"]) if "step" in state else 0
    return float(group["lr"]), group["eps"], *decay_of(group), step
