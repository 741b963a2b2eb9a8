"""Airbnb's type embeddings: users and items by type in one space, from bookings and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from widemax.data import FeatureTable, Sequences, WindowBatch, Windows
from widemax.declarations import Option, Setup, declare
from widemax.declarations.shared import ITEM_FEATURES
from widemax.heads import FullHead
from widemax.models.base import Model
from widemax.models.embeddings.word2vec import nothing_to_learn
from widemax.models.options import (
    DIMENSION,
    GOAL_COLUMN,
    MAX_HISTORY,
    NEIGHBOURS,
    USER_FEATURES,
    WINDOW,
)
from widemax.sampling import UnigramSampler
from widemax.sampling.base import DISTORTION
from widemax.scoring import Scorer, gather_rows
from widemax.validation import ABSENT, check_ids


@dataclass(frozen=True, kw_only=True)
class RequestBatch(WindowBatch):
    """Some requests of users with what they booked before and after, and which were refused."""

    refused: Tensor
    """Bool [B]; a request that was refused has no context."""


class RequestWindows:
    """An example for each booking, with the bookings around it, and one for each refusal.

    ``booked`` bool [T] is False where the request for an item was refused; without it, all were
    booked. A refusal is in nobody's context.

    >>> requests = Sequences.from_lists([[4, 0, 2], [1]])
    >>> windows = RequestWindows(requests, window=1, booked=torch.tensor([True, False, True, True]))
    >>> batch = windows.batch(torch.arange(4))
    >>> batch.targets.tolist(), batch.context.tolist()
    ([4, 2, 1, 0], [[-1, 2], [4, -1], [-1, -1], [-1, -1]])
    >>> batch.users.tolist(), batch.refused.tolist()
    ([0, 0, 1, 0], [False, False, False, True])
    """

    def __init__(self, sequences: Sequences, *, window: int, booked: Tensor | None = None) -> None:
        if booked is None:
            booked = torch.ones(len(sequences.values), dtype=torch.bool)
        self._bookings = Windows(sequences.kept(booked), before=window, after=window)
        refused = sequences.kept(~booked)
        self._refused = refused.values
        self._refused_users = torch.repeat_interleave(refused.lengths)

    def __len__(self) -> int:
        return len(self._bookings) + len(self._refused)

    def batch(self, rows: Tensor) -> RequestBatch:
        """Return the examples ``rows`` [B]: bookings first, then refusals."""
        refused = rows >= len(self._bookings)
        booked, others = rows[~refused], rows[refused] - len(self._bookings)
        batch = self._bookings.batch(booked)
        assert batch.users is not None
        nothing = torch.full((len(others), batch.context.shape[1]), ABSENT)
        return RequestBatch(
            context=torch.cat([batch.context, nothing]),
            targets=torch.cat([batch.targets, self._refused[others]]),
            users=torch.cat([batch.users, self._refused_users[others]]),
            refused=torch.arange(len(rows)) >= len(booked),
        )


class TypeScorer(Scorer):
    """The vector of an item is that of its type, its bias how frequent it is within the type.

    Formula: F(x, y) = x · o(type(y)) + log s(y), s(y) the share of y in the counts of its type,
    each item counted once more: what is left of P(y | x) where the first part is log P(type | x).
    Without ``counts`` all items of a type have one score.

    Shapes: ``item_types`` int64 [V], below T; ``counts`` [V]; ``weight`` [T, D]; see ``Scorer``.

    Cost: T·D parameters; O(D) for each class that is scored.

    Reference: Grbovic & Cheng 2018.

    Use when: items are too rare, or too new, to have vectors of their own. Avoid when: they are
    not: all items of a type are ranked alike for everybody.

    >>> scorer = TypeScorer(torch.tensor([0, 1, 0]), 2, 4, counts=torch.tensor([2, 5, 0]))
    >>> torch.equal(scorer.class_vectors()[0], scorer.class_vectors()[2])
    True
    >>> scorer.class_biases().exp()
    tensor([0.7500, 1.0000, 0.2500])
    """

    sparse = True
    """Whether gradients hold only the rows that were used: so the model reads them."""
    item_types: Tensor
    log_shares: Tensor | None

    def __init__(
        self, item_types: Tensor, num_types: int, dimension: int, *, counts: Tensor | None = None
    ) -> None:
        super().__init__()
        self.num_classes, self.dimension = len(item_types), dimension
        self.register_buffer("item_types", item_types, persistent=False)
        shares = None if counts is None else _log_shares(item_types, num_types, counts)
        self.register_buffer("log_shares", shares, persistent=False)
        self.weight = nn.Parameter(torch.zeros(num_types, dimension))

    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return the vectors of the types of the given items, or of all."""
        return self.weight[self.item_types if ids is None else self.item_types[ids]]

    def class_biases(self, ids: Tensor | None = None) -> Tensor | None:
        """Return the log shares of the given items in their types, or of all."""
        if self.log_shares is None or ids is None:
            return self.log_shares
        return self.log_shares[ids]


