"""Adagrad on the rows that a gradient touches, with a sum per element or one per row."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from widemax.kernels.optim import rows as kernel
from widemax.kernels.threads import num_blocks
from widemax.optim.base import Group, RowOptimizer, State, per_row, zeros
from widemax.optim.rows import GroupedRows, arithmetic_dtype, as_rows
from widemax.validation import check_not_negative, check_positive


class RowAdagrad(RowOptimizer):
    """Adagrad that touches only the rows of a sparse gradient.

    Formula: s ← s + g²; w ← w − lr·g / (√s + eps), element by element, with g the gradient
    (duplicates summed first) + weight_decay·w, of touched rows only; s begins at
    ``initial_accumulator_value``. A dense gradient is applied as in ``torch.optim.Adagrad``.

    Shapes: parameters [V, ...] of float32, float64 or bfloat16; state ``sum`` of the same shape,
    float32 (float64 for float64).

    Cost: O(nnz·(D + log nnz)) a step, whatever V is; V·D numbers of state, whose memory is paid
    as its pages are touched (at once if ``initial_accumulator_value`` is not 0).

    Reference: Duchi, Hazan & Singer 2011; Gupta et al. 2015 (stochastic rounding of bfloat16).

    Use when: rare classes should learn as fast as frequent ones. Avoid when: memory is short
    (``RowwiseAdagrad``).

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
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "eps": eps,
                "initial_accumulator_value": initial_accumulator_value,
                "weight_decay": weight_decay,
            },
        )

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        check_positive("eps", group["eps"])
        check_not_negative("initial_accumulator_value", group["initial_accumulator_value"])

    def _new_state(self, parameter: Tensor, grad: Tensor, group: Group) -> State:
        return {"sum": _first_sum(parameter.shape, parameter, group)}

    def _apply(self, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        total = state["sum"].addcmul_(gradient, gradient)
        weight.addcdiv_(gradient, total.sqrt().add_(group["eps"]), value=-float(group["lr"]))

    def _run_kernel(self, parameter: Tensor, rows: GroupedRows, state: State, group: Group) -> None:
        kernel.adagrad(
            as_rows(parameter), *rows, as_rows(state["sum"]), *_numbers(state, group)
        )  # fmt: skip


class RowwiseAdagrad(RowAdagrad):
    """Adagrad with one number of state per row: a rate for each class, at 1/D of the memory.

    Formula: s_r ← s_r + Σ_d g_rd² / D; w_r ← w_r − lr·g_r / (√s_r + eps), with g_r the gradient of
    row r (duplicates summed first) + weight_decay·w_r, of touched rows only; s_r begins at
    ``initial_accumulator_value``.

    Shapes: parameters [V, ...] of float32, float64 or bfloat16; state ``sum`` [V] of a parameter
    whose first gradient is sparse, else of the parameter's shape, as in ``RowAdagrad``. The shape
    then decides the rule for good: a dense gradient of a table with one sum per row touches all
    rows by the rule above, a sparse one of a dense parameter is applied element by element.

    Cost: O(nnz·(D + log nnz)) a step, whatever V is; V numbers of state.

    Reference: Duchi, Hazan & Singer 2011; per row as FBGEMM's EXACT_ROWWISE_ADAGRAD; Gupta et al.
    2015 (stochastic rounding of bfloat16).

    Use when: a large table of class vectors or embeddings is trained; the usual choice. Avoid when:
    single columns have gradients of very different size (``RowAdagrad``).

    >>> import torch
    >>> table = torch.nn.Embedding(1000, 4, sparse=True)
    >>> optimiser = RowwiseAdagrad(table.parameters(), lr=0.5)
    >>> (table(torch.tensor([7])) @ torch.tensor([1.0, 1.0, 1.0, 5.0])).sum().backward()
    >>> optimiser.step()
    >>> optimiser.state[table.weight]["sum"][[6, 7]].tolist()
    [0.0, 7.0]
    """

    def _new_state(self, parameter: Tensor, grad: Tensor, group: Group) -> State:
        shape = parameter.shape[:1] if grad.is_sparse else parameter.shape
        return {"sum": _first_sum(shape, parameter, group)}

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
        arrays = (as_rows(parameter), *rows, state["sum"].numpy(), *_numbers(state, group))
        # Blocks of at least 2^16 numbers: below, waking a thread costs more than it saves.
        blocks = num_blocks(rows.values.size, smallest=2**16)
        if blocks == 1:
            kernel.rowwise_adagrad(*arrays)
        else:
            kernel.rowwise_adagrad_in_blocks(kernel.block_edges(rows.ids, blocks), *arrays)


def _first_sum(shape: torch.Size, parameter: Tensor, group: Group) -> Tensor:
    total = zeros(shape, parameter, arithmetic_dtype(parameter))
    if group["initial_accumulator_value"]:
        total.fill_(group["initial_accumulator_value"])
    return total


def _numbers(state: State, group: Group) -> tuple[float, float, float, int]:
    step = int(state["step"]) if "step" in state else 0
    return float(group["lr"]), group["eps"], group["weight_decay"], step
