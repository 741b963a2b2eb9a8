"""What the row-sparse optimisers share: parameters, state, and the kernel and plain updates."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from itertools import chain
from typing import Any, ClassVar, TypeAlias, overload

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, StateDict

from widemax.devices import by_kernels
from widemax.optim.rounding import round_stochastically
from widemax.optim.rows import (
    GroupedRows,
    arithmetic_dtype,
    check_gradient,
    fits_kernel,
    grouped_rows,
    sum_rows,
)
from widemax.validation import check_not_negative, check_positive

Group: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, Tensor]

# What torch wraps to keep it out of compiled graphs: the wrapper loads the compiler at the first
# call, which takes two seconds and helps nobody who does not compile.
_add_param_group, _load_state_dict, _state_dict, _zero_grad = (
    inspect.unwrap(getattr(Optimizer, name))
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
)

_NUMPY_DTYPES = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}


class RowOptimizer(Optimizer):
    """An optimiser that reads and writes only the rows a sparse gradient touches.

    A step costs O(nnz·(D + log nnz)), whatever the size of the table. Duplicate rows of a gradient
    are summed first. ``weight_decay`` is L2 added to the gradient; with ``decoupled_weight_decay``
    it is that of AdamW (Loshchilov & Hutter 2019), w ← (1 − lr·weight_decay)·w before the update,
    whatever the rule makes of gradients. Both are of touched rows only: a row decays once for each
    step that uses it, and one that is never drawn never decays. A dense gradient touches all rows,
    as in ``torch.optim``.

    State and arithmetic are float32 (float64 for float64 parameters). bfloat16 is written back by
    ``round_stochastically``, seeded by ``state["step"]``; other half precision to the nearest.

    A subclass implements its rule twice, as ``_apply`` in plain torch and as ``_run_kernel`` for
    contiguous float32, float64 and bfloat16 tables on the CPU, and creates its state.
    """

    _state_names: ClassVar[tuple[str, ...]] = ()

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters, its options checked like those of the first."""
        self._check_group({**self.defaults, **param_group})
        _add_param_group(self, param_group)
        for parameter in self.param_groups[-1]["params"]:
            if not parameter.is_floating_point():
                self.param_groups.pop()
                raise ValueError(f"params must be floating point, got dtype {parameter.dtype}")

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
            for parameter in self._update_together(group["params"], group):
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, as in torch."""
        if not set_to_none:
            _zero_grad(self, set_to_none)
            return
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def state_dict(self) -> StateDict:
        """Return the state of the optimiser, as in torch."""
        state: StateDict = _state_dict(self)
        return state

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load what ``state_dict`` returned, exactly; as in torch, tensors are not copied.

        torch would cast all state to the parameter's type and round the float32 sums of a bfloat16
        table.
        """
        loaded, names = state_dict["state"], set(self._state_names)
        for entry in loaded.values():
            if entry and not names <= set(entry) <= names | {"step"}:
                raise ValueError(
                    f"state_dict must hold the state of a {type(self).__name__} "
                    f"({', '.join(self._state_names) or 'none'}), got {', '.join(entry)}"
                )
        _load_state_dict(self, {**state_dict, "state": {}})
        stored = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        parameters = chain.from_iterable(group["params"] for group in self.param_groups)
        for index, parameter in zip(stored, parameters, strict=True):
            for name, value in loaded.get(index, {}).items():
                dtype = torch.int64 if name == "step" else arithmetic_dtype(parameter)
                device = parameter.device if value.dim() else value.device
                self.state[parameter][name] = value.to(device, dtype).contiguous()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a state in; one of before decay could be decoupled is of decay that is not."""
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("decoupled_weight_decay", False)

    def _check_group(self, group: Group) -> None:
        """Refuse a group with an option out of its limits."""
        check_positive("lr", group["lr"])
        check_not_negative("weight_decay", group["weight_decay"])
        if not isinstance(group["decoupled_weight_decay"], bool):
            raise ValueError(
                "decoupled_weight_decay must be True or False, got "
                f"{group['decoupled_weight_decay']!r}"
            )

    def _new_state(self, parameter: Tensor, grad: Tensor, group: Group) -> State:
        """Return the state of a parameter at its first gradient."""
        return {}

    @abstractmethod
    def _apply(self, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Update rows of weights and of their state in place; leave the gradient as it is."""

    @abstractmethod
    def _run_kernel(self, parameter: Tensor, rows: GroupedRows, state: State, group: Group) -> None:
        """Do the same by a kernel, in the memory of the parameter and its state."""

    def _update_together(self, parameters: list[Tensor], group: Group) -> list[Tensor]:
        """Update those for which one call serves them all, if there is one; return all others."""
        return parameters

    def _has_kernel(self, parameter: Tensor, state: State) -> bool:
        return fits_kernel(parameter)

    def _fits(self, name: str, value: Tensor, parameter: Tensor) -> bool:
        if name == "step":
            return value.dim() == 0 or value.shape == parameter.shape[:1]
        return value.shape == parameter.shape

    def _update(self, parameter: Tensor, grad: Tensor, group: Group) -> None:
        check_gradient(parameter, grad)
        state = self._state_of(parameter, grad, group)
        if "step" in state and state["step"].dim() == 0:
            state["step"] += 1
        if not parameter.numel() or (grad.is_sparse and not grad._nnz()):
            return
        dtype = arithmetic_dtype(parameter)
        if not grad.is_sparse:
            self._update_plainly(parameter, None, grad.to(dtype), state, group)
        elif self._has_kernel(parameter, state):
            self._run_kernel(parameter, grouped_rows(grad, dtype), state, group)
            # What autograd has saved is now stale, and it must notice.
            torch.autograd.graph.increment_version(parameter)
        else:
            self._update_plainly(parameter, *sum_rows(grad, dtype), state, group)

    def _state_of(self, parameter: Tensor, grad: Tensor, group: Group) -> State:
        state: State = self.state[parameter]
        if not state:
            state.update(self._new_state(parameter, grad, group))
        if parameter.dtype == torch.bfloat16 and "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.int64)
        for name, value in state.items():
            if not self._fits(name, value, parameter):
                raise ValueError(
                    f"state {name!r} of a parameter of shape {list(parameter.shape)} must belong "
                    f"to it, got shape {list(value.shape)}; make a new optimiser for a table of "
                    "another size"
                )
        return state

    def _update_plainly(
        self, parameter: Tensor, ids: Tensor | None, gradient: Tensor, state: State, group: Group
    ) -> None:
        """Update the rows ``ids``, or all: gather, apply, write back. The kernels' reference."""
        weight = _take(parameter, ids).to(gradient.dtype)
        rows = {name: _take(value, ids) for name, value in state.items()}
        decay, kept = decay_of(group)
        if decay:
            gradient = gradient.add(weight, alpha=decay)
        if kept != 1:
            weight = weight * kept
        self._apply(weight, gradient, rows, group)
        if parameter.dtype == torch.bfloat16:
            every_row = torch.arange(
                parameter.shape[0] if parameter.dim() else 1, device=parameter.device
            )
            weight = round_stochastically(weight, rows["step"], every_row if ids is None else ids)
        _put(parameter, ids, weight.to(parameter.dtype))
        for name, value in state.items():
            _put(value, ids, rows[name])


