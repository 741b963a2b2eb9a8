"""An interpolated n-gram model as a proposal that knows the context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from widemax.declarations import Need, Setup, declare
from widemax.sampling.base import NUM_SAMPLES
from widemax.sampling.conditional.interpolated import (
    PROPOSAL_ORDER,
    InterpolatedSampler,
    check_draws,
    counted_tables,
    marked,
    table_shape,
)
from widemax.validation import check_not_negative


@declare.sampler(
    "n-gram",
    options=[NUM_SAMPLES, PROPOSAL_ORDER],
    traits=["draws", "corpus", "per-example"],
    needs=[Need("model", trait="context", why="draws by what came before the target")],
)
class NGramSampler(InterpolatedSampler):
    """Draws from an interpolated n-gram model of the context, which may follow the model's P.

    Formula: p(y | c) = w_0/V + Σ_n w_n · count(c_n, y) / count(c_n), with c_n the last n − 1 ids of
    the context; the weights of orders whose c_n was never seen are shared among the others.
    ``adapt`` moves w by one EM step towards the model's P, of which a weighted sample is given.

    Shapes: ``weights`` [order + 1]; context [B, order − 1], oldest id first, −1 where there is
    none; candidates [B, S]. A context of one row holds for every row.

    Cost: O(1) a draw; log p by O(order · log G), G the different n-grams of the context; 8·order
    bytes an id and 16 bytes a different n-gram.

    Reference: Bengio & Senécal 2003, 2008; Jelinek & Mercer 1980 (interpolation by EM).

    Use when: classes follow a short context (words in text) and importance sampling needs a
    proposal close to the model. Avoid when: there is no such context (``UnigramSampler``).

    ``sample`` has no argument for the context: call ``set_context`` before the head's forward, with
    the rows the head will see (an ignored example has none; ``ImportanceHead`` takes ``context``
    and does both). Without a context the unigram remains.

    >>> import torch
    >>> sampler = NGramSampler.from_corpus(torch.tensor([0, 1, 0, 1, 0, 2]), 3, order=2)
    >>> sampler.set_context(torch.tensor([[0], [1]]))
    >>> every_class = torch.arange(3).expand(2, 3)
    >>> sampler.log_prob(every_class).exp().round(decimals=3).tolist()
    [[0.278, 0.444, 0.278], [0.611, 0.222, 0.167]]
    """

    weights: Tensor
    """Interpolation weights: [0] of the uniform distribution, [n] of the n-gram."""

    def __init__(
        self,
        num_classes: int,
        tables: Sequence[Tensor],
        *,
        weights: Sequence[float] | None = None,
        least_uniform: float = 0.01,
    ) -> None:
        super().__init__(num_classes, tables, least_uniform=least_uniform)
        start = torch.tensor(_normalized_weights(weights, self.order), dtype=torch.float64)
        self.register_buffer("weights", _with_floor(start, least_uniform))

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run: the n-grams of what is trained on."""
        ids, order = marked(setup.corpus), setup.options.proposal_order
        return cls.from_corpus(ids, setup.num_classes, order=order)

    @classmethod
    def from_corpus(
        cls,
        ids: Tensor,
        num_classes: int,
        *,
        order: int = 3,
        weights: Sequence[float] | None = None,
        least_uniform: float = 0.01,
    ) -> Self:
        """Count the n-grams of a 1-D corpus; −1 ends a text, and no n-gram crosses it."""
        tables = counted_tables(ids, num_classes, order)
        return cls(num_classes, tables, weights=weights, least_uniform=least_uniform)

    def draw(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return independent draws, int64; their first dimension is that of the context."""
        size = (2, *table_shape(len(self._sizes), shape))
        uniform = torch.rand(
            size, dtype=torch.float64, device=self._keys.device, generator=generator
        )
        # The uniform component comes last: its share is above 0, whatever rounding does.
        cumulative = self._shares().flip(-1).cumsum(-1)
        picked = torch.searchsorted(cumulative, uniform[0], right=True).clamp_(max=self.order)
        order = self.order - picked
        level = (order - 1).clamp_(min=0)
        count = torch.where(order > 0, self._sizes.gather(1, level), self.num_classes)
        place = (uniform[1] * count).long().clamp_(max=count - 1)
        # Every occurrence of a context is one entry: a random one is a draw by count.
        entry = torch.where(order > 0, self._starts.gather(1, level) + place, 0)
        return torch.where(order > 0, self._keys[entry] % self.num_classes, place).view(shape)

    @torch.no_grad()
    def adapt(self, ids: Tensor, log_ratios: Tensor, *, rate: float = 0.1) -> None:
        """Move ``weights`` by ``rate`` of an EM step towards the model's P(y | context).

        ``ids`` [B, S] are draws, ``log_ratios`` [B, S] = F(x, y) − log q(y) up to a constant of
        the row: their softmax makes the draws a sample of P.
        """
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, got {rate!r}")
        check_draws(ids, log_ratios)
        if not ids.numel():
            return
        expected = self._responsibilities(ids, log_ratios.double().softmax(-1))
        # An order that was never seen counts as picked and rejected, w_n / W times for each draw
        # that was kept: the EM of a truncated mixture.
        seen = self._seen()
        kept = (self.weights * seen).sum(-1, keepdim=True)
        counts = torch.where(seen, expected, self.weights / kept).sum(0)
        if bool(counts.isfinite().all()):
            moved = torch.lerp(self.weights, counts / counts.sum(), rate)
            self.weights.copy_(_with_floor(moved, self.least_uniform))

    def _seen(self) -> Tensor:
        """Return which components each context has, bool [R, order + 1]."""
        always = torch.ones_like(self._sizes[:, :1], dtype=torch.bool)
        return torch.cat([always, self._sizes > 0], dim=1)

    def _shares(self) -> Tensor:
        """Return the weights of each context's components, 0 where unseen, [R, order + 1]."""
        share = self.weights * self._seen()
        return share / share.sum(-1, keepdim=True)


def _normalized_weights(weights: Sequence[float] | None, order: int) -> list[float]:
    """Return ``order`` + 1 interpolation weights that sum to 1; None: all equal."""
    if weights is None:
        return [1 / (order + 1)] * (order + 1)
    if len(weights) != order + 1:
        raise ValueError(f"weights must hold order + 1 = {order + 1} values, got {len(weights)}")
    values = [check_not_negative(f"weights[{n}]", weight) for n, weight in enumerate(weights)]
    if not any(values):
        raise ValueError(f"weights must not all be 0, got {values}")
    return [value / sum(values) for value in values]


def _with_floor(weights: Tensor, floor: float) -> Tensor:
    """Return weights that sum to 1 with the first, the uniform one, at least ``floor``."""
    uniform = weights[:1].clamp(min=floor)
    rest = weights[1:].sum()
    scaled = weights[1:] * torch.where(rest > 0, (1 - uniform) / rest, 0.0)
    return torch.cat([uniform if bool(rest > 0) else torch.ones_like(uniform), scaled])