def _log_shares(item_types: Tensor, num_types: int, counts: Tensor) -> Tensor:
    """Return the log of the share of each item in the counts of its type, [V]."""
    smoothed = counts.double() + 1
    totals = torch.bincount(item_types, smoothed, minlength=num_types)
    return (smoothed / totals[item_types]).log().float()


class TypeEncoder(nn.Module):
    """The mean of the vectors of a user's type and of the types of a history; 0 of nothing.

    Formula: hidden = mean of u(type) over the user, if known, and the items of the context.

    Shapes: ``item_types`` [V], ``user_types`` [N], one a user, or none: then all are alike;
    context [B, H] padded with -1, users [B] or None → [B, D].

    Reference: Grbovic & Cheng 2018.

    >>> encoder = TypeEncoder(torch.tensor([0, 1]), 2, torch.tensor([0, 0, 1]), 2, 4)
    >>> hidden = encoder(torch.tensor([[-1, 1], [-1, -1]]), torch.tensor([2, -1]))
    >>> expected = (encoder.user_weight[1] + encoder.item_weight[1]) / 2
    >>> torch.allclose(hidden[0], expected), hidden[1].tolist()
    (True, [0.0, 0.0, 0.0, 0.0])
    """

    sparse = True
    """Whether gradients hold only the rows that were used."""
    item_types: Tensor
    user_types: Tensor

    def __init__(
        self,
        item_types: Tensor,
        num_item_types: int,
        user_types: Tensor,
        num_user_types: int,
        dimension: int,
    ) -> None:
        super().__init__()
        self.register_buffer("item_types", item_types, persistent=False)
        self.register_buffer("user_types", user_types, persistent=False)
        self.item_weight = nn.Parameter(torch.empty(num_item_types, dimension))
        self.user_weight = nn.Parameter(torch.empty(num_user_types, dimension))
        for table in (self.item_weight, self.user_weight):
            nn.init.uniform_(table, -1 / dimension, 1 / dimension)

    def types_of(self, users: Tensor) -> Tensor:
        """Return the types of users who are known."""
        return self.user_types[users] if len(self.user_types) else torch.zeros_like(users)

    def forward(self, context: Tensor, users: Tensor | None = None) -> Tensor:
        """Return the hidden states, [B, D]."""
        context = check_ids("context", context, len(self.item_types), absent=True)
        if users is None:
            users = torch.full((len(context),), ABSENT, device=context.device)
        there, known = context >= 0, users >= 0
        items = self.item_weight[self.item_types[context.clamp(min=0)]] * there[..., None]
        own = self.user_weight[self.types_of(users.clamp(min=0))] * known[:, None]
        count = (there.sum(1) + known).clamp(min=1)
        return (items.sum(1) + own) / count[:, None]


