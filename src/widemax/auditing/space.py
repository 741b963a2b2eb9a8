"""The two spaces in which a head's gradient can be read: the scores, or the hidden states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from widemax.heads import Head, SampledHead
from widemax.heads.batch import label_shares
from widemax.scoring.rows import widened
from widemax.validation import ABSENT


class GradientSpace(ABC):
    """The gradient of one example as a vector of ``width`` values, exact and as trained."""

    name: Literal["scores", "hidden"]
    width: int

    def __init__(self, head: Head, hidden: Tensor, targets: Tensor) -> None:
        self.head = head
        self.hidden = hidden
        self.targets = targets

    @abstractmethod
    def exact(self, rows: Tensor) -> Tensor:
        """Return the gradient of the exact softmax's loss, [R, width]."""

    @abstractmethod
    def add_draw(
        self, rows: Tensor, places: Tensor, total: Tensor, generator: torch.Generator | None
    ) -> None:
        """Train once on the batch ``rows`` and add its gradients to ``total`` [R, width].

        ``places`` holds the row of ``total`` that each example's gradient goes to; -1: none.
        """

    def losses(self, hidden: Tensor, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the head's training losses of the batch ``rows``, [R]."""
        targets = self.targets[rows]
        targets = targets.masked_fill(targets == ABSENT, self.head.ignore_index)
        losses: Tensor = self.head(hidden, targets, generator=generator)
        return losses

    def labels(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positives [R, T] (0 where absent) and the share 1/T of each, else 0."""
        targets = self.targets[rows]
        ids = targets if targets.dim() == 2 else targets[:, None]
        return ids.clamp(min=0), label_shares(targets, self.hidden)


class ScoreSpace(GradientSpace):
    """d loss / d F(x, y) for every class y: softmax(F) − label where the loss is exact.

    It shows every fault of an objective, whatever the class vectors are. The gradient of a draw
    touches only the target and the candidates: nothing of size V is allocated for it.
    """

    name = "scores"
    head: SampledHead

    def __init__(self, head: SampledHead, hidden: Tensor, targets: Tensor) -> None:
        super().__init__(head, hidden, targets)
        self.width = head.num_classes

    @torch.no_grad()
    def exact(self, rows: Tensor) -> Tensor:
        """Return softmax(F) less the labels, [R, V]."""
        gradient = widened(self.head.scores(self.hidden[rows])).softmax(-1)
        ids, shares = self.labels(rows)
        return gradient.scatter_add_(1, ids, -shares.to(gradient.dtype))

    def add_draw(
        self, rows: Tensor, places: Tensor, total: Tensor, generator: torch.Generator | None
    ) -> None:
        """Train once on the batch ``rows`` and add its gradients to ``total`` [R, V]."""
        with _scores_as_leaves(self.head.scorer) as leaves:
            losses = self.losses(self.hidden[rows], rows, generator)
        gradients = torch.autograd.grad(losses.sum(), [scores for _, scores in leaves])
        kept = places >= 0
        for (ids, scores), gradient in zip(leaves, gradients, strict=True):
            flat = (places[:, None] * self.width + ids.expand(scores.shape))[kept]
            total.view(-1).index_add_(0, flat.flatten(), gradient[kept].flatten().to(total.dtype))


class HiddenSpace(GradientSpace):
    """d loss / d hidden, which every head has; the truth is the head's own ``log_prob``."""

    name = "hidden"

    def __init__(self, head: Head, hidden: Tensor, targets: Tensor) -> None:
        super().__init__(head, hidden, targets)
        self.width = hidden.shape[1]

    def exact(self, rows: Tensor) -> Tensor:
        """Return the gradient of −Σ share · log P(t | x), [R, D]."""
        hidden = self.hidden[rows].requires_grad_()
        ids, shares = self.labels(rows)
        losses = -(self.head.log_prob(hidden, ids) * shares).sum(-1)
        (gradient,) = torch.autograd.grad(losses.sum(), hidden)
        return widened(gradient)

    def add_draw(
        self, rows: Tensor, places: Tensor, total: Tensor, generator: torch.Generator | None
    ) -> None:
        """Train once on the batch ``rows`` and add its gradients to ``total`` [R, D]."""
        hidden = self.hidden[rows].requires_grad_()
        losses = self.losses(hidden, rows, generator)
        (gradient,) = torch.autograd.grad(losses.sum(), hidden)
        kept = places >= 0
        total.index_add_(0, places[kept], gradient[kept].to(total.dtype))


@contextmanager
def _scores_as_leaves(scorer: nn.Module) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Cut the graph at the scores: collect (ids, scores) of each call as leaves to differentiate.

    A hook, so that the head runs its own code on its own sampler, objective and hidden states.
    """
    leaves: list[tuple[Tensor, Tensor]] = []

    def cut(_: nn.Module, arguments: tuple[Tensor, Tensor], scores: Tensor) -> Tensor:
        leaf = scores.detach().requires_grad_()
        leaves.append((arguments[1], leaf))
        return leaf

    handle = scorer.register_forward_hook(cut)
    try:
        yield leaves
    finally:
        handle.remove()
