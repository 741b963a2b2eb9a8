"""Draws as one node of a compiled graph: kernels and generators are nothing it could hold."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

_drawing: WeakValueDictionary[int, Any] = WeakValueDictionary()


def let_graphs_draw(sampler: Any) -> None:
    """Let graphs name a sampler by its ``id``, without keeping it alive."""
    _drawing[id(sampler)] = sampler


@torch.library.custom_op(
    "widemax::draw", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)
def traced_draw(
    sampler: int, rows: int, num_samples: int, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Return draws [rows, S] by torch's own generator and their tries [rows, 1], 0: not distinct.

    ``targets`` say where to, and keep two draws of one step apart.
    """
    own, shape = _drawing[sampler], (rows, num_samples)
    if own.unique:
        ids, tries = own.draw_distinct(shape, device=targets.device)
        return ids, tries
    ids = own.draw(shape, device=targets.device)
    return ids, torch.zeros((rows, 1), dtype=torch.int64, device=targets.device)


@traced_draw.register_fake
def _(sampler: int, rows: int, num_samples: int, targets: Tensor) -> tuple[Tensor, Tensor]:
    ids = targets.new_empty((rows, num_samples), dtype=torch.int64)
    return ids, targets.new_empty((rows, 1), dtype=torch.int64)
