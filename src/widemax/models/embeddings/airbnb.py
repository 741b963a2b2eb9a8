"""Airbnb's listing embeddings: skip-gram that knows what a session led to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from widemax.data import Sequences, WindowBatch, Windows
from widemax.declarations import Option, Setup, declare
from widemax.declarations.shared import ITEM_FEATURES
from widemax.encoders import BagEncoder
from widemax.heads import Head, ScorerHead
from widemax.models.embeddings.item2vec import Item2Vec
from widemax.models.embeddings.new_items import (
    nearest_known,
    place_new_classes,
    place_new_items,
)
from widemax.models.options import (
    DIMENSION,
    GOAL_COLUMN,
    MAX_HISTORY,
    NEIGHBOURS,
    SESSION_GAP,
    SUBSAMPLE,
    WINDOW,
)
from widemax.scoring.rows import gather_rows
from widemax.validation import ABSENT, check_tensor


@dataclass(frozen=True, kw_only=True)
class GoalBatch(WindowBatch):
    """Some targets with the items around each, and the item that each led to."""

    goals: Tensor
    """int64 [B], -1 where there is none."""


class GoalWindows(Windows):
    """One example for each position: the item there, those around it, and what it led to.

    It led to the first item at or after it in the session that was booked (or bought, or applied
    for): -1 if there is none, or if it is the item itself. ``goals`` bool [T] is True where an item
    was booked; without it, the last of a session was.

    >>> sessions = Sequences.from_lists([[4, 0, 2, 1], [3, 5]])
    >>> booked = torch.tensor([False, True, False, False, False, True])
    >>> windows = GoalWindows(sessions, window=1, goals=booked)
    >>> windows.batch(torch.arange(6)).goals.tolist()
    [0, -1, -1, -1, 5, -1]
    """

    def __init__(
        self,
        sequences: Sequences,
        *,
        window: int,
        goals: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        super().__init__(
            sequences, before=window, after=window, positions=positions, require_context=True
        )
        self._goals = _goal_items(sequences, _check_goals(goals, sequences))

    def batch(self, rows: Tensor) -> GoalBatch:
        """Return the examples ``rows`` [B]."""
        batch = super().batch(rows)
        positions = rows if self.positions is None else self.positions[rows]
        return GoalBatch(**vars(batch), goals=self._goals[positions])


@declare.model(
    "airbnb",
    options=[
        DIMENSION,
        WINDOW,
        SUBSAMPLE,
        SESSION_GAP,
        MAX_HISTORY,
        GOAL_COLUMN,
        ITEM_FEATURES,
        Option(
            "new_item_neighbours",
            3,
            "Known items, those with most features in common, whose mean vector a new item gets.",
            least=1,
            most=1000,
            of_features=True,
        ),
    ],
    traits=["gradients", "new-items"],
    usual={
        **NEIGHBOURS,
        "dimension": 32,
        "sampler": "mixture",
        "mixture": "unigram=1, market=1",
        # Negatives drawn alike leave the popularity of items in the scores, which is wanted here.
        "distortion": 0.0,
        "learning_rate": 0.2,
        "window": 5,
        "epochs": 4,
        "max_history": 5,
    },
)
class Airbnb(Item2Vec):
    """Item2Vec that draws clicks towards what was booked, and separates the items of a market.

    Formula: the pairs of ``SkipGram``, and for every click l whose session led to a booking b, as
    if b stood in its window however far it is, −log P(b | u(l)) − log P(l | u(b)); negatives are
    drawn from all items and, by the weight that ``mixture`` gives it, from the market of the
    target, which is its first categorical feature.

    Reference: Grbovic & Cheng, "Real-time Personalization using Embeddings for Search Ranking at
    Airbnb", 2018.

    Use when: sessions of clicks end in bookings, and are mostly of one market; items that nobody
    has seen yet must be found too. Avoid when: there are neither goals nor markets (``Item2Vec``).

    An item that no session has, but the file of features, gets the mean of the vectors of the
    ``new_item_neighbours`` known items of its market that share most of its other categorical
    features, and among these are nearest by its numbers (``nearest_known``). The paper takes the 3
    nearest by distance among those of the same type and price. It does so whenever the model is
    put into ``eval`` mode, for the vectors u and, in a table, o; training does not change them.

    The paper predicts the booking from the click alone, without negatives; here it is a pair like
    all others of a window: predicted both ways, so that the vectors u of both come near, and by any
    head. Without ``goal_column`` the last item of each session is what it led to.
    There is one loss for each pair: those of the windows, of bookings from clicks, of clicks
    from bookings. ``subsample`` thins the windows, never the goals. Trained with gradients.

    >>> import polars as pl
    >>> from widemax.data import FeatureTable
    >>> homes = pl.DataFrame({"id": range(4), "city": ["Rome", "Rome", "Oslo", "Oslo"]})
    >>> cities = FeatureTable.fit(homes, [0, 1, 2, 3], key_column="id")
    >>> model = Airbnb.create([9, 8, 7, 6], item_features=cities, dimension=4)
    >>> sessions = Sequences.from_lists([[1, 1, 0], [3, 2]])
    >>> windows = model.windows(sessions, max_history=1, window=9)
    >>> losses = model(windows.batch(torch.arange(5)), generator=torch.Generator().manual_seed(0))
    >>> round(losses[-1].item(), 4)  # 11 scores of 0: log 2 each
    7.6246

    A home in Oslo that nobody has seen:

    >>> model = Airbnb.create([9, 8, 7, 0], item_features=cities, dimension=4).eval()
    >>> torch.equal(model.key_vectors()[3], model.key_vectors()[2])
    True
    """

    nearest: Tensor
    asks_head_once = False

    def __init__(
        self,
        encoder: BagEncoder,
        head: Head,
        *,
        keep: Tensor | None = None,
        nearest: Tensor | None = None,
    ) -> None:
        super().__init__(encoder, head, keep=keep)
        if nearest is None:
            nearest = torch.full((encoder.num_classes, 1), ABSENT)
        # What was seen in training is not known where a run is loaded.
        self.register_buffer("nearest", nearest)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        model = super().build(setup)
        model.nearest = _nearest(setup)
        return model

    def table_answers(self) -> dict[str, str | float]:
        """Return how its tables answer; those of new items are made when the model is loaded."""
        return {} if bool((self.nearest >= 0).any()) else super().table_answers()

    def vectors_name(self) -> str:
        """Return which tensor has the vectors; none where those of new items are yet to be made."""
        return "" if bool((self.nearest >= 0).any()) else super().vectors_name()

    def train(self, mode: bool = True) -> Self:
        """Change the mode; new items get the vectors of their neighbours as these are now."""
        if not mode:
            place_new_items(self.encoder.weight.data, self.nearest)
            if isinstance(self.head, ScorerHead):
                place_new_classes(self.head.scorer, self.nearest)
        return super().train(mode)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any, **options: Any
    ) -> None:
        """Load what was saved; a model from before new items had vectors has none of them."""
        state_dict.setdefault(f"{prefix}nearest", torch.full_like(self.nearest, ABSENT))
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)

    def examples(self, setup: Setup, sequences: Sequences) -> GoalWindows:
        """Return the windows of clicks with what each led to."""
        return self.windows(
            sequences,
            max_history=setup.options.max_history,
            window=setup.options.window,
            goals=setup.goals,
        )

    @staticmethod
    def windows(
        sequences: Sequences,
        *,
        max_history: int,
        window: int,
        positions: Tensor | None = None,
        goals: Tensor | None = None,
    ) -> GoalWindows:
        """Return each item with its neighbours and its goal; one that is alone is no example."""
        return GoalWindows(sequences, window=window, positions=positions, goals=goals)

    def forward(self, batch: WindowBatch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the training loss of each pair: of windows, then of clicks and goals."""
        losses = super().forward(batch, generator=generator)
        if not isinstance(batch, GoalBatch):
            return losses
        leads = batch.goals >= 0
        if not bool(leads.any()):
            return losses
        clicks, goals = batch.targets[leads], batch.goals[leads]
        hidden = gather_rows(self.encoder.weight, torch.cat([clicks, goals]), sparse=True)
        goal_losses: Tensor = self.head(hidden, torch.cat([goals, clicks]), generator=generator)
        return torch.cat([losses, goal_losses])


