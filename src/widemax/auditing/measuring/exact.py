"""The exact softmax of some examples, some classes at a time: the truth of an audit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from widemax.auditing.measuring.spaces import GradientSums, HiddenSums, Touched
from widemax.heads import ScorerHead
from widemax.heads.batch import label_shares
from widemax.sampling import Sampler
from widemax.scoring.rows import widened

_TILE_SCORES = 2**20
_TILE_VALUES = 2**22
_MAX_LOG_MASS = 1e-3
"""How far the logarithm of the sum of a proposal's probabilities may be from 0."""


class ExactFigures(NamedTuple):
    """What the exact softmax says of each example."""

    log_normalizer: Tensor
    """log Z(x), float64 [N]."""
    divergence: Tensor | None
    """KL(P ‖ q), q the probability of one draw, float64 [N]; None where q has no meaning."""


def measure_exact(
    head: ScorerHead,
    hidden: Tensor,
    targets: Tensor,
    sums: list[GradientSums],
    sampler: Sampler | None,
) -> ExactFigures:
    """Add the gradient of the exact softmax's loss to ``sums``, and return its other figures.

    Classes are gone through twice, a tile at a time: nothing of size [N, V] or V is allocated,
    whatever the scorer computes its vectors from.
    """
    rows = torch.arange(len(hidden), device=hidden.device)
    log_normalizer = _log_normalizer(head, hidden)
    proposal = _Proposal(sampler)
    for ids in _tiles(head, len(hidden), hidden.device):
        leaf = hidden.detach().requires_grad_()
        with torch.enable_grad():
            scores = widened(head.scores(leaf, ids))
        log_prob = scores.detach().double() - log_normalizer[:, None]
        prob = log_prob.exp()
        proposal.add(ids, log_prob, prob)
        _add(sums, Touched(rows, ids, prob.to(scores.dtype)), scores, leaf)
    # The labels: −1/T at each of T positives.
    positives = (targets if targets.dim() == 2 else targets[:, None]).clamp(min=0)
    leaf = hidden.detach().requires_grad_()
    with torch.enable_grad():
        scores = widened(head.scores(leaf, positives))
    shares = label_shares(targets, scores).to(scores.dtype)
    _add(sums, Touched(rows, positives, -shares), scores, leaf)
    return ExactFigures(log_normalizer, proposal.divergence())


def _add(sums: list[GradientSums], touched: Touched, scores: Tensor, hidden: Tensor) -> None:
    for each in sums:
        if isinstance(each, HiddenSums):
            (gradient,) = torch.autograd.grad(scores, hidden, touched.values)
            each.add_hidden(touched.rows, gradient, None)
        else:
            each.add(touched, None)


@torch.no_grad()
def _log_normalizer(head: ScorerHead, hidden: Tensor) -> Tensor:
    total = torch.full((len(hidden),), -math.inf, dtype=torch.float64, device=hidden.device)
    for ids in _tiles(head, len(hidden), hidden.device):
        total = torch.logaddexp(total, head.scores(hidden, ids).double().logsumexp(-1))
    return total


def _tiles(head: ScorerHead, rows: int, device: torch.device) -> Iterator[Tensor]:
    size = max(1, min(_TILE_SCORES // rows, _TILE_VALUES // head.dimension))
    for start in range(0, head.num_classes, size):
        yield torch.arange(start, min(start + size, head.num_classes), device=device)


class _Proposal:
    """Sums up KL(P ‖ q) over the tiles, while q turns out to be a distribution."""

    def __init__(self, sampler: Sampler | None) -> None:
        self.sampler = sampler
        self.total: Tensor | None = None
        self.log_mass = -math.inf

    def add(self, ids: Tensor, log_prob: Tensor, prob: Tensor) -> None:
        """Take a tile of log P and P, [N, C]."""
        if self.sampler is None:
            return
        try:
            log_proposal = self.sampler.log_prob(ids).double()
        except ValueError:
            # A proposal that depends on the example has no log q of a class alone.
            self.sampler = None
            return
        if log_proposal.shape != ids.shape:
            self.sampler = None
            return
        self.log_mass = float(torch.logaddexp(log_proposal.logsumexp(0), _scalar(self.log_mass)))
        # 0 · log 0 = 0: a class the model rules out costs nothing, drawn or not.
        terms = (prob * (log_prob - log_proposal)).masked_fill_(prob == 0, 0.0).sum(-1)
        self.total = terms if self.total is None else self.total + terms

    def divergence(self) -> Tensor | None:
        """Return KL(P ‖ q) of each example, if q sums to 1."""
        # A running estimate of the frequencies, for example, is no distribution.
        usable = self.sampler is not None and abs(self.log_mass) <= _MAX_LOG_MASS
        return self.total if usable else None


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)
