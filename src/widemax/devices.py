"""Where a step runs: by kernels on the host, or in torch's own operations alone.

An accelerator takes the second way, and so does a graph that ``torch.compile`` traces: no kernel,
no value that Python reads, no shape that depends on values. ``plain_torch`` takes it on the CPU, so
that it can be tested without an accelerator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_switch = {"kernels": True}


def by_kernels(*tensors: Tensor | None) -> bool:
    """Return whether kernels may work on these tensors, and Python may read their values.

    >>> by_kernels(torch.zeros(1)), by_kernels(torch.zeros(1, device="meta"))
    (True, False)
    """
    if not _switch["kernels"] or torch.compiler.is_compiling():
        return False
    for each in tensors:
        if each is not None and not each.is_cpu:
            return False
    # torch.func traces its functions, too.
    return not torch._C._are_functorch_transforms_active()


@contextmanager
def plain_torch() -> Iterator[None]:
    """Do without kernels and without reading values, as on an accelerator; for all threads.

    >>> with plain_torch():
    ...     by_kernels(torch.zeros(1))
    False
    """
    before = _switch["kernels"]
    _switch["kernels"] = False
    try:
        yield
    finally:
        _switch["kernels"] = before


def demand(condition: Tensor, message: str) -> None:
    """Raise if a condition is false, where its value may not be read by Python.

    ValueError on the CPU, RuntimeError in a compiled graph, and on a GPU at a later operation;
    Apple's has no such check.

    >>> demand(torch.tensor(True), "ids must be below 3")
    """
    if condition.device.type == "mps":
        return
    if torch.compiler.is_compiling():
        torch._assert_async(condition, message)
        return
    try:
        torch._assert_async(condition, message)
    except RuntimeError as error:
        raise ValueError(message) from error


def find_device(name: str) -> torch.device:
    """Return the device of a name; "auto" is a GPU if torch finds one, else the CPU.

    >>> find_device("cpu")
    device(type='cpu')
    """
    found = [kind for kind in ("cuda", "mps") if torch.get_device_module(kind).is_available()]
    if name == "auto":
        return torch.device([*found, "cpu"][0])
    if name not in (*found, "cpu"):
        there = ", ".join([*found, "cpu"])
        raise ValueError(f"device must be one that torch finds here ({there}), got {name!r}")
    return torch.device(name)


def moved(value: Any, device: torch.device) -> Any:
    """Return a batch or a state with all its tensors on a device.

    >>> moved({"ids": [torch.zeros(1)], "epoch": 3}, torch.device("meta"))["ids"][0].device
    device(type='meta')
    """
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(each, device) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(each, device) for each in value))
    if isinstance(value, list | tuple):
        return type(value)(moved(each, device) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        tensors = {n: each.to(device) for n, each in own.items() if isinstance(each, Tensor)}
        return dataclasses.replace(value, **tensors)
    return value
