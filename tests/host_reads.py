"""Watches a step for what an accelerator would have to wait for: values that the host reads."""

from contextlib import contextmanager
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
_READING = {
    aten._local_scalar_dense.default,  # item(), bool(), int(), float()
    aten.is_nonzero.default,
    aten.equal.default,
    # The shape of their result is a value.
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.unique_consecutive.default,
    aten.repeat_interleave.Tensor,
}
_INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}


class HostRead(AssertionError):
    """A step read a value on the host."""


class _Watch(TorchDispatchMode):
    def __init__(self, on_host):
        super().__init__()
        self.on_host = {each.data_ptr() for each in on_host}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        by_mask = func in _INDEXING and any(
            each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1]
        )
        if func in _READING and args[0].data_ptr() in self.on_host:
            return func(*args, **(kwargs or {}))
        if func in _READING or by_mask:
            raise HostRead(f"{func} has the host wait for a value")
        return func(*args, **(kwargs or {}))


def _refuse(*args, **kwargs):
    raise HostRead("a tensor became an array or a list")


@contextmanager
def no_host_reads(on_host=()):
    """Raise ``HostRead`` where a value, a shape that is one, or an array would reach the host.

    Tensors that are ``on_host`` whatever the device may be read.
    """
    with (
        mock.patch.object(torch.Tensor, "numpy", _refuse),
        mock.patch.object(torch.Tensor, "tolist", _refuse),
        mock.patch.object(torch, "from_numpy", _refuse),
        _Watch(on_host),
    ):
        yield