def decay_of(group: Group) -> tuple[float, float]:
    """Return what of a row its gradient gets, and what of the row is kept before its update.

    >>> decay_of({"lr": 0.5, "weight_decay": 0.1, "decoupled_weight_decay": False})
    (0.1, 1.0)
    >>> decay_of({"lr": 0.5, "weight_decay": 0.1, "decoupled_weight_decay": True})
    (0.0, 0.95)
    """
    decay = float(group["weight_decay"])
    if group["decoupled_weight_decay"]:
        return 0.0, 1 - float(group["lr"]) * decay
    return decay, 1.0


def zeros(shape: torch.Size, parameter: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a state of zeros on the device of a parameter, in memory paid page by page."""
    if not by_kernels(parameter):
        return torch.zeros(shape, dtype=dtype, device=parameter.device)
    # torch.zeros writes every page; NumPy leaves that to the system.
    return torch.from_numpy(np.zeros(shape, _NUMPY_DTYPES[dtype]))


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """Return values [n] in a shape that multiplies the rows of a tensor [n, ...]."""
    return values.view(-1, *[1] * (like.dim() - 1))


def _take(tensor: Tensor, ids: Tensor | None) -> Tensor:
    return tensor if ids is None or not tensor.dim() else tensor.index_select(0, ids)


def _put(tensor: Tensor, ids: Tensor | None, rows: Tensor) -> None:
    if ids is None or not tensor.dim():
        tensor.copy_(rows)
    else:
        tensor.index_copy_(0, ids, rows)
