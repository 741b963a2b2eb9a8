"""What a step of an output layer costs: time, memory, and how many outputs it evaluates."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from widemax.auditing.measuring.drawing import BeforeBatch, Draws, recorded_scores
from widemax.heads import AdaptiveHead, Head, HierarchicalHead
from widemax.heads.base import SamplerHead
from widemax.heads.normalised import InfrequentHead

_STEPS = 8
_MAX_SECONDS = 2.0
_MAX_GRADIENT = 2**26
"""Bytes of dense gradients beyond which a step is not timed: an audit must stay small."""


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """The cost of one training step of a head: its loss and the gradients, no optimiser."""

    batch_size: int
    """Examples of the step."""
    outputs: float
    """Outputs that are evaluated for each example, the target's among them."""
    seconds: float | None
    """The fastest of several; None where the gradient of a dense table would be too large."""
    memory: int | None
    """Bytes that the backward pass needs beside the model, gradients included; None likewise."""


def measure_cost(
    head: Head,
    hidden: Tensor,
    targets: Tensor,
    *,
    batch_size: int,
    generator: torch.Generator | None,
    before_batch: BeforeBatch | None = None,
) -> StepCost:
    """Return the cost of a step on a batch of examples, drawn from the given ones."""
    rows = torch.arange(batch_size, device=hidden.device) % len(hidden)
    draws = Draws(
        head,
        hidden,
        targets,
        batch_size=batch_size,
        generator=generator,
        before_batch=before_batch,
    )
    outputs = _outputs(draws, rows)
    size = sum(each.numel() * each.element_size() for each in head.parameters())
    if size > _MAX_GRADIENT and not getattr(getattr(head, "scorer", head), "sparse", False):
        return StepCost(batch_size=batch_size, outputs=outputs, seconds=None, memory=None)
    memory = _Memory(head)
    times: list[float] = []
    for _ in range(_STEPS):
        if sum(times) > _MAX_SECONDS:
            break
        begin = time.perf_counter()
        _step(draws, rows, memory if not times else None)
        times.append(time.perf_counter() - begin)
    return StepCost(
        batch_size=batch_size,
        outputs=outputs,
        # The fastest: others wait for kernels, for memory or for another program.
        seconds=min(times),
        memory=memory.bytes,
    )


def _step(draws: Draws, rows: Tensor, memory: _Memory | None) -> None:
    hidden = draws.hidden[rows].requires_grad_()
    if memory is None:
        losses = draws.losses(hidden, rows)
    else:
        with torch.autograd.graph.saved_tensors_hooks(memory.keep, lambda each: each):
            losses = draws.losses(hidden, rows)
    wanted = [hidden, *(each for each in draws.head.parameters() if each.requires_grad)]
    gradients = torch.autograd.grad(losses.sum(), wanted, allow_unused=True)
    if memory is not None:
        memory.add([each for each in gradients if each is not None])


class _Memory:
    """Sums up the storages that autograd keeps, each once, but for those of the model."""

    def __init__(self, head: Head) -> None:
        tensors = [*head.parameters(), *head.buffers()]
        self.known = {each.untyped_storage().data_ptr() for each in tensors}
        self.bytes = 0

    def keep(self, tensor: Tensor) -> Any:
        """Count a tensor that is saved for the backward pass."""
        self.add([tensor])
        return tensor.detach()

    def add(self, tensors: list[Tensor]) -> None:
        """Count tensors, of sparse ones what they hold."""
        for tensor in tensors:
            parts = [tensor]
            if tensor.is_sparse:
                parts = [tensor._indices(), tensor._values()]
            for part in parts:
                storage = part.untyped_storage()
                if storage.data_ptr() not in self.known:
                    self.known.add(storage.data_ptr())
                    self.bytes += storage.nbytes()


@torch.no_grad()
def _outputs(draws: Draws, rows: Tensor) -> float:
    """Return how many outputs an example of a batch evaluates, on average."""
    head, hidden, targets = draws.head, draws.hidden[rows], draws.targets[rows]
    if isinstance(head, SamplerHead):
        with recorded_scores(head, hidden) as calls:
            draws.losses(hidden, rows)
        return sum(scores.numel() for _, _, scores in calls) / len(rows)
    if isinstance(head, HierarchicalHead):
        return float(head.tree.depths[targets.flatten().clamp(min=0)].double().mean())
    if isinstance(head, AdaptiveHead):
        sizes = [0, *(stop - start for start, stop in pairwise([*head.cutoffs, head.num_classes]))]
        cluster = torch.bucketize(targets.flatten(), torch.tensor(head.cutoffs), right=True)
        return len(head.weight) + float(torch.tensor(sizes)[cluster].double().mean())
    if isinstance(head, InfrequentHead):
        return 1.0 + head.fraction * head.num_classes
    return float(head.num_classes)
