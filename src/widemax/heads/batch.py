"""Reading a training batch: ignored examples, padded positives, weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from widemax.validation import ABSENT, as_int64, check_hidden, check_targets, check_tensor


class Batch(NamedTuple):
    """The examples that count: at least one positive each, absent ones marked -1."""

    hidden: Tensor
    targets: Tensor
    rows: Tensor | None
    """Their rows in the batch that was given; None: all of them."""

    @property
    def target_table(self) -> Tensor:
        """The targets as [B, T], also when there is one for each example."""
        return self.targets if self.targets.dim() == 2 else self.targets[:, None]

    @property
    def target_mask(self) -> Tensor | None:
        """Which positives are there, bool [B, T]; None for targets [B]."""
        return self.targets != ABSENT if self.targets.dim() == 2 else None

    def select(self, values: Tensor | None) -> Tensor | None:
        """Return the rows of ``values`` that belong to these examples."""
        return values if values is None or self.rows is None else values[self.rows]


def read_batch(
    hidden: Tensor, targets: Tensor, *, num_classes: int, dimension: int, ignore_index: int
) -> Batch:
    """Check a batch and leave out the examples without a positive."""
    targets = as_int64("targets", targets)
    if targets.dim() == 1 and _all_between(targets, 0, num_classes - 1) and ignore_index < 0:
        check_hidden(hidden, dimension, rows=targets.shape[0])
        return Batch(hidden, targets, None)
    ignored = targets == ignore_index
    check_targets(targets.masked_fill(ignored, 0), num_classes, absent=False)
    targets = _without_repeats(targets.masked_fill(ignored, ABSENT))
    check_hidden(hidden, dimension, rows=targets.shape[0])
    kept = ~ignored if targets.dim() == 1 else ~ignored.all(-1)
    if bool(kept.all()):
        return Batch(hidden, targets, None)
    rows = kept.nonzero()[:, 0]
    return Batch(hidden[rows], targets[rows], rows)


def _all_between(values: Tensor, low: int, high: int) -> bool:
    """Return whether there are values and all lie within both limits: the usual batch, at once."""
    if not values.numel() or torch.compiler.is_compiling():
        return False
    smallest, largest = torch.aminmax(values)
    return bool(smallest >= low) and bool(largest <= high)


def _without_repeats(targets: Tensor) -> Tensor:
    """Mark a positive that a row lists twice as absent the second time: positives are a set."""
    if targets.dim() == 1 or targets.shape[1] == 1:
        return targets
    ordered, order = targets.sort(dim=1, stable=True)
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return targets.masked_fill(torch.zeros_like(repeated).scatter_(1, order, repeated), ABSENT)


def check_weights(weights: Tensor | None, size: int) -> None:
    """Refuse weights that are not one for each of ``size`` examples."""
    if weights is not None and check_tensor("weights", weights).shape != (size,):
        raise ValueError(f"weights must have shape [{size}], got {list(weights.shape)}")


def finish_losses(losses: Tensor, batch: Batch, size: int, weights: Tensor | None) -> Tensor:
    """Return the losses of the whole batch, [``size``]: 0 where ignored, weighted."""
    if batch.rows is not None:
        losses = losses.new_zeros(size).index_put((batch.rows,), losses)
    check_weights(weights, size)
    return losses if weights is None else losses * weights
