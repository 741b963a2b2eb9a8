"""Reading a training batch: ignored examples, padded positives, weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from widemax.devices import by_kernels
from widemax.validation import ABSENT, as_int64, check_hidden, check_targets, check_weights


# Not a NamedTuple: torch.compile of torch 2.10 does not trace the properties of one.
@dataclass(frozen=True)
class Batch:
    """The examples of a batch that count, each with at least one positive."""

    hidden: Tensor
    targets: Tensor
    """[B] or [B, T], -1 where a positive is absent."""
    rows: Tensor | None
    """Where these examples stand in the batch as given; None: they are all of it."""
    size: int
    """How many examples were given."""
    weights: Tensor | None
    """One for each example that was given."""
    kept: Tensor | None = None
    """Which of these count, bool [B], where none may be left out (``widemax.devices``)."""

    @property
    def target_ids(self) -> Tensor:
        """The targets as [B, T], 0 where one is absent."""
        return (self.targets if self.targets.dim() == 2 else self.targets[:, None]).clamp(min=0)

    @property
    def target_mask(self) -> Tensor | None:
        """Which positives are present, bool [B, T]; None for targets [B]."""
        return self.targets != ABSENT if self.targets.dim() == 2 else None

    def select(self, values: Tensor | None) -> Tensor | None:
        """Return the rows of ``values`` that belong to these examples."""
        return values if values is None or self.rows is None else values[self.rows]

    def part(self, rows: slice) -> Batch:
        """Return some of these examples; their losses are finished with all others."""
        kept = None if self.kept is None else self.kept[rows]
        return replace(self, hidden=self.hidden[rows], targets=self.targets[rows], kept=kept)

    def finish(self, losses: Tensor) -> Tensor:
        """Return the losses of all examples that were given: 0 where ignored, weighted."""
        if self.rows is not None:
            losses = losses.new_zeros(self.size).index_put((self.rows,), losses)
        if self.kept is not None:
            losses = losses.masked_fill(~self.kept, 0.0)
        return losses if self.weights is None else losses * self.weights


def read_batch(
    hidden: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    *,
    num_classes: int,
    dimension: int,
    ignore_index: int,
) -> Batch:
    """Check a batch and leave out the examples without a positive."""
    targets = as_int64("targets", targets)
    if not by_kernels(targets):
        return _read_plainly(hidden, targets, weights, num_classes, dimension, ignore_index)
    usual = targets.dim() == 1 and ignore_index < 0 and _all_between(targets, 0, num_classes - 1)
    kept = None
    if not usual:
        ignored = targets == ignore_index
        check_targets(targets.masked_fill(ignored, 0), num_classes, absent=False)
        targets = _without_repeats(targets.masked_fill(ignored, ABSENT))
        kept = ~ignored if targets.dim() == 1 else ~ignored.all(-1)
    size = targets.shape[0]
    check_hidden(hidden, dimension, rows=size)
    if weights is not None:
        check_weights(weights, size)
    if kept is None or bool(kept.all()):
        return Batch(hidden, targets, None, size, weights)
    rows = kept.nonzero()[:, 0]
    return Batch(hidden[rows], targets[rows], rows, size, weights)


def _read_plainly(
    hidden: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    num_classes: int,
    dimension: int,
    ignore_index: int,
) -> Batch:
    """Check a batch and keep all of it, in a shape that depends on no value.

    An example without a positive is computed as hidden state 0 with class 0, and its loss dropped.
    """
    size = targets.shape[0]
    check_hidden(hidden, dimension, rows=size)
    if weights is not None:
        check_weights(weights, size)
    ignored = targets == ignore_index
    check_targets(targets.masked_fill(ignored, 0), num_classes, absent=False)
    targets = _without_repeats(targets.masked_fill(ignored, ABSENT))
    if targets.dim() == 1:
        kept, targets = ~ignored, targets.clamp(min=0)
    else:
        kept = ~ignored.all(-1)
        first = targets[:, 0].masked_fill(~kept, 0)
        targets = torch.cat([first[:, None], targets[:, 1:]], dim=1)
    hidden = hidden.masked_fill(~kept[:, None], 0.0)
    return Batch(hidden, targets, None, size, weights, kept)


def _all_between(values: Tensor, low: int, high: int) -> bool:
    """Return whether there are values and all lie within both limits, as in the usual batch."""
    if not values.numel():
        return False
    smallest, largest = torch.aminmax(values)
    return int(smallest) >= low and int(largest) <= high


def _without_repeats(targets: Tensor) -> Tensor:
    """Mark a positive that a row lists twice as absent the second time: positives are a set."""
    if targets.dim() == 1 or targets.shape[1] == 1:
        return targets
    ordered, order = targets.sort(dim=1, stable=True)
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return targets.masked_fill(torch.zeros_like(repeated).scatter_(1, order, repeated), ABSENT)


def label_shares(targets: Tensor, like: Tensor) -> Tensor:
    """Return each positive's share 1/T of the label, [B, T], 0 for an absent one.

    Shares like 1/3 are wanted in at least float32, whatever dtype ``like`` has.

    >>> label_shares(torch.tensor([[3, 7], [5, -1]]), torch.empty(0)).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    present = targets != ABSENT if targets.dim() == 2 else torch.ones_like(targets[:, None])
    shares = present.to(torch.promote_types(like.dtype, torch.float32))
    return shares / shares.sum(-1, keepdim=True)
