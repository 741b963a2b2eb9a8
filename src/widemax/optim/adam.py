"""Adam on the rows that a gradient touches, each row by its own step count."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from widemax.devices import by_kernels
from widemax.kernels.optim import rows as kernel
from widemax.optim.base import Group, RowOptimizer, State, decay_of, per_row, zeros
from widemax.optim.rows import GroupedRows, arithmetic_dtype, as_rows, check_gradient
from widemax.validation import check_fraction, check_positive


class RowAdam(RowOptimizer):
    """Adam that touches only the rows of a sparse gradient, each row by its own step count.

    For each touched row, t ← t + 1; m ← β1·m + (1 − β1)·g; v ← β2·v + (1 − β2)·g²;
    w ← w − lr·m / (1 − β1^t) / (√(v / (1 − β2^t)) + eps), after Kingma & Ba (2015). t counts the
    steps that touched *this row*. ``torch.optim.SparseAdam`` corrects by the number of all steps,
    so that there the first update of a rare row is about (1 − β1)/√(1 − β2) = 3 times too large.
    Rows untouched for long keep their momentum.

    The first gradient of a parameter decides the shape of ``step``, and so the rule, for good: if
    it is sparse, one count per row, all of which a later dense gradient advances; else one count,
    as in ``torch.optim.Adam``, and a later sparse gradient still touches its own rows only.

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
        *,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
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
        one_per_row = zeros(parameter.shape[:1], parameter, torch.int64)
        return {
            "exp_avg": zeros(parameter.shape, parameter, dtype),
            "exp_avg_sq": zeros(parameter.shape, parameter, dtype),
            "step": one_per_row if grad.is_sparse else torch.zeros((), dtype=torch.int64),
        }

    def _apply(self, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        (beta1, beta2), step = group["betas"], state["step"]
        mean = state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        if not step.dim():
            count = int(step)
            deviation = square.sqrt().mul_((1 - beta2**count) ** -0.5).add_(group["eps"])
            weight.addcdiv_(mean, deviation, value=-float(group["lr"]) / (1 - beta1**count))
            return
        step += 1
        # float64: in float32, 1 − 0.999 would have an error of 6e-5 of itself.
        rate = float(group["lr"]) / (1 - beta1 ** step.double())
        scale = (1 - beta2 ** step.double()).rsqrt()
        rate, scale = (per_row(x, weight) for x in (rate, scale))
        deviation = square.sqrt().mul_(scale.to(square.dtype)).add_(group["eps"])
        weight -= rate.to(weight.dtype) * mean / deviation

    def _update_together(self, parameters: list[Tensor], group: Group) -> list[Tensor]:
        """Have torch's Adam update those of dense gradients, mostly so small that calls count."""
        others: list[Tensor] = []
        given: defaultdict[torch.dtype, list[tuple[Tensor, Tensor, State]]] = defaultdict(list)
        takes = by_kernels()
        for parameter in parameters:
            grad = parameter.grad
            if grad is None:
                continue
            if not takes or grad.is_sparse or not _torch_takes(parameter, grad):
                others.append(parameter)
                continue
            state = self.state[parameter]
            if not state or not state["exp_avg"].shape == state["exp_avg_sq"].shape == grad.shape:
                check_gradient(parameter, grad)
                state = self._state_of(parameter, grad, group)
            if state["step"].dim():
                others.append(parameter)
            else:
                given[parameter.dtype].append((parameter, grad, state))
        for together in given.values():
            _update_densely(together, group)
        return others

    def _has_kernel(self, parameter: Tensor, state: State) -> bool:
        return state["step"].dim() == 1 and super()._has_kernel(parameter, state)

    def _run_kernel(self, parameter: Tensor, rows: GroupedRows, state: State, group: Group) -> None:
        beta1, beta2 = group["betas"]
        kernel.adam(
            as_rows(parameter),
            *rows,
            *(as_rows(state["exp_avg"]), as_rows(state["exp_avg_sq"]), state["step"].numpy()),
            *(float(group["lr"]), beta1, beta2, group["eps"], *decay_of(group)),
        )


def _update_densely(given: list[tuple[Tensor, Tensor, State]], group: Group) -> None:
    """Update parameters of one type by what torch's ``adam(fused=True)`` calls when it has looked.

    To look at a dozen small parameters takes longer than to update them.
    """
    weights, grads, states = (list(each) for each in zip(*given, strict=True))
    counts = [_advanced(state["step"]) for state in states]
    # Mostly one: of a parameter that came later it is another.
    as_tensors = {count: torch.full((), count, dtype=torch.float32) for count in set(counts)}
    fused = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
    beta1, beta2 = group["betas"]
    fused(
        weights,
        grads,
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        [as_tensors[count] for count in counts],
        amsgrad=False,
        lr=float(group["lr"]),
        beta1=beta1,
        beta2=beta2,
        weight_decay=float(group["weight_decay"]),
        eps=group["eps"],
        maximize=False,
    )


def _advanced(step: Tensor) -> int:
    """Return the next of a count of steps, which it becomes, by its memory: torch takes longer."""
    count = step.numpy()
    advanced: int = count.item() + 1
    count.fill(advanced)
    return advanced


def _torch_takes(parameter: Tensor, grad: Tensor) -> bool:
    """Return whether torch's own kernel of Adam, where it may run, updates such a parameter."""
    kind, plain = parameter.dtype, parameter.is_contiguous() and grad.is_contiguous()
    wide = kind in (torch.float32, torch.float64) and grad.dtype == kind
    return plain and wide and parameter.is_cpu and parameter.numel() > 0
