"""Two towers: one for the user, one for the items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, cast

from torch import Tensor

from widemax.data import WindowBatch
from widemax.data.features.table import FeatureTable
from widemax.declarations import Need, Setup, declare
from widemax.encoders.features import FeatureEncoder
from widemax.encoders.two_tower import TwoTowerEncoder, mean_inputs
from widemax.heads import SampledHead
from widemax.heads.base import ScorerHead
from widemax.models.options import DIMENSION, MAX_HISTORY, RETRIEVAL, USER_FEATURES
from widemax.models.retrieval.history import HistoryModel
from widemax.objectives import Objective, sampled_softmax
from widemax.sampling import InBatchSampler, Sampler, StreamingFrequency
from widemax.scoring.base import HIDDEN_SIZE, NUM_LAYERS
from widemax.scoring.table import Similarity
from widemax.scoring.tower import TowerScorer
from widemax.validation import as_int64, check_counts

_ID_DROPOUT = 0.1


@declare.model(
    "two-tower",
    options=[DIMENSION, NUM_LAYERS, HIDDEN_SIZE, MAX_HISTORY, USER_FEATURES],
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
        "temperature": 0.1,
        "num_layers": 1,
        "hidden_size": 128,
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
    >>> from widemax.data import Sequences
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

    @classmethod
    def create(
        cls,
        counts: Tensor,
        *,
        dimension: int = 64,
        item_features: FeatureTable | None = None,
        user_features: FeatureTable | None = None,
        id_dimension: int | None = None,
        feature_dimension: int = 16,
        hidden_sizes: Sequence[int] | None = None,
        similarity: Similarity = "cosine",
        temperature: float = 0.1,
        id_dropout: float | None = None,
        sampler: Sampler | None = None,
        num_samples: int | None = None,
        objective: Objective = sampled_softmax,
        sparse: bool = True,
    ) -> TwoTower:
        """Build both towers for classes of these ``counts`` [V]; one counted 0 times is cold.

        Without a ``sampler`` the targets of a batch compete with each other, corrected by how often
        each was seen recently. For mixed negatives pass a ``MixtureSampler`` of that and a
        ``UniformSampler``, and ``num_samples``. By default ``id_dimension`` is ``dimension``,
        ``hidden_sizes`` of both towers one layer of twice that, and ``id_dropout`` 0.1 where there
        are features to fall back on, else 0.
        """
        counts = as_int64("counts", counts)
        check_counts(counts, all_zero=True)
        if id_dropout is None:
            id_dropout = 0.0 if item_features is None else _ID_DROPOUT
        size, hidden = len(counts), (2 * dimension,) if hidden_sizes is None else hidden_sizes
        scorer = TowerScorer(
            size,
            dimension,
            features=_encoder(item_features, feature_dimension, sparse),
            id_dimension=dimension if id_dimension is None else id_dimension,
            hidden_sizes=hidden,
            similarity=similarity,
            temperature=temperature,
            id_dropout=id_dropout,
            cold=counts == 0,
            sparse=sparse,
        )
        users = _encoder(user_features, feature_dimension, sparse)
        encoder = TwoTowerEncoder(
            scorer.input_dimension, dimension, features=users, hidden_sizes=hidden
        )
        if sampler is None:
            sampler = InBatchSampler(size, StreamingFrequency(size))
        head = SampledHead(scorer, sampler, objective=objective, num_samples=num_samples)
        return cls(encoder, head)

    @property
    def items(self) -> TowerScorer:
        """The item's tower."""
        return cast("TowerScorer", self.head.scorer)

    def encode(self, context: Tensor) -> Tensor:
        """Return the vectors of users who are known by their history alone, [B, D]."""
        hidden: Tensor = self.encoder(mean_inputs(self.items, context))
        return hidden

    def hidden(self, batch: WindowBatch) -> Tensor:
        """Return the vectors of users from their histories and features, [B, D]."""
        hidden: Tensor = self.encoder(mean_inputs(self.items, batch.context), batch.users)
        return hidden


def _encoder(table: FeatureTable | None, dimension: int, sparse: bool) -> FeatureEncoder | None:
    return None if table is None else FeatureEncoder(table, dimension, sparse=sparse)
