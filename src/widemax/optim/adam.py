"""Adam on the rows that a gradient touches, each row by a clock of its own."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from widemax.kernels.optim import rows as kernel
from widemax.optim.base import Group, RowOptimizer, State, per_row, zeros
from widemax.optim.rows import GroupedRows, arithmetic_dtype, as_rows
from widemax.validation import check_fraction, check_positive


class RowAdam(RowOptimizer):
    """Adam that touches only the rows of a sparse gradient, each row by a clock of its own.

    Formula: for each touched row, t ← t + 1; m ← β1·m + (1 − β1)·g; v ← β2·v + (1 − β2)·g²;
    w ← w − lr·m / (1 − β1^t) / (√(v / (1 − β2^t)) + eps), with g the gradient (duplicates summed
    first) + weight_decay·w, of touched rows only. t counts the steps that touched *this row*: it is
    the Adam of those steps alone. ``torch.optim.SparseAdam`` corrects by the number of all steps,
    so that there the first update of a rare row is about (1 − β1)/√(1 − β2) = 3 times too large.

    Shapes: parameters [V, ...] of float32, float64 or bfloat16; state ``exp_avg`` and
    ``exp_avg_sq`` of the same shape, float32 (float64 for float64); ``step`` [V] of a parameter
    whose first gradient is sparse, else one clock [], as in ``torch.optim.Adam``. The shape then
    decides the rule for good: a dense gradient advances every row's clock; a sparse one of a dense
    parameter advances the one clock and still touches its own rows only.

    Cost: O(nnz·(D + log nnz)) a step, whatever V is; 2·V·D + V numbers of state, whose memory is
    paid as its pages are touched.

    Reference: Kingma & Ba 2015; Gupta et al. 2015 (stochastic rounding of bfloat16).

    Use when: the table is trained together with an encoder that wants Adam. Avoid when: memory is
    short (``RowwiseAdagrad``) or rows untouched for long should forget their momentum.

    >>> import torch
    >>> table = torch.nn.Embedding(1000, 4, sparse=True)
    >>> before = table.weight.detach().clone()
    >>> optimiser = RowAdam(table.parameters(), lr=0.5)
    >>> for ids in ([7], [7], [3]):
    ...     optimiser.zero_grad()
    ...     table(torch.tensor(ids)).sum().backward()
    ...     optimiser.step()
    >>> (table.weight.detach() - before)[[3, 7, 8], 0].round(decimals=4).tolist()
    [-0.5, -1.0, 0.0]
    """

    _state_names = ("exp_avg", "exp_avg_sq", "step")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        if not isinstance(group["betas"], tuple | list) or len(group["betas"]) != 2:
            raise ValueError(f"betas must be two numbers, got {group['betas']!r}")
        for i, beta in enumerate(group["betas"]):
            check_fraction(f"betas[{i}]", beta)
        check_positive("eps", group["eps"])

    def _new_state(self, parameter: Tensor, grad: Tensor, group: Group) -> State:
        dtype = arithmetic_dtype(parameter)
        row_clocks = zeros(parameter.shape[:1], parameter, torch.int64)
        return {
            "exp_avg": zeros(parameter.shape, parameter, dtype),
            "exp_avg_sq": zeros(parameter.shape, parameter, dtype),
            "step": row_clocks if grad.is_sparse else torch.zeros((), dtype=torch.int64),
        }

    def _apply(self, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        (beta1, beta2), step = group["betas"], state["step"]
        if step.dim():
            step += 1
        # float64: in float32, 1 − 0.999 would have an error of 6e-5 of itself.
        rate = float(group["lr"]) / (1 - beta1 ** step.double())
        scale = (1 - beta2 ** step.double()).rsqrt()
        rate, scale = (per_row(x, weight) if x.dim() else x for x in (rate, scale))
        mean = state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        deviation = square.sqrt().mul_(scale.to(square.dtype)).add_(group["eps"])
        weight -= rate.to(weight.dtype) * mean / deviation

    def _has_kernel(self, parameter: Tensor, state: State) -> bool:
        return state["step"].dim() == 1 and super()._has_kernel(parameter, state)

    def _run_kernel(self, parameter: Tensor, rows: GroupedRows, state: State, group: Group) -> None:
        beta1, beta2 = group["betas"]
        kernel.adam(
            as_rows(parameter),
            *rows,
            as_rows(state["exp_avg"]),
            as_rows(state["exp_avg_sq"]),
            state["step"].numpy(),
            float(group["lr"]),
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
        )