def _nearest(setup: Setup) -> Tensor:
    """Return the known items that are most like each new one, int64 [V, k], -1 for none."""
    k = setup.options.new_item_neighbours
    codes, _ = setup.side_information()
    if codes is None:
        return torch.full((setup.num_classes, k), ABSENT)
    counts = setup.counts
    if setup.corpus is not None:
        # Without those that only held-out users chose.
        counts = torch.bincount(setup.corpus.values, minlength=setup.num_classes)
    return nearest_known(codes, counts > 0, k, numbers=setup.item_features.numbers)


def _check_goals(goals: Tensor | None, sequences: Sequences) -> Tensor:
    """Return which items were booked, bool [T]; None: the last of each session."""
    if goals is None:
        goals = torch.zeros(len(sequences.values), dtype=torch.bool)
        goals[sequences.offsets[1:][sequences.lengths > 0] - 1] = True
    if check_tensor("goals", goals).shape != sequences.values.shape or goals.dtype != torch.bool:
        raise ValueError(
            f"goals must be bool [{len(sequences.values):,}], one for each value, got "
            f"{goals.dtype} {list(goals.shape)}"
        )
    return goals


def _goal_items(sequences: Sequences, goals: Tensor) -> Tensor:
    """Return the item that each position led to, int64 [T], -1 for none."""
    values = sequences.values
    if not len(values):
        return values
    beyond = len(values)
    places = torch.where(goals, torch.arange(beyond), beyond)
    following = places.flip(0).cummin(0).values.flip(0)
    ends = sequences.offsets[1:].repeat_interleave(sequences.lengths)
    items = values[following.clamp(max=beyond - 1)]
    return items.masked_fill((following >= ends) | (items == values), ABSENT)
