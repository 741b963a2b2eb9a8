"""Dropout by sixteen random bits a unit: the masks of many units from one draw."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from widemax.devices import by_kernels

_LEVELS = 2**16


class Dropout(nn.Dropout):
    """torch's dropout, with four units decided by each number drawn where that is faster.

    Formula: while training, y = x·m / (1 − q) with m = 0 with probability q and 1 else, q being
    ``p`` rounded to 16 bits. On the CPU a number of 64 bits, which torch draws in the time of one
    Bernoulli number, decides four units; elsewhere it is ``nn.Dropout``.

    Shapes: any.

    >>> _ = torch.manual_seed(0)
    >>> dropped = Dropout(0.25)(torch.ones(400, 250))
    >>> round((dropped == 0).double().mean().item(), 2), round(dropped.max().item(), 4)
    (0.25, 1.3333)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the units that are left, scaled up."""
        dropped = round(self.p * _LEVELS)
        if not self.training or not 0 < dropped < _LEVELS or not by_kernels(input):
            return super().forward(input)
        count = input.numel()
        # From the smallest number to the largest: the default would leave the sign bit 0.
        drawn = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
        bits = drawn.view(torch.int16)[:count].view(input.shape)
        mask = torch.empty(input.shape, dtype=input.dtype)
        torch.ge(bits, dropped - _LEVELS // 2, out=mask)
        return input * mask.mul_(_LEVELS / (_LEVELS - dropped))
