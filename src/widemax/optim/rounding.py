"""Rounding to bfloat16 that keeps small updates: up or down by chance, right on average."""

from __future__ import annotations

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_EXPONENT = 0x7F800000  # all ones in infinity and NaN


def round_stochastically(values: Tensor, step: Tensor, rows: Tensor) -> Tensor:
    """Return float32 ``values`` [n, ...] as bfloat16, unbiased: E[rounded] = value.

    Of the neighbours a ≤ x ≤ b in bfloat16, b is taken with probability (x − a)/(b − a), so that
    updates below 1/256 of a weight survive, which rounding to the nearest would drop (Gupta et al.
    2015). Randomness comes from a hash (the finaliser of MurmurHash3) of ``step`` [] or [n],
    ``rows`` [n] and the column: the same call gives the same bits, so that a resumed run continues
    as it would have. Infinity and NaN stay.

    >>> import torch
    >>> steps, rows = torch.arange(10_000), torch.zeros(10_000, dtype=torch.int64)
    >>> rounded = round_stochastically(torch.full((10_000, 1), 1.001), steps, rows)
    >>> sorted(set(rounded.flatten().tolist())), round(rounded.double().mean().item(), 4)
    ([1.0, 1.0078125], 1.001)
    """
    if not values.numel():
        return values.to(torch.bfloat16)
    table = values.reshape(len(rows), -1).contiguous()
    seed = _mix(_mix(step & _WORD) + (rows & _WORD))
    noise = _mix(seed[:, None] + torch.arange(table.shape[1], device=values.device)) & 0xFFFF
    bits = table.view(torch.int32).long() & _WORD
    # Noise would carry a NaN whose last bits are all set over into 0.
    finite = (bits & _EXPONENT) != _EXPONENT
    upper = (bits + noise * finite) >> 16
    # Bits from 2^15 are negative numbers as int16.
    return (upper - ((upper >> 15) << 16)).short().view(torch.bfloat16).view(values.shape)


def _mix(number: Tensor) -> Tensor:
    """Return 32 bits that each depend on the lower 32 of ``number``; its sum may have carried."""
    mixed = number & _WORD
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & _WORD
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & _WORD
    return mixed ^ (mixed >> 16)
