"""The next item from what a user does now, and from what they did before."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from widemax.data import WindowBatch
from widemax.declarations import Option, Setup, declare
from widemax.declarations.shared import FEATURE_DIMENSION, ITEM_FEATURES
from widemax.encoders.sdm import SDMEncoder
from widemax.models.options import (
    DIMENSION,
    DROPOUT,
    LSTM_LAYERS,
    MAX_HISTORY,
    NUM_ATTENTION_HEADS,
    RETRIEVAL,
    TIED,
    USER_FEATURES,
    WEIGHTS,
)
from widemax.models.retrieval.history import HistoryModel


@declare.model(
    "sdm",
    options=[
        DIMENSION,
        NUM_ATTENTION_HEADS,
        DROPOUT,
        MAX_HISTORY,
        USER_FEATURES,
        *WEIGHTS,
        ITEM_FEATURES,
        TIED,
        FEATURE_DIMENSION,
        LSTM_LAYERS,
        Option(
            "short",
            0,
            "How many of the last items form the current session, fewer than max_history; 0 takes "
            "a fifth of max_history.",
            most=10_000,
        ),
    ],
    traits=["gradients", "context", "windows"],
    usual={**RETRIEVAL, "num_attention_heads": 2},
)
class SDM(HistoryModel):
    """The next item of a user from their last items in order and a summary of the others.

    Formula: P(y | context, user) by the head of ``SDMEncoder``'s user vector.

    Reference: Lv et al. 2019. Logs do not say where a session begins: the last ``short`` items
    stand for the current one, by default a fifth of ``max_history``; the others are the long-term
    half.

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
            short=_session_length(options.short, options.max_history),
            num_heads=options.num_attention_heads,
            num_layers=options.lstm_layers,
            item_codes=setup.side_information()[0],
            user_features=setup.user_encoder(),
            dropout=options.dropout,
        )
        items = encoder.items if options.tied else None
        return cls(encoder, setup.head(options.dimension, items=items))

    def hidden(self, batch: WindowBatch) -> Tensor:
        """Return the user vectors, [B, D]."""
        hidden: Tensor = self.encoder(batch.context, batch.users)
        return hidden


def _session_length(short: int, max_history: int) -> int:
    """Return how many of the last items are the session, so that others are left before it."""
    if not short:
        return max(1, max_history // 5)
    if short >= max_history:
        raise ValueError(
            f"short must be below max_history = {max_history:,}, got {short:,}: nothing would be "
            "left for the long-term half"
        )
    return short
