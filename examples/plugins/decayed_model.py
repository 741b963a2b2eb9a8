"""A model of your own, with a flag: the mean of a history in which older items count less.

    widemax --plugin examples/plugins/decayed_model.py train log.csv --folder run \
        --model decayed --half-life 3
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import widemax as wm
from widemax.declarations import Setup
from widemax.models.options import DIMENSION, MAX_HISTORY, RETRIEVAL
from widemax.models.retrieval import HistoryModel


class DecayedEncoder(nn.Module):
    """The weighted mean of a history's vectors; the weight halves every ``half_life`` items."""

    def __init__(self, num_classes: int, dimension: int, half_life: float) -> None:
        super().__init__()
        self.items = nn.Embedding(num_classes, dimension)
        self.half_life = half_life

    def forward(self, context: Tensor) -> Tensor:
        """Return the hidden states [B, D] of contexts [B, H], the newest item last."""
        age = torch.arange(context.shape[1] - 1, -1, -1, device=context.device)
        weight = (context >= 0) * 0.5 ** (age / self.half_life)
        vectors = self.items(context.clamp(min=0)) * weight[..., None]
        hidden: Tensor = vectors.sum(1) / weight.sum(1, keepdim=True).clamp(min=1e-6)
        return hidden


@wm.declare.model(
    "decayed",
    options=[
        DIMENSION,
        MAX_HISTORY,
        wm.Option("half_life", 5.0, "Items after which an item counts half.", least=0.1, most=1e4),
    ],
    traits=["gradients", "context", "windows"],
    usual=RETRIEVAL,
)
class DecayedModel(HistoryModel):
    """The next item from a mean of the history in which older items count less."""

    @classmethod
    def build(cls, setup: Setup) -> DecayedModel:
        """Return the untrained model of a run."""
        options = setup.options
        encoder = DecayedEncoder(setup.num_classes, options.dimension, options.half_life)
        return cls(encoder, setup.head(options.dimension))
