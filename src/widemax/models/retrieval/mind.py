"""A user as several interests, of which the one that fits an item best scores it."""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor

from widemax.data import WindowBatch
from widemax.declarations import Option, Setup, declare
from widemax.declarations.shared import FEATURE_DIMENSION
from widemax.encoders.mind import MINDEncoder
from widemax.heads import Head
from widemax.heads.base import InterestsHead
from widemax.models.options import (
    DIMENSION,
    DROPOUT,
    LAST_FEW,
    LAST_ITEMS,
    MAX_HISTORY,
    TIED,
    USER_FEATURES,
    WEIGHTS,
)
from widemax.models.retrieval.history import HistoryModel
from widemax.scoring.base import LAYER_SIZE, NUM_LAYERS
from widemax.validation import check_not_negative

_GAIN = 8.0
_BEST_ALONE = 1000.0
"""The attention power that stands for an infinite one, which no file of settings can hold."""


@declare.model(
    "mind",
    options=[
        DIMENSION,
        NUM_LAYERS,
        LAYER_SIZE,
        DROPOUT,
        MAX_HISTORY,
        USER_FEATURES,
        *WEIGHTS,
        TIED,
        FEATURE_DIMENSION,
        Option("num_interests", 4, "Vectors of each user, one per interest.", least=1, most=64),
        Option("routing_iterations", 3, "Iterations of capsule routing.", least=1, most=100),
        Option(
            "initial_gain",
            _GAIN,
            "What interests, which are shorter than 1, are multiplied by at first where similarity "
            "is dot; it is learned.",
            least=1e-3,
            most=1e3,
        ),
        Option(
            "attention_power",
            _BEST_ALONE,
            "How much the interests that fit a target best outweigh the others in training: 0 is "
            f"the mean of all, {_BEST_ALONE:,.0f} the best alone.",
            most=_BEST_ALONE,
        ),
    ],
    traits=["gradients", "context", "windows"],
    # A few items have too few interests, at most the logarithm of their number.
    usual={**LAST_ITEMS, "max_history": LAST_FEW},
)
class MIND(HistoryModel):
    """The next item of a user who has several interests.

    Formula: an item scores max_k F(x_k, y) over the interests x_k of ``MINDEncoder``, for which
    top-k asks the head K times. To train, all others score so, and the target F(Σ_k a_k·x_k, t)
    with a_k ∝ exp(F(x_k, t))^p: p = 0 is the mean of the interests, p = inf the best alone, which
    trains on the scores that serve. The loss is the head's; a head that does not train on one score
    for each class (all but ``full`` and ``sampled``) gets Σ_k a_k·x_k as its hidden state.

    Reference: Li et al. 2019. There F itself is raised to p within the softmax, which an even p
    inverts where F is below 0; here exp(F) is.

    Use when: users want different things at different times. Avoid when: histories are short, or
    one vector is enough (``YouTubeDNN``).

    >>> from widemax.data import Sequences
    >>> _ = torch.manual_seed(0)
    >>> model = MIND.create(torch.arange(100, 0, -1), dimension=8, num_interests=2, num_samples=20)
    >>> log = Sequences.from_lists([[4, 0, 2, 9, 7]])
    >>> batch = model.windows(log, max_history=5, window=1).batch(torch.arange(4))
    >>> model.hidden(batch).shape, model(batch).shape, model.topk(batch, 3).ids.shape
    (torch.Size([4, 2, 8]), torch.Size([4]), torch.Size([4, 3]))
    """

    encoder: MINDEncoder

    def __init__(self, encoder: MINDEncoder, head: Head, *, power: float = math.inf) -> None:
        super().__init__(encoder, head)
        self.power = power if power == math.inf else check_not_negative("power", power)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        options = setup.options
        if options.initial_gain != _GAIN and getattr(options, "similarity", "") == "cosine":
            raise ValueError(
                "initial_gain has no effect with similarity = 'cosine', for which interests of all "
                f"lengths are alike, got {options.initial_gain}"
            )
        encoder = MINDEncoder(
            setup.num_classes,
            options.dimension,
            (options.hidden_size,) * options.num_layers,
            num_interests=options.num_interests,
            iterations=options.routing_iterations,
            initial_gain=options.initial_gain,
            user_features=setup.user_encoder(),
            dropout=options.dropout,
        )
        items = encoder.items if options.tied else None
        power = options.attention_power
        return cls(
            encoder,
            setup.head(options.dimension, items=items),
            power=math.inf if power == _BEST_ALONE else power,
        )

    def hidden(self, batch: WindowBatch) -> Tensor:
        """Return the interests of the users, [B, K, D]."""
        interests: Tensor = self.encoder(batch.context, batch.users)
        return interests

    def trained_on(self, batch: WindowBatch, generator: torch.Generator | None) -> Tensor:
        """Return the users as their targets see them, [B, D]."""
        return self.attend(self.hidden(batch), batch.targets)

    def forward(self, batch: WindowBatch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the training loss of each example, [B]."""
        interests = self.hidden(batch)
        user = self.attend(interests, batch.targets)
        if interests.shape[1] == 1 or not isinstance(self.head, InterestsHead):
            return self.losses(user, batch.targets, batch.context, generator)
        self.tell_context(batch.context)
        return self.head.interest_losses(interests, user, batch.targets, generator=generator)

    def attend(self, interests: Tensor, targets: Tensor) -> Tensor:
        """Return the interests [B, K, D] as one user vector [B, D], as the targets [B] see them."""
        rows, count, _ = interests.shape
        if count == 1:
            return interests[:, 0]
        # An ignored target is not a class: read as class 0, and its loss does not count.
        asked = targets.clamp(min=0).repeat_interleave(count)[:, None]
        hard = self.power == math.inf
        with torch.set_grad_enabled(torch.is_grad_enabled() and not hard):
            scores = self.head.scores(interests.flatten(0, 1), asked).view(rows, count)
        if hard:
            best = scores.argmax(1)
            return interests[torch.arange(rows, device=best.device), best]
        weights = (self.power * scores).softmax(1)
        return (weights[:, None] @ interests)[:, 0]

    def extra_repr(self) -> str:
        """Return what ``print(model)`` shows."""
        return f"power={self.power}"
