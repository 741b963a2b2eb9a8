"""The next item from what a user does now, and from what they did before."""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from widemax.data import WindowBatch
from widemax.declarations import Option, Setup, declare
from widemax.declarations.shared import ITEM_FEATURES
from widemax.encoders.sdm import SDMEncoder
from widemax.models.options import (
    DIMENSION,
    DROPOUT,
    MAX_HISTORY,
    NUM_ATTENTION_HEADS,
    RETRIEVAL,
    USER_FEATURES,
)
from widemax.models.retrieval.history import HistoryModel, Negatives, softmax_head
from widemax.scoring.table import Similarity


@declare.model(
    "sdm",
    options=[
        DIMENSION,
        NUM_ATTENTION_HEADS,
        DROPOUT,
        MAX_HISTORY,
        USER_FEATURES,
        ITEM_FEATURES,
        Option("short", 10, "Last items that are the present session.", least=1, most=10_000),
    ],
    traits=["gradients", "context", "windows"],
    usual={**RETRIEVAL, "num_attention_heads": 2},
)
class SDM(HistoryModel):
    """The next item of a user from their last items in order and a summary of the others.

    Formula: P(y | context, user) by the head of ``SDMEncoder``'s user vector.

    Reference: Lv et al. 2019. Logs do not say where a session begins: the last ``short`` items
    stand for the current one.

    Use when: the last few items say what is wanted now. Avoid when: logs have no order
    (``YouTubeDNN``).

    >>> import torch
    >>> from widemax.data import Sequences
    >>> _ = torch.manual_seed(0)
    >>> model = SDM.create(torch.arange(100, 0, -1), dimension=8, short=2, num_samples=20)
    >>> log = Sequences.from_lists([[4, 0, 2, 9, 7]])
    >>> batch = model.windows(log, max_history=5, window=1).batch(torch.arange(4))
    >>> model(batch, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([4])
    """

    encoder: SDMEncoder

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        options = setup.options
        encoder = SDMEncoder(
            setup.num_classes,
            options.dimension,
            short=min(options.short, options.max_history),
            num_heads=options.num_attention_heads,
            item_codes=setup.side_information()[0],
            user_features=setup.user_encoder(),
            dropout=options.dropout,
        )
        return cls(encoder, setup.head(options.dimension, items=encoder.items))

    @classmethod
    def create(
        cls,
        counts: Tensor,
        *,
        dimension: int = 64,
        short: int = 10,
        num_heads: int = 2,
        num_layers: int = 1,
        item_codes: Tensor | None = None,
        tied: bool = True,
        user_features: nn.Module | None = None,
        dropout: float = 0.0,
        num_samples: int | None = None,
        negatives: Negatives = "uniform",
        similarity: Similarity = "dot",
        temperature: float = 1.0,
    ) -> Self:
        """Return an untrained model for classes of these counts, with ``softmax_head``."""
        encoder = SDMEncoder(
            len(counts),
            dimension,
            short=short,
            num_heads=num_heads,
            num_layers=num_layers,
            item_codes=item_codes,
            user_features=user_features,
            dropout=dropout,
        )
        head = softmax_head(
            counts,
            encoder.items,
            tied=tied,
            num_samples=num_samples,
            negatives=negatives,
            similarity=similarity,
            temperature=temperature,
        )
        return cls(encoder, head)

    def hidden(self, batch: WindowBatch) -> Tensor:
        """Return the user vectors, [B, D]."""
        hidden: Tensor = self.encoder(batch.context, batch.users)
        return hidden
