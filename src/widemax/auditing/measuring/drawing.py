"""Training steps of a head without a training: their gradients, summed over groups of draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from widemax.auditing.measuring.moments import NUM_GROUPS
from widemax.auditing.measuring.spaces import GradientSums, HiddenSums, Touched
from widemax.heads import Head
from widemax.heads.base import SamplerHead
from widemax.validation import ABSENT

Progress = Callable[[int, int], None]
BeforeBatch = Callable[[Tensor], None]
"""Called with the examples of the next batch, int64 [R]."""

_MAX_SCORES = 2**22


class Draws:
    """Trains on examples again and again, all together or in random batches, and keeps sums."""

    def __init__(
        self,
        head: Head,
        hidden: Tensor,
        targets: Tensor,
        *,
        batch_size: int | None,
        generator: torch.Generator | None,
        before_batch: BeforeBatch | None = None,
    ) -> None:
        self.head, self.hidden, self.targets = head, hidden, targets
        self.batch_size, self.generator, self.before_batch = batch_size, generator, before_batch

    def make(self, sums: list[GradientSums], rounds: int, progress: Progress | None) -> int:
        """Make ``rounds`` draws for each group; where nothing is random one is enough.

        Returns how many were made.
        """
        made, total = 0, rounds * NUM_GROUPS
        while made < rounds and not (made == 1 and all(each.is_constant() for each in sums)):
            for group in range(NUM_GROUPS):
                for rows, counted in self._batches():
                    self._add(rows, counted, sums, group)
                if progress is not None:
                    progress(made * NUM_GROUPS + group + 1, total)
            made += 1
        return made

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the examples of each batch of a draw, and which of them count."""
        number, device = len(self.hidden), self.hidden.device
        if self.batch_size is None:
            for rows in torch.split(torch.arange(number, device=device), self._rows_at_once()):
                yield rows, torch.ones_like(rows, dtype=torch.bool)
            return
        order = torch.randperm(number, device=device, generator=self.generator)
        for start in range(0, number, self.batch_size):
            # The last batch is filled with examples that were counted before.
            first = min(start, number - self.batch_size)
            rows = order[first : first + self.batch_size]
            yield rows, torch.arange(len(rows), device=device) >= start - first

    def _rows_at_once(self) -> int:
        """Return how many examples a batch may have where any number will do."""
        outputs = getattr(self.head, "num_samples", None) or 1
        sampler = self.head.proposal
        if sampler is not None and sampler.per_example:
            outputs *= self.hidden.shape[1]
        return max(1, _MAX_SCORES // outputs)

    def losses(self, hidden: Tensor, rows: Tensor) -> Tensor:
        """Return the training losses of a batch, [R]; notes of the report replace warnings."""
        if self.before_batch is not None:
            self.before_batch(rows)
        targets = self.targets[rows]
        targets = targets.masked_fill(targets == ABSENT, self.head.ignore_index)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "sampled_softmax")
            losses: Tensor = self.head(hidden, targets, generator=self.generator)
        return losses

    def _add(self, rows: Tensor, counted: Tensor, sums: list[GradientSums], group: int) -> None:
        hidden = self.hidden[rows].requires_grad_()
        with recorded_scores(self.head, hidden) as calls:
            losses = self.losses(hidden, rows)
        wanted = [hidden, *(scores for _, _, scores in calls)]
        gradients = torch.autograd.grad(losses.sum(), wanted, allow_unused=True)
        for each in sums:
            if isinstance(each, HiddenSums) and gradients[0] is not None:
                each.add_hidden(rows[counted], gradients[0][counted], group)
        for (first, ids, _), gradient in zip(calls, gradients[1:], strict=True):
            if gradient is None:
                continue
            own = slice(first, first + len(gradient))
            kept = counted[own]
            if ids.dim() == 2:
                ids = ids[kept]
            touched = Touched(rows[own][kept], ids, gradient[kept])
            for each in sums:
                each.add(touched, group)


@contextmanager
def recorded_scores(head: Head, hidden: Tensor) -> Iterator[list[tuple[int, Tensor, Tensor]]]:
    """Collect (first row of the batch, ids, scores) of each call of the scorer.

    A hook, so that the head runs its own code on its own sampler, objective and hidden states.
    """
    calls: list[tuple[int, Tensor, Tensor]] = []
    if not isinstance(head, SamplerHead):
        yield calls
        return

    def record(_: nn.Module, arguments: tuple[Tensor, Tensor], scores: Tensor) -> None:
        part, ids = arguments
        # A group of examples that draws for itself is a part of the batch, seen through a slice.
        first = (part.storage_offset() - hidden.storage_offset()) // hidden.shape[1]
        calls.append((first, ids, scores))

    handle = head.scorer.register_forward_hook(record)
    try:
        yield calls
    finally:
        handle.remove()


@contextmanager
def held_still(head: Head) -> Iterator[None]:
    """Hold the head in evaluation mode, where samplers do not learn, and its weights fixed.

    What it knows of its last draw is put back.
    """
    modes = [(module, module.training) for module in head.modules()]
    wanted = [(each, each.requires_grad) for each in head.parameters()]
    drawn = [(each, each.last_draw) for each in head.modules() if hasattr(each, "last_draw")]
    head.eval()
    for parameter, _ in wanted:
        # Not even the gradient of a table is allocated.
        parameter.requires_grad_(False)
    try:
        with torch.enable_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, needed in wanted:
            parameter.requires_grad_(needed)
        for each, last in drawn:
            each.last_draw = last
