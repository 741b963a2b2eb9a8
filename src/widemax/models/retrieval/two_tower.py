"""Two towers: one for the user, one for the items."""

from __future__ import annotations

from typing import Self, cast

import torch
from torch import Tensor

from widemax.data import WindowBatch
from widemax.declarations import Need, Setup, declare
from widemax.declarations.shared import FEATURE_DIMENSION
from widemax.encoders.dense import MeanEncoder
from widemax.encoders.two_tower import TwoTowerEncoder, mean_inputs
from widemax.heads.base import ScorerHead
from widemax.models.options import DIMENSION, HISTORY_BY_TEST, RETRIEVAL, USER_FEATURES, WEIGHTS
from widemax.models.retrieval.history import HistoryModel
from widemax.scoring.base import LAYER_SIZE, NUM_LAYERS
from widemax.scoring.tower import TowerScorer


@declare.model(
    "two-tower",
    options=[
        DIMENSION,
        NUM_LAYERS,
        LAYER_SIZE,
        HISTORY_BY_TEST,
        USER_FEATURES,
        FEATURE_DIMENSION,
        *WEIGHTS,
    ],
    traits=["gradients", "context", "windows"],
    needs=[
        Need("head", trait="vectors", why="compares the vectors of users and items"),
        Need("scorer", names=("tower",), why="reads histories with the tower of the items"),
    ],
    usual={
        **RETRIEVAL,
        "scorer": "tower",
        "sampler": "in-batch",
        "similarity": "cosine",
        "temperature": "auto",
        "num_layers": 1,
        "hidden_size": 128,
        "max_history": "auto",
    },
)
class TwoTower(HistoryModel):
    """The next item of a user by the product of a user's vector and an item's, both computed.

    Formula: P(y | x) ∝ exp(x·v_y / τ): x is the user's tower (``TwoTowerEncoder``) of the mean of
    the item tower's inputs of the history and of the user's features; v_y is the item's tower
    (``TowerScorer``) of its id and its features. Both towers share the vectors of ids and features.

    Rows of the users' features are those of ``Sequences.names``, rows of the items' features the
    classes of the vocabulary. Each distinct item of a batch goes through its tower once.

    Reference: Yi et al. 2019; Yang et al. 2020 (mixed negatives).

    Use when: items or users have features, and new ones must be served at once. Avoid when: only a
    log is known (``NextItem``, or a sequence model).

    >>> import polars as pl
    >>> import torch
    >>> from widemax.data import FeatureTable, Sequences
    >>> _ = torch.manual_seed(0)
    >>> films = pl.DataFrame({"id": ["a", "b", "c"], "genre": ["War", "Opera", "War"]})
    >>> table = FeatureTable.fit(films, ["a", "b", "c"], key_column="id")
    >>> model = TwoTower.create(torch.tensor([5, 2, 0]), dimension=4, item_features=table)
    >>> model.head.scorer.cold.tolist()
    [False, False, True]
    >>> windows = TwoTower.windows(Sequences.from_lists([[0, 1, 0]]), max_history=5, window=1)
    >>> model(windows.batch(torch.arange(2))).shape
    torch.Size([2])
    """

    encoder: TwoTowerEncoder
    head: ScorerHead

    def __init__(self, encoder: TwoTowerEncoder, head: ScorerHead) -> None:
        if not isinstance(getattr(head, "scorer", None), TowerScorer):
            raise ValueError("head must have a TowerScorer: histories are read through its items")
        items = cast("TowerScorer", head.scorer)
        for name, own, wanted in (
            ("history_dimension", encoder.history_dimension, items.input_dimension),
            ("dimension", encoder.dimension, items.dimension),
        ):
            if own != wanted:
                raise ValueError(f"encoder must have {name} = {wanted:,}, got {own:,}")
        super().__init__(encoder, head)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        options = setup.options
        head = setup.head(options.dimension)
        encoder = TwoTowerEncoder(
            head.scorer.input_dimension,
            options.dimension,
            features=setup.user_encoder(),
            hidden_sizes=(options.hidden_size,) * options.num_layers,
        )
        return cls(encoder, head)

    @property
    def items(self) -> TowerScorer:
        """The item's tower."""
        return cast("TowerScorer", self.head.scorer)

    def encode(self, context: Tensor) -> Tensor:
        """Return the vectors of users who are known by their history alone, [B, D]."""
        hidden: Tensor = self.encoder(mean_inputs(self.items, context))
        return hidden

    @torch.no_grad()
    def dense_encoder(self) -> MeanEncoder:
        """Return the user's tower on the mean of inputs of the items, computed once for all."""
        inputs = self.items.inputs(torch.arange(self.items.num_classes))
        return MeanEncoder(inputs, self.encoder.tower, self.encoder.features)

    def hidden(self, batch: WindowBatch) -> Tensor:
        """Return the vectors of users from their histories and features, [B, D]."""
        hidden: Tensor = self.encoder(mean_inputs(self.items, batch.context), batch.users)
        return hidden
