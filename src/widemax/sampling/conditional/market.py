"""Negatives from the market of the target: classes that could have been chosen instead."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.candidates import Candidates
from widemax.declarations import Setup, declare
from widemax.declarations.shared import ITEM_FEATURES
from widemax.kernels.sampling import alias as kernel
from widemax.sampling.base import DISTORTION, NUM_SAMPLES, Sampler, absent_as_zero
from widemax.sampling.conditional.interpolated import table_shape
from widemax.sampling.unigram import MAX_ALIAS_CLASSES
from widemax.validation import (
    Counts,
    as_int64,
    check_ids,
    check_num_samples,
    check_targets,
    distorted_weights,
)


@declare.sampler(
    "market",
    options=[NUM_SAMPLES, DISTORTION, ITEM_FEATURES],
    traits=["mixes", "per-example"],
)
class MarketSampler(Sampler):
    """Draws for each example classes of its target's market, by a power of their counts.

    Formula: p(y | target t) = count(y)^distortion / Σ count^distortion over the classes of t's
    market, 0 for all others and for classes of count 0. A market without any count is uniform.

    Shapes: ``markets`` int64 [V], the market of each class; counts [V]; candidates [B, S]. Of
    targets [B, T] the first present one decides the market.

    Cost: O(1) a draw by an alias table for each market, all in one array; 36 bytes a class.

    Reference: Grbovic & Cheng, "Real-time Personalization using Embeddings for Search Ranking at
    Airbnb", 2018.

    Use when: nearly everything in one session is of one market (a city, a category, a language),
    so that negatives from elsewhere teach only the market. Mix it with a
    ``UnigramSampler(per_example=True)``. Avoid when: it is the only sampler: nothing would keep
    the markets apart.

    In a run, the market of an item is its first categorical feature.

    ``log_prob`` is that of the markets of the last ``sample``, or of ``set_markets``.

    >>> import torch
    >>> sampler = MarketSampler(torch.tensor([0, 0, 1, 1]), [9, 1, 1, 3], distortion=1.0)
    >>> sampler.set_markets(torch.tensor([0, 1]))
    >>> sampler.log_prob(torch.arange(4).expand(2, 4)).exp().round(decimals=6).tolist()
    [[0.9, 0.1, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]]
    >>> sampler.sample(6, torch.tensor([0, 3])).ids[1].ge(2).all()
    tensor(True)
    """

    per_example = True

    _markets: Tensor
    _starts: Tensor
    _members: Tensor
    _thresholds: Tensor
    _aliases: Tensor
    _log_prob: Tensor
    _row_markets: Tensor

    def __init__(self, markets: Tensor, counts: Counts, *, distortion: float = 0.75) -> None:
        markets = as_int64("markets", markets)
        if markets.dim() != 1 or not len(markets) or int(markets.min()) < 0:
            raise ValueError(
                "markets must hold one id of at least 0 for each class, got "
                f"{list(markets.shape)} from {int(markets.min()) if markets.numel() else 'nothing'}"
            )
        super().__init__(len(markets), limit=MAX_ALIAS_CLASSES)
        weights = distorted_weights(counts, len(markets), distortion)
        # Market ids need not be consecutive: one without classes would have an empty table.
        self.names, place = torch.unique(markets, return_inverse=True)
        members = place.argsort(stable=True)
        sizes = torch.bincount(place)
        starts = sizes.cumsum(0) - sizes
        tables = _tables(weights[members.numpy()], starts.tolist(), sizes.tolist())
        self.register_buffer("_markets", place, persistent=False)
        self.register_buffer("_starts", torch.stack([starts, sizes]), persistent=False)
        self.register_buffer("_members", members, persistent=False)
        self.register_buffer("_thresholds", torch.from_numpy(tables[0]), persistent=False)
        self.register_buffer("_aliases", torch.from_numpy(tables[1]), persistent=False)
        log_prob = torch.empty(len(markets), dtype=torch.float64)
        log_prob[members] = torch.from_numpy(tables[2])
        self.register_buffer("_log_prob", log_prob, persistent=False)
        self.register_buffer("_row_markets", place.new_zeros(1), persistent=False)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run; the market of an item is its first categorical feature."""
        return cls(setup.item_codes(), setup.counts, distortion=setup.options.distortion)

    def set_markets(self, markets: Tensor) -> None:
        """Set the market of each row of ``log_prob``, [B], or [1] for all."""
        markets = as_int64("markets", markets).cpu()
        place = torch.searchsorted(self.names, markets).clamp(max=len(self.names) - 1)
        unknown = self.names[place] != markets
        if bool(unknown.any()):
            raise ValueError(f"markets must be those of classes, got {int(markets[unknown][0]):,}")
        self._row_markets = place.to(self._markets.device)

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Draw ``num_samples`` classes of each target's market."""
        targets = check_targets(targets, self.num_classes)
        num_samples = check_num_samples(num_samples, rows=len(targets))
        self._row_markets = self._markets[_first_present(targets)]
        ids = self._draw(num_samples, generator)
        log_size = math.log(num_samples)
        target_log_prob = self.log_prob(targets.clamp(min=0))
        return Candidates(
            ids=ids,
            log_expected_count=self._log_prob[ids] + log_size,
            target_log_expected_count=absent_as_zero(target_log_prob + log_size, targets),
        )

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y | market) for ids [B] or [B, S], or of any shape with one market."""
        ids = check_ids("ids", ids, self.num_classes)
        table = ids.reshape(table_shape(len(self._row_markets), ids.shape))
        here = self._markets[table] == self._row_markets[:, None]
        return self._log_prob[table].masked_fill(~here, -math.inf).view(ids.shape)

    def _draw(self, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """Return draws from the market of each row, [B, S]."""
        starts, sizes = self._starts[:, self._row_markets, None]
        uniform = torch.rand(
            (2, len(self._row_markets), num_samples),
            dtype=torch.float64,
            device=self._markets.device,
            generator=generator,
        )
        column = starts + (uniform[0] * sizes).long().clamp_(max=sizes - 1)
        own = uniform[1] < self._thresholds[column]
        return self._members[torch.where(own, column, self._aliases[column])]


def _first_present(targets: Tensor) -> Tensor:
    """Return the first present target of each row, [B]."""
    if targets.dim() == 1:
        return targets
    first = (targets >= 0).int().argmax(-1, keepdim=True)
    return targets.gather(1, first)[:, 0].clamp(min=0)


def _tables(
    weights: NDArray[np.float64], starts: list[int], sizes: list[int]
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float64]]:
    """Return thresholds, aliases and log p of classes that are sorted by market."""
    thresholds = np.empty(len(weights), np.float32)
    aliases = np.empty(len(weights), np.int64)
    log_prob = np.empty(len(weights))
    for start, size in zip(starts, sizes, strict=True):
        market = slice(start, start + size)
        own = weights[market]
        if not own.any():
            own = np.ones(size)
        scaled = kernel.scaled_weights(own)
        table = kernel.build_alias_table(scaled)
        thresholds[market] = table.view(np.float32)[:, 0]
        aliases[market] = table[:, 1].astype(np.int64) + start
        # As the table rounds it: what has no mass there is never drawn.
        with np.errstate(divide="ignore"):
            log_prob[market] = np.log(scaled.astype(np.float32) / np.float64(size))
    return thresholds, aliases, log_prob
