"""Sparse tables under what takes no sparse gradients: optimisers that move every row, and DDP."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any
from weakref import WeakSet

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, SGD, Adagrad, Optimizer, SparseAdam
from torch.optim.optimizer import register_optimizer_step_pre_hook

_tables: WeakSet[nn.Module] = WeakSet()
_warned: WeakSet[nn.Module] = WeakSet()


def watch(table: nn.Module) -> None:
    """Let the sparse gradients of a table's own parameters be made dense where they must be.

    Nobody asked for them, and Adam or AdamW would refuse them: by their rule every row moves at
    every step. They get the dense gradient that they need, and a warning says once what it costs.
    """
    _ask_before_steps()
    _tables.add(table)


@cache
def _ask_before_steps() -> None:
    register_optimizer_step_pre_hook(_make_dense)


def _make_dense(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    owners = {id(each): table for table in _tables for each in table.parameters(recurse=False)}
    for group in optimizer.param_groups:
        if _takes_rows(optimizer, group):
            continue
        for parameter in group["params"]:
            table = owners.get(id(parameter))
            if table is not None and parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.to_dense()
                _warn(table, parameter, type(optimizer).__name__)


def _takes_rows(optimizer: Optimizer, group: dict[str, Any]) -> bool:
    """Return whether an optimiser is not torch's own, or updates the rows of a gradient alone."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return True
    if isinstance(optimizer, SGD):
        return not (group["momentum"] or group["weight_decay"])
    if isinstance(optimizer, Adagrad):
        return not group["weight_decay"]
    return isinstance(optimizer, SparseAdam | LBFGS)


def _warn(table: nn.Module, parameter: nn.Parameter, optimizer: str) -> None:
    if table in _warned:
        return
    _warned.add(table)
    warnings.warn(
        f"{optimizer} moves all {len(parameter):,} rows of a table at every step, whichever a "
        "batch used: wm.optimizer_for(model, lr=...) moves those alone; "
        "TableScorer(..., sparse=False) keeps this rule without this warning",
        stacklevel=4,
    )


def check_ddp(table: nn.Module, parameter: Tensor, *, by_size: bool) -> bool:
    """Return whether a table may have a sparse gradient in a forward pass of torch's DDP.

    Its buckets cannot hold one. Nobody asked for it where it came ``by_size``: then it is dense.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return True
    inside = DistributedDataParallel._active_ddp_module is not None
    if not inside or getattr(parameter, "_ddp_ignored", False):
        return True
    how = "DistributedDataParallel(wm.optim.exchange_rows(model))"
    if not by_size:
        raise RuntimeError(f"DDP takes no gradients of TableScorer(sparse=True) but by {how}")
    if table not in _warned:
        _warned.add(table)
        warnings.warn(
            f"the gradient of all {len(parameter):,} rows of a table is sent to all processes at "
            f"every step: {how} sends the rows that a batch used",
            stacklevel=4,
        )
    return False