@declare.model(
    "airbnb-types",
    options=[
        DIMENSION,
        WINDOW,
        MAX_HISTORY,
        GOAL_COLUMN,
        ITEM_FEATURES,
        USER_FEATURES,
        DISTORTION,
        Option(
            "type_negatives",
            5,
            "Types drawn as negatives of each pair of types.",
            least=1,
            most=1000,
        ),
    ],
    slots=["trainer"],
    traits=["gradients", "new-items"],
    usual={
        **{
            name: NEIGHBOURS[name]
            for name in ("metric", "epochs", "optimizer", "learning_rate", "schedule")
        },
        "dimension": 32,
        "window": 5,
        # Negatives drawn alike leave the popularity of types in the scores, which is wanted here.
        "distortion": 0.0,
        "max_history": 5,
    },
)
class AirbnbTypes(Model):
    """Types of users and types of items in one space, from what was booked and what was refused.

    Formula: a type is a combination of categorical features. For booking t of a user, with type
    a(t), and every booking c of theirs within the window: −log σ(u(a(c))·o(a(t))) −
    Σ_n log σ(−u(a(c))·o(n)), n types of items drawn by count^distortion; the same with the user's
    type in place of a(c), and with the user's type as the one to predict from a(t). A request r
    that was refused is a negative of its user's type, both ways: −log σ(−u(user type)·o(a(r))) −
    log σ(−u(a(r))·o(user type)). A user scores y by o(a(y)) times the mean of u over their own
    type and the types of their history, plus the log of the share that y has in its type.

    Reference: Grbovic & Cheng, "Real-time Personalization using Embeddings for Search Ranking at
    Airbnb", 2018, section 4.

    Use when: bookings are too rare for a vector of each item, users have features, or hosts refuse
    guests. Avoid when: items have enough clicks of their own (``Airbnb``): within a type the more
    frequent comes first, for everybody.

    Each row of the log is a request: booked where ``goal_column`` is true, refused where it is
    false; without that column all were booked. What a run holds out to evaluate are requests, of
    either kind. Numbers are no part of a type: give them in
    brackets, as a category. Without features of users all users are of one type. Negatives are of
    the kind of what is predicted. One loss for each pair; trained with gradients.

    >>> import polars as pl
    >>> homes = pl.DataFrame({"id": range(3), "kind": ["tent", "villa", "tent"]})
    >>> kinds = FeatureTable.fit(homes, [0, 1, 2], key_column="id")
    >>> model = AirbnbTypes.create([5, 5, 0], item_features=kinds, dimension=4)
    >>> torch.equal(model.key_vectors()[2], model.key_vectors()[0])
    True
    >>> windows = RequestWindows(Sequences.from_lists([[0, 1]]), window=1)
    >>> losses = model(windows.batch(torch.arange(2)), generator=torch.Generator().manual_seed(0))
    >>> losses.shape, round(losses[0].item(), 4)  # 6 scores of 0: log 2 each
    (torch.Size([4]), 4.1589)
    """

    sparse = True
    """Whether gradients of its own parameters hold only the rows that were used."""
    encoder: TypeEncoder
    head: FullHead
    trains_by_head = False

    def __init__(
        self,
        encoder: TypeEncoder,
        head: FullHead,
        *,
        item_sampler: UnigramSampler,
        user_sampler: UnigramSampler,
        num_negatives: int = 5,
    ) -> None:
        super().__init__(encoder, head)
        self.item_sampler, self.user_sampler = item_sampler, user_sampler
        self.num_negatives = num_negatives
        # What a type of users is predicted by; one type only is never wrong.
        self.user_output = nn.Parameter(torch.zeros_like(encoder.user_weight))

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        options = setup.options
        items, num_item_types = types_of(setup.item_features, setup.num_classes)
        users, num_user_types = types_of(setup.user_features, 0)
        dimension = options.dimension
        encoder = TypeEncoder(items, num_item_types, users, num_user_types, dimension)
        scorer = TypeScorer(items, num_item_types, dimension, counts=setup.counts)
        counts = torch.bincount(items, setup.counts.double(), minlength=num_item_types)
        user_counts = torch.bincount(users, minlength=num_user_types)
        return cls(
            encoder,
            FullHead(scorer),
            item_sampler=_sampler(counts, options.distortion),
            user_sampler=_sampler(user_counts, options.distortion),
            num_negatives=options.type_negatives,
        )

    @staticmethod
    def min_parameter_count(setup: Setup) -> int:
        """Return how many numbers the model has at least: there may be one type of each kind."""
        return int(4 * setup.options.dimension)

    @staticmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each item with those before it, as a user is asked for."""
        return Windows(sequences, before=max_history, positions=positions)

    def examples(self, setup: Setup, sequences: Sequences) -> RequestWindows:
        """Return the bookings with those around them, and the refusals."""
        return RequestWindows(sequences, window=setup.options.window, booked=setup.goals)

    def hidden(self, batch: WindowBatch) -> Tensor:
        """Return the mean of the vectors of the users' types and of those of their histories."""
        hidden: Tensor = self.encoder(batch.context, batch.users)
        return hidden

    def key_vectors(self) -> Tensor:
        """Return the vector u of the type of each item, [V, D]."""
        return self.encoder.item_weight[self.encoder.item_types]

    @property
    def _item_output(self) -> Tensor:
        """The vectors o of the types of items."""
        assert isinstance(self.head.scorer, TypeScorer)
        return self.head.scorer.weight

    def user_vectors(self) -> Tensor:
        """Return the vectors u of the types of users, [types, D]."""
        return self.encoder.user_weight

    def forward(self, batch: WindowBatch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the training loss of each pair: of windows, of users, and of refusals."""
        refused = torch.zeros_like(batch.targets, dtype=torch.bool)
        if isinstance(batch, RequestBatch):
            refused = batch.refused
        encoder = self.encoder
        assert batch.users is not None
        types, users = encoder.item_types[batch.targets], encoder.types_of(batch.users)
        pairs, places = (batch.context >= 0).nonzero().unbind(1)
        around = encoder.item_types[batch.context[pairs, places]]
        booked, own = types[~refused], users[~refused]
        sources = _rows(encoder.item_weight, around), _rows(encoder.user_weight, own)
        losses = [
            self._item_losses(torch.cat(sources), torch.cat([types[pairs], booked]), generator)
        ]
        if len(self.user_output) > 1:
            hidden = _rows(encoder.item_weight, booked)
            losses.append(self._user_losses(hidden, own, generator))
        losses.append(self._refusal_losses(types[refused], users[refused]))
        found = torch.cat(losses)
        return found if len(found) else nothing_to_learn()

    def _item_losses(
        self, hidden: Tensor, types: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        drawn = self.item_sampler.draw(
            (len(types), self.num_negatives), device=types.device, generator=generator
        )
        return _logistic(hidden, self._item_output, types, drawn)

    def _user_losses(
        self, hidden: Tensor, users: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        drawn = self.user_sampler.draw(
            (len(users), self.num_negatives), device=users.device, generator=generator
        )
        return _logistic(hidden, self.user_output, users, drawn)

    def _refusal_losses(self, types: Tensor, users: Tensor) -> Tensor:
        """Return one loss for each refusal: it is a negative of the user's type, and they of it."""
        encoder = self.encoder
        towards = _rows(encoder.user_weight, users) * _rows(self._item_output, types)
        loss = softplus(towards.sum(-1))
        if len(self.user_output) > 1:
            back = _rows(encoder.item_weight, types) * _rows(self.user_output, users)
            loss = loss + softplus(back.sum(-1))
        return loss


def types_of(table: FeatureTable | None, num_rows: int) -> tuple[Tensor, int]:
    """Return the type of each row, a number for each combination of categories, and how many.

    Of a feature of tokens the first one counts; numbers do not. Without features all of
    ``num_rows`` rows are of one type.

    >>> import polars as pl
    >>> frame = pl.DataFrame({"id": [0, 1, 2], "kind": ["tent", "villa", "tent"]})
    >>> types_of(FeatureTable.fit(frame, [0, 1, 2], key_column="id"), 3)
    (tensor([0, 1, 0]), 2)
    """
    columns = []
    if table is not None:
        firsts = [lists.values[lists.offsets[:-1]] for lists in table.tokens]
        columns, num_rows = [*table.codes.unbind(1), *firsts], len(table.keys)
    if not columns:
        return torch.zeros(num_rows, dtype=torch.int64), 1
    combinations, types = torch.unique(torch.stack(columns, 1), dim=0, return_inverse=True)
    return types, len(combinations)


def _sampler(counts: Tensor, distortion: float) -> UnigramSampler:
    # Where nothing was counted, as for users without features, all are alike.
    counts = counts if bool(counts.any()) else torch.ones_like(counts)
    return UnigramSampler(len(counts), counts, distortion=distortion)


def _rows(table: Tensor, ids: Tensor) -> Tensor:
    return gather_rows(table, ids, sparse=True)


def _logistic(hidden: Tensor, table: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
    """Return −log σ(x·o(t)) − Σ_n log σ(−x·o(n)) of each row, [B]."""
    vectors = _rows(table, torch.cat([targets[:, None], negatives], 1))
    scores = (vectors * hidden[:, None]).sum(-1)
    return softplus(-scores[:, 0]) + softplus(scores[:, 1:]).sum(-1)
