"""A sampler of your own: one file, known by name as soon as it is imported.

    widemax --plugin examples/plugins/smoothed_sampler.py train log.csv --folder run \
        --sampler smoothed-unigram --smoothing-count 5
"""

from __future__ import annotations

import torch
from torch import Tensor

import widemax as wm
from widemax.sampling import DrawnSampler


@wm.declare.sampler(
    "smoothed-unigram",
    options=[
        wm.Option("num_samples", 1024, "Classes drawn for each batch.", least=1, most=2**28),
        wm.Option("smoothing_count", 1.0, "Added to every count.", least=1e-6, most=1e6),
    ],
    traits=["draws", "mixes"],
)
class SmoothedUnigramSampler(DrawnSampler):
    """Draws classes in proportion to their counts plus a constant.

    Formula: p(y) = (count(y) + s) / Σ (count + s).

    >>> sampler = SmoothedUnigramSampler(2, torch.tensor([3, 0]), smoothing_count=1.0)
    >>> sampler.log_prob(torch.arange(2)).exp().tolist()
    [0.8, 0.2]
    """

    def __init__(self, num_classes: int, counts: Tensor, *, smoothing_count: float) -> None:
        super().__init__(num_classes)
        weights = counts.double() + smoothing_count
        self.register_buffer("probability", weights / weights.sum(), persistent=False)

    def draw(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return independent draws."""
        size = torch.Size(shape).numel()
        drawn = torch.multinomial(self.probability, size, replacement=True, generator=generator)
        return drawn.view(shape)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y) of one draw."""
        return self.probability[ids].log()
