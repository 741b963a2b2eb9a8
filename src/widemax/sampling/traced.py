"""Draws as one node of a compiled graph: kernels and generators are nothing it could hold."""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

_numbers = count()
_drawing: WeakValueDictionary[int, Any] = WeakValueDictionary()


def number_of(sampler: Any) -> int:
    """Return a new number by which a graph can name a sampler, which it does not keep alive."""
    number = next(_numbers)
    _drawing[number] = sampler
    return number


@torch.library.custom_op(
    "widemax::draw", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)
def traced_draw(number: int, rows: int, num_samples: int, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return draws [rows, S] by torch's own generator and their tries [rows, 1], 0: not distinct.

    ``targets`` say where to, and keep two draws of one step apart.
    """
    sampler, shape = _drawing[number], (rows, num_samples)
    if sampler.unique:
        ids, tries = sampler.draw_distinct(shape, device=targets.device)
        return ids, tries
    ids = sampler.draw(shape, device=targets.device)
    return ids, torch.zeros((rows, 1), dtype=torch.int64, device=targets.device)


@traced_draw.register_fake
def _(number: int, rows: int, num_samples: int, targets: Tensor) -> tuple[Tensor, Tensor]:
    ids = targets.new_empty((rows, num_samples), dtype=torch.int64)
    return ids, targets.new_empty((rows, 1), dtype=torch.int64)
