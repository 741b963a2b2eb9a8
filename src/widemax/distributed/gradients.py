"""Gradients of all processes added up: dense ones whole, those of tables by the rows touched."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from widemax.distributed.wire import Wire

_DENSE = -2
_NONE = -1


def add_gradients(parameters: Iterable[nn.Parameter], wire: Wire) -> None:
    """Make the gradient of each parameter the sum over all processes, the same bits in each.

    A sparse gradient is sent as the rows that it holds, never as a table; dense ones are added in
    one message for each dtype. A process without a gradient, for it had no examples, adds nothing.
    A parameter whose gradient is dense anywhere gets a dense one.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> table = nn.Embedding(1000, 2, sparse=True)
    >>> table(torch.tensor([7, 7])).sum().backward()
    >>> add_gradients(table.parameters(), Wire())
    >>> table.weight.grad.coalesce().values().tolist()
    [[2.0, 2.0]]
    >>> dist.destroy_process_group()
    """
    learned = [each for each in parameters if each.requires_grad]
    # Rows that were used twice are sent once.
    for each in learned:
        if each.grad is not None and each.grad.is_sparse:
            each.grad = each.grad.coalesce()
    own = torch.tensor([_kind(each) for each in learned], dtype=torch.int64)
    kinds = torch.stack(wire.gathered(own, [len(own)] * wire.size), dim=1).tolist()
    dense: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter, found in zip(learned, kinds, strict=True):
        if _DENSE in found:
            _make_dense(parameter)
            assert parameter.grad is not None
            dense.setdefault(parameter.grad.dtype, []).append(parameter)
        elif max(found) >= 0:
            _add_rows(parameter, [max(each, 0) for each in found], wire)
    for group in dense.values():
        _add_dense([each.grad for each in group if each.grad is not None], wire)


def _kind(parameter: nn.Parameter) -> int:
    """Return how many rows a sparse gradient holds, or what else there is."""
    if parameter.grad is None:
        return _NONE
    return int(parameter.grad._values().shape[0]) if parameter.grad.is_sparse else _DENSE


def _make_dense(parameter: nn.Parameter) -> None:
    if parameter.grad is None:
        dtype = parameter.grad_dtype or parameter.dtype
        parameter.grad = torch.zeros_like(parameter, dtype=dtype)
    elif parameter.grad.is_sparse:
        parameter.grad = parameter.grad.to_dense()


def _add_dense(grads: list[Tensor], wire: Wire) -> None:
    together = wire.sum_(torch.cat([each.flatten() for each in grads]))
    sums = torch.split(together, [each.numel() for each in grads])
    for grad, summed in zip(grads, sums, strict=True):
        grad.copy_(summed.view(grad.shape))


def _add_rows(parameter: nn.Parameter, sizes: list[int], wire: Wire) -> None:
    grad = parameter.grad
    if grad is None:
        dtype = parameter.grad_dtype or parameter.dtype
        ids = torch.empty(0, dtype=torch.int64)
        values = torch.empty((0, *parameter.shape[1:]), dtype=dtype)
    else:
        ids, values = grad._indices()[0], grad._values()
    all_ids = torch.cat(wire.gathered(ids, sizes))
    all_values = torch.cat(wire.gathered(values, sizes))
    parameter.grad = torch.sparse_coo_tensor(
        all_ids[None], all_values, parameter.shape, check_invariants=False
    ).coalesce()
