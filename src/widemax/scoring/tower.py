"""Class vectors computed from features of the class and a vector of its id: an item tower."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn

from widemax.data.features.table import FeatureTable
from widemax.declarations import Option, Setup, declare
from widemax.declarations.shared import FEATURE_DIMENSION, ITEM_FEATURES
from widemax.scoring.base import (
    LAYER_SIZE,
    NUM_LAYERS,
    SIMILARITY,
    TEMPERATURE,
)
from widemax.scoring.computed import BLOCK_VALUES, ComputedScorer, in_blocks
from widemax.scoring.rows import gather_rows
from widemax.scoring.table import (
    Similarity,
    check_similarity,
    check_table_size,
    initial_deviation,
    scaled_queries,
    scaled_vectors,
)
from widemax.validation import check_fraction, check_tensor, check_whole

_MOST_UNITS = 2**16


class RowFeatures(nn.Module, ABC):
    """What a tower needs of the features of its classes: a vector for each row of a table.

    Derive from it for features of another kind (images, graphs); ``FeatureEncoder`` reads tables.
    Rows are int64 [B] in −1 … ``num_rows`` − 1, where −1 is a class without features; vectors are
    [B, F] with F = ``output_dimension``.
    """

    num_rows: int
    output_dimension: int

    @abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """Return the vectors of some rows, [B, F]."""

    @abstractmethod
    def encode(self, table: FeatureTable) -> Tensor:
        """Return the vectors of all rows of another table, [N, F]."""


@declare.scorer(
    "tower",
    options=[
        SIMILARITY,
        TEMPERATURE,
        NUM_LAYERS,
        LAYER_SIZE,
        ITEM_FEATURES,
        FEATURE_DIMENSION,
        Option(
            "id_dropout",
            0.1,
            "How often the own vector of an item with features is left out, so that they learn to "
            "stand alone.",
            most=0.99,
            of_features=True,
        ),
    ],
    traits=["new-items"],
)
class TowerScorer(ComputedScorer):
    """Class vectors from a small network on the vector of the id and the features of a class.

    Formula: F(x, y) = x·v_y / τ with v_y = W_L·relu(… relu(W_1·(u_y, f_y) + b_1) …) + b_L: u_y the
    vector of the id, f_y the encoded features. Where ``similarity`` is "cosine", x and v_y are
    scaled to length 1. A class that is ``cold`` has the shared ``unknown`` vector instead of u_y;
    while training so has each class with probability ``id_dropout``, drawn from torch's own
    generator as all dropout is, so that the network learns to do with features alone.

    Shapes: ``features`` have a row for each class; ``weight`` [V, ``id_dimension``]; with
    ``id_dimension=0`` there are no ids. ``hidden_sizes`` lists the layers before the last, ``cold``
    is bool [V]; hidden [B, dimension].

    Cost: that of the network for the distinct classes asked for; in eval mode without gradients
    the vectors of all classes are computed once and kept, and a score costs as much as in a table.
    Memory: blocks of 32 MB beside the result. With ``sparse`` the gradient of ``weight`` holds the
    given ids only.

    Reference: Covington et al. 2016; Yi et al. 2019; Volkovs, Yu & Poutanen 2017 (DropoutNet).

    Use when: classes have features, many are rare, or new ones must be scored at once
    (``vectors_of``). Avoid when: every class is seen often (``TableScorer`` is cheaper).

    Parameters changed through ``.data`` while in eval mode are not noticed: ``eval()`` or
    ``train()`` drops what was kept.

    >>> _ = torch.manual_seed(0)
    >>> scorer = TowerScorer(1000, 8, id_dimension=16, hidden_sizes=(32,))
    >>> scorer(torch.randn(2, 8), torch.tensor([5, 7, 5])).shape
    torch.Size([2, 3])
    """

    cold: Tensor
    """Which classes have no vector of their own, bool [V]."""

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        *,
        features: RowFeatures | None = None,
        id_dimension: int = 64,
        hidden_sizes: Sequence[int] = (),
        similarity: Similarity = "dot",
        temperature: float = 1.0,
        id_dropout: float = 0.0,
        cold: Tensor | None = None,
        sparse: bool = False,
    ) -> None:
        width = max(dimension, id_dimension) if isinstance(id_dimension, int) else dimension
        check_table_size(num_classes, width)
        check_whole("dimension", dimension, 1, _MOST_UNITS)
        check_whole("id_dimension", id_dimension, 0, _MOST_UNITS)
        check_similarity(similarity, temperature)
        _check_features(features, num_classes, id_dimension)
        super().__init__()
        self.num_classes, self.dimension = num_classes, dimension
        self.id_dimension, self.sparse = id_dimension, sparse
        self.similarity, self.temperature = similarity, temperature
        self.id_dropout = check_fraction("id_dropout", id_dropout)
        self.features = features
        self.weight = nn.Parameter(torch.empty(num_classes, id_dimension))
        # At first an unknown id says nothing.
        self.unknown = nn.Parameter(torch.zeros(id_dimension))
        if id_dimension:
            nn.init.normal_(self.weight, std=initial_deviation(id_dimension))
        self.tower = feed_forward([self.input_dimension, *hidden_sizes, dimension])
        # Part of the state: which vectors were learned belongs to the vectors.
        self.register_buffer("cold", torch.zeros(num_classes, dtype=torch.bool))
        if cold is not None:
            self.set_cold(cold)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the scorer of a run; items that were never chosen stand by their features."""
        options, features = setup.options, setup.item_encoder()
        return cls(
            setup.num_classes,
            setup.dimension,
            features=features,
            id_dimension=setup.dimension,
            hidden_sizes=(options.hidden_size,) * options.num_layers,
            similarity=options.similarity,
            temperature=options.temperature,
            id_dropout=0.0 if features is None else options.id_dropout,
            cold=setup.counts == 0,
            sparse=True,
        )

    @property
    def input_dimension(self) -> int:
        """How wide the id's vector and the features are, side by side."""
        return self.id_dimension + (self.features.output_dimension if self.features else 0)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return {"weight": range(self.num_classes)}

    def set_cold(self, cold: Tensor) -> None:
        """Set which classes are scored by their features alone, bool [V]."""
        if check_tensor("cold", cold).shape != (self.num_classes,) or cold.dtype != torch.bool:
            raise ValueError(
                f"cold must be bool [{self.num_classes:,}], got {cold.dtype} {list(cold.shape)}"
            )
        self.cold.copy_(cold)

    def inputs(self, ids: Tensor) -> Tensor:
        """Return what the network sees of classes [N]: the id's vector and the features, [N, I]."""
        return self._joined(ids, self._hidden_ids(ids))

    def vectors_of(self, table: FeatureTable) -> Tensor:
        """Return vectors of any rows of features, known classes or not, without an id, [N, D]."""
        if self.features is None:
            raise ValueError("vectors_of needs features, and this tower has none")
        encoded = self.features.encode(table)
        unknown = self.unknown.to(encoded.dtype).expand(len(encoded), -1)
        return self._through_tower(torch.cat([unknown, encoded], dim=1))

    def dense(self, ids: Tensor, features: Tensor | None = None) -> Tensor:
        """Return vectors of classes [N], -1 for a new one, with encoded features [N, F], [N, D].

        It is ``class_vectors`` or ``vectors_of`` in plain operations, for an export to trace.
        """
        places = ids.clamp(min=0)
        seen = ((ids >= 0) & ~self.cold[places])[:, None]
        inputs = torch.where(seen, self.weight[places], self.unknown)
        return self._through_tower(
            inputs if features is None else torch.cat([inputs, features], dim=1)
        )

    def queries(self, hidden: Tensor) -> Tensor:
        """Return hidden / τ in at least float32, scaled to length 1 first where cosine."""
        return scaled_queries(hidden, self.similarity, self.temperature)

    def _vectors(self, ids: Tensor) -> Tensor:
        """Return the vectors of distinct classes, [N, D], block by block."""
        widest = max(layer.in_features for layer in self.tower if isinstance(layer, nn.Linear))
        size = max(1, BLOCK_VALUES // widest)
        return in_blocks(self._block, size, ids, self._hidden_ids(ids))

    def _block(self, ids: Tensor, hidden_ids: Tensor) -> Tensor:
        return self._through_tower(self._joined(ids, hidden_ids))

    def _through_tower(self, inputs: Tensor) -> Tensor:
        return scaled_vectors(self.tower(inputs), self.similarity)

    def _hidden_ids(self, ids: Tensor) -> Tensor:
        """Return which ids the network must not see, bool [N]."""
        hidden = self.cold[ids]
        if self.training and self.id_dropout:
            hidden = hidden | (torch.rand(ids.shape, device=ids.device) < self.id_dropout)
        return hidden

    def _joined(self, ids: Tensor, hidden_ids: Tensor) -> Tensor:
        parts = []
        if self.id_dimension:
            seen = ~hidden_ids
            # Only ids that are seen are looked up: a sparse gradient moves no row for the others.
            rows = gather_rows(self.weight, ids[seen], sparse=self.sparse).to(self.unknown.dtype)
            unknown = self.unknown.expand(len(ids), -1)
            parts.append(unknown.masked_scatter(seen[:, None], rows))
        if self.features is not None:
            parts.append(self.features(ids))
        return torch.cat(parts, dim=1)

    def extra_repr(self) -> str:
        """Return what ``print(scorer)`` shows."""
        return (
            f"num_classes={self.num_classes}, dimension={self.dimension}, "
            f"id_dimension={self.id_dimension}, similarity={self.similarity!r}, "
            f"temperature={self.temperature}, id_dropout={self.id_dropout}, sparse={self.sparse}"
        )


def feed_forward(sizes: Sequence[int]) -> nn.Sequential:
    """Return linear layers of these sizes, from the first to the last, with relu between them.

    >>> feed_forward([3, 5, 2])(torch.zeros(4, 3)).shape
    torch.Size([4, 2])
    """
    for place, size in enumerate(sizes):
        check_whole(f"size {place} of a tower's layers", size, 1, _MOST_UNITS)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _check_features(features: RowFeatures | None, num_classes: int, id_dimension: int) -> None:
    if features is None:
        if not id_dimension:
            raise ValueError("id_dimension must be at least 1 without features, got 0")
        return
    if not isinstance(features, RowFeatures):
        raise ValueError(f"features must be a FeatureEncoder, got {type(features).__name__}")
    if features.num_rows != num_classes:
        raise ValueError(
            f"features must have a row for each of num_classes = {num_classes:,} classes, "
            f"got {features.num_rows:,}"
        )
