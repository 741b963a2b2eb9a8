"""An n-gram proposal whose probabilities themselves follow the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.declarations import Need, Option, Setup, declare
from widemax.kernels.sampling.ngram import draw_classes, grow_sums, move_mass
from widemax.sampling.base import NUM_SAMPLES
from widemax.sampling.conditional.interpolated import (
    PROPOSAL_ORDER,
    InterpolatedSampler,
    check_draws,
    counted_tables,
    marked,
    table_shape,
)
from widemax.validation import check_fraction

_NUM_BINS = 16
"""Weights are shared by contexts whose counts have the same power of 2; the last has all above."""

_SLOWER_BEYOND = 100
"""Contexts seen more often move that much less a visit: over an epoch, all move about as far."""


@declare.sampler(
    "adaptive-n-gram",
    options=[
        NUM_SAMPLES,
        PROPOSAL_ORDER,
        Option(
            "adaptation_rate",
            0.1,
            "How far a visit moves an n-gram's probability towards the model's; 0 leaves it.",
            most=0.99,
        ),
    ],
    traits=["draws", "corpus", "per-example"],
    needs=[
        Need("model", trait="context", why="draws by what came before the target"),
        Need("head", names=("importance",), why="learns from the weights of its draws"),
    ],
)
class AdaptiveNGramSampler(InterpolatedSampler):
    """Draws from an n-gram model whose weights and probabilities both follow the model's P.

    Formula: p_n(y | c) = λ · q_n(y | c_n) + (1 − λ) · p_{n−1}(y | c), p_0 = 1/V, c_n the last n − 1
    ids of the context, λ one weight for each n and power of 2 of count(c_n), 0 where it was never
    seen. q_n starts as count(c_n, y) / count(c_n). From draws with ratios r = P/p up to a constant
    ``adapt`` moves λ by an EM step; and of the classes J that were drawn, whose scores are known
    and whose mass M stays, q_n(y) ← (1 − ρ) · q_n(y) + ρ · M · r(y)·q_n(y) / Σ_J r·q_n, with
    ρ = ``adaptation_rate`` / max(1, count(c_n) / 100). A share of ``least_uniform`` is uniform.

    Shapes: ``stops`` [order, 16] are the λ; as ``NGramSampler`` otherwise.

    Cost: O(log G) a draw or a change, G the different n-grams of the context; log p by O(order ·
    log G); 8·order bytes an id and 24 bytes a different n-gram, 16 of them in checkpoints. On the
    CPU only.

    Reference: Bengio & Senécal 2008; Jelinek & Mercer 1980 (weights by the count of the context);
    Fenwick 1994 (draws from probabilities that change).

    Use when: importance sampling trains a language model for long, and its proposal should become
    what the model has become. Avoid when: training is short (``NGramSampler``), or another head
    than ``ImportanceHead`` trains: it would learn nothing.

    >>> import torch
    >>> corpus = torch.tensor([0, 1, 0, 1, 0, 2])
    >>> sampler = AdaptiveNGramSampler.from_corpus(corpus, 3, order=2)
    >>> sampler.set_context(torch.tensor([[0]]))
    >>> ids = torch.tensor([[1, 2]])
    >>> for _ in range(100):  # as if P(1 | 0) : P(2 | 0) were 1 : 4
    ...     sampler.adapt(ids, torch.tensor([[1.0, 4.0]]).log() - sampler.log_prob(ids))
    >>> sampler.log_prob(ids).exp().round(decimals=2).tolist()
    [[0.19, 0.71]]
    """

    stops: Tensor
    """λ, float64 [order, 16]: how likely a draw is to stop at an order, by the context's count."""

    _sums: Tensor

    def __init__(
        self,
        num_classes: int,
        tables: Sequence[Tensor],
        *,
        adaptation_rate: float = 0.1,
        least_uniform: float = 0.01,
    ) -> None:
        super().__init__(num_classes, tables, least_uniform=least_uniform, follows=True)
        self.adaptation_rate = check_fraction("adaptation_rate", adaptation_rate)
        half = torch.full((self.order, _NUM_BINS), 0.5, dtype=torch.float64)
        self.register_buffer("stops", half)
        self.register_buffer("_sums", torch.from_numpy(self._grown()))

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run: the n-grams of what is trained on."""
        options = setup.options
        return cls.from_corpus(
            marked(setup.corpus),
            setup.num_classes,
            order=options.proposal_order,
            adaptation_rate=options.adaptation_rate,
        )

    @classmethod
    def from_corpus(
        cls,
        ids: Tensor,
        num_classes: int,
        *,
        order: int = 3,
        adaptation_rate: float = 0.1,
        least_uniform: float = 0.01,
    ) -> Self:
        """Count the n-grams of a 1-D corpus; −1 ends a text, and no n-gram crosses it."""
        tables = counted_tables(ids, num_classes, order)
        return cls(
            num_classes, tables, adaptation_rate=adaptation_rate, least_uniform=least_uniform
        )

    def draw(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return independent draws, int64; their first dimension is that of the context."""
        size = (2, *table_shape(len(self._sizes), shape))
        uniform = torch.rand(size, dtype=torch.float64, generator=generator)
        sums, shares = self._sums.numpy(), self._shares().numpy()
        drawn = draw_classes(self._present(), sums, shares, uniform.numpy())
        return torch.from_numpy(drawn).view(shape)

    @torch.no_grad()
    def adapt(self, ids: Tensor, log_ratios: Tensor, *, rate: float = 0.1) -> None:
        """Move ``stops`` by ``rate`` of an EM step, and n-grams by ``adaptation_rate``, towards P.

        ``ids`` [B, S] are draws, ``log_ratios`` [B, S] = F(x, y) − log q(y) up to a constant of
        the row: their softmax makes the draws a sample of P.
        """
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, got {rate!r}")
        check_draws(ids, log_ratios)
        weights = log_ratios.double().softmax(-1)
        if not ids.numel() or not bool(weights.isfinite().all()):
            return
        shares, expected = self._shares(), self._responsibilities(ids, weights)
        if self.adaptation_rate:
            rows = ids.reshape(table_shape(len(self._sizes), ids.shape)).contiguous()
            ratios = weights / weights.amax(-1, keepdim=True)
            slower = (self._sizes.double() / _SLOWER_BEYOND).clamp(min=1)
            move_mass(
                self._present(),
                self._sums.numpy(),
                rows.numpy(),
                ratios.view(rows.shape).contiguous().numpy(),
                (self.adaptation_rate / slower).numpy(),
            )
        self._move_stops(shares, expected, rate)

    def _move_stops(self, shares: Tensor, expected: Tensor, rate: float) -> None:
        # Of the uniform component, only what does not stem from its fixed share says something.
        expected[:, 0] *= 1 - self.least_uniform / shares[:, 0]
        reached = expected.cumsum(-1)[:, 1:]
        seen, bins = self._sizes > 0, self._bins()
        for order in range(self.order):
            own, rows = seen[:, order], bins[seen[:, order], order]
            if not len(rows):
                continue
            stopped = torch.bincount(rows, expected[own, order + 1], _NUM_BINS)
            came = torch.bincount(rows, reached[own, order], _NUM_BINS)
            moved = torch.lerp(self.stops[order], stopped / came.clamp(min=1e-300), rate)
            self.stops[order] = torch.where(came > 0, moved, self.stops[order])

    def _shares(self) -> Tensor:
        stops = self.stops[torch.arange(self.order), self._bins()] * (self._sizes > 0)
        left = (1 - stops).flip(-1).cumprod(-1).flip(-1)
        beyond = torch.cat([left[:, 1:], torch.ones_like(left[:, :1])], dim=1)
        shares = torch.cat([left[:, :1], stops * beyond], dim=1) * (1 - self.least_uniform)
        shares[:, 0] += self.least_uniform
        return shares

    def _bins(self) -> Tensor:
        """Return the power of 2 of how often each context was seen, int64 [R, order]."""
        powers = torch.frexp(self._sizes.clamp(min=1).double()).exponent - 1
        return powers.long().clamp_(max=_NUM_BINS - 1)

    def _grown(self) -> NDArray[np.float64]:
        """Return the sums to draw by, of every context."""
        contexts = self._distinct.div(self.num_classes, rounding_mode="floor")
        # The mark that ends an order is a context of its own.
        change = contexts.diff(prepend=contexts.new_tensor([-1])) != 0
        change[[level.start for level in self._distinct_levels]] = True
        starts = change.nonzero()[:, 0].numpy()
        stops = np.append(starts[1:], len(contexts))
        return grow_sums(self._probabilities.numpy(), starts, stops)
