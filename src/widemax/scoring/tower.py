"""Class vectors computed from features of the class and a vector of its id: an item tower."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

from widemax.data.features.table import FeatureTable
from widemax.declarations import Site, declare
from widemax.scoring.base import (
    HIDDEN_SIZE,
    ITEM_FEATURES,
    NUM_LAYERS,
    SIMILARITY,
    TEMPERATURE,
    Scorer,
)
from widemax.scoring.rows import gather_rows, widened
from widemax.scoring.table import Similarity, check_similarity, check_table_size, initial_deviation
from widemax.validation import check_fraction, check_tensor, check_whole

_MOST_UNITS = 2**16
# Numbers in one block of activations: 32 MB in float32, whatever the number of classes is.
_BLOCK_NUMBERS = 2**23


class RowFeatures(nn.Module, ABC):
    """What a tower asks of the features of its classes: a vector for each row of a table.

    Formula: none.

    Shapes: rows int64 [B] in −1 … ``num_rows`` − 1, −1 for one of which nothing is known → [B, F]
    with F = ``output_dimension``.

    Cost: see ``FeatureEncoder``.

    Reference: none.

    Use when: features of a kind of your own (pictures, graphs) describe the classes. Avoid when:
    they stand in a table (``FeatureEncoder``).

    >>> from widemax.encoders.features import FeatureEncoder
    >>> issubclass(FeatureEncoder, RowFeatures)
    True
    """

    num_rows: int
    output_dimension: int

    @abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """Return the vectors of some rows, [B, F]."""

    @abstractmethod
    def encode(self, table: FeatureTable) -> Tensor:
        """Return the vectors of all rows of another table, [N, F]."""


ID_DROPOUT = 0.1
"""How often an item's own vector is left out, so that its features learn to stand alone."""


@declare.scorer(
    "tower",
    options=[SIMILARITY, TEMPERATURE, NUM_LAYERS, HIDDEN_SIZE, ITEM_FEATURES],
    traits=["new-items"],
)
class TowerScorer(Scorer):
    """Class vectors from a small network on the vector of the id and the features of a class.

    Formula: F(x, y) = x·v_y / τ with v_y = W_L·relu(… relu(W_1·(u_y, f_y) + b_1) …) + b_L: u_y the
    vector of the id, f_y the encoded features. Where ``similarity`` is "cosine", x and v_y are
    scaled to length 1. A class that is ``cold`` has the shared ``unknown`` vector instead of u_y;
    while training so has each class with probability ``id_dropout``, drawn from torch's own
    generator as all dropout is, so that the network learns to do with features alone.

    Shapes: ``features`` have a row for each class; ``weight`` [V, ``id_dimension``]; with
    ``id_dimension=0`` there are no ids. ``hidden_sizes`` lists the layers before the last, ``cold``
    is bool [V]; hidden [B, dimension].

    Cost: that of the network for the different classes asked for; in eval mode without gradients
    the vectors of all classes are computed once and kept, and a score costs what it costs a table.
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
        # Part of the state: which vectors were learnt belongs to the vectors.
        self.register_buffer("cold", torch.zeros(num_classes, dtype=torch.bool))
        self._kept: tuple[object, list[Tensor], Tensor] | None = None
        if cold is not None:
            self.set_cold(cold)

    @classmethod
    def build(cls, site: Site) -> Self:
        """Return the scorer of a run; items that were never chosen stand by their features."""
        options, features = site.options, site.item_encoder()
        return cls(
            site.num_classes,
            site.dimension,
            features=features,
            id_dimension=site.dimension,
            hidden_sizes=(options.hidden_size,) * options.num_layers,
            similarity=options.similarity,
            temperature=options.temperature,
            id_dropout=0.0 if features is None else ID_DROPOUT,
            cold=site.counts == 0,
            sparse=True,
        )

    @property
    def input_dimension(self) -> int:
        """How wide the id's vector and the features are, side by side."""
        return self.id_dimension + (self.features.output_dimension if self.features else 0)

    def set_cold(self, cold: Tensor) -> None:
        """Say which classes are to be told from their features alone, bool [V]."""
        if check_tensor("cold", cold).shape != (self.num_classes,) or cold.dtype != torch.bool:
            raise ValueError(
                f"cold must be bool [{self.num_classes:,}], got {cold.dtype} {list(cold.shape)}"
            )
        self.cold.copy_(cold)

    def inputs(self, ids: Tensor) -> Tensor:
        """Return what the network sees of classes [N]: the id's vector and the features, [N, I]."""
        return self._joined(ids, self._hidden_ids(ids))

    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return the vectors of the given classes, [*ids.shape, D], or of all, [V, D]."""
        if not (self.training or torch.is_grad_enabled() or torch.compiler.is_compiling()):
            kept = self._kept_vectors()
            return kept if ids is None else kept[ids]
        if ids is None:
            return self._vectors(torch.arange(self.num_classes, device=self.cold.device))
        distinct, place = torch.unique(ids, return_inverse=True)
        # index_select, whose gradient adds up copies faster than that of vectors[place].
        vectors = self._vectors(distinct).index_select(0, place.flatten())
        return vectors.view(*ids.shape, self.dimension)

    def vectors_of(self, table: FeatureTable) -> Tensor:
        """Return vectors of any rows of features, known classes or not, without an id, [N, D]."""
        if self.features is None:
            raise ValueError("vectors_of needs features, and this tower has none")
        encoded = self.features.encode(table)
        unknown = self.unknown.to(encoded.dtype).expand(len(encoded), -1)
        return self._finished(self.tower(torch.cat([unknown, encoded], dim=1)))

    def queries(self, hidden: Tensor) -> Tensor:
        """Return hidden / τ in at least float32, scaled to length 1 first where cosine."""
        hidden = widened(hidden)
        if self.similarity == "cosine":
            hidden = normalize(hidden, dim=-1)
        return hidden if self.temperature == 1 else hidden / self.temperature

    def train(self, mode: bool = True) -> TowerScorer:
        """Change the mode, and drop the vectors that were kept."""
        self._kept = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has tensors of its own: what was kept says nothing of them.
        return {**self.__dict__, "_kept": None}

    def _kept_vectors(self) -> Tensor:
        """Return the vectors of all classes, computed again only if something changed."""
        tensors = [*self.parameters(), *self.buffers()]
        state = [(each.data_ptr(), each._version, each.dtype) for each in tensors]
        now = (state, torch.is_autocast_enabled(self.cold.device.type))
        if self._kept is None or self._kept[0] != now:
            ids = torch.arange(self.num_classes, device=self.cold.device)
            # Held, so that no other tensor can take the place by which these are told.
            held = [each.detach() for each in tensors]
            self._kept = (now, held, self._vectors(ids))
        return self._kept[2]

    def _vectors(self, ids: Tensor) -> Tensor:
        """Return the vectors of different classes, [N, D], block by block.

        Where gradients are wanted, a block's activations are computed again when its turn comes.
        """
        hidden_ids = self._hidden_ids(ids)
        widest = max(layer.in_features for layer in self.tower if isinstance(layer, nn.Linear))
        size = max(1, _BLOCK_NUMBERS // widest)
        if len(ids) <= size:
            return self._block(ids, hidden_ids)
        run: Callable[[Tensor, Tensor], Tensor] = self._block
        if torch.is_grad_enabled():
            run = _recomputed(self._block)
        blocks = zip(torch.split(ids, size), torch.split(hidden_ids, size), strict=True)
        return torch.cat([run(*block) for block in blocks])

    def _block(self, ids: Tensor, hidden_ids: Tensor) -> Tensor:
        return self._finished(self.tower(self._joined(ids, hidden_ids)))

    def _finished(self, vectors: Tensor) -> Tensor:
        return normalize(widened(vectors), dim=-1) if self.similarity == "cosine" else vectors

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

    Formula: W_L·relu(… relu(W_1·x + b_1) …) + b_L.

    Shapes: [B, sizes[0]] → [B, sizes[-1]].

    Cost: O(B·Σ sizes[i]·sizes[i + 1]).

    Reference: none.

    Use when: building a tower. Avoid when: layers need a norm or dropout of their own.

    >>> feed_forward([3, 5, 2])(torch.zeros(4, 3)).shape
    torch.Size([4, 2])
    """
    for place, size in enumerate(sizes):
        check_whole(f"size {place} of a tower's layers", size, 1, _MOST_UNITS)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _recomputed(block: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def run(ids: Tensor, hidden_ids: Tensor) -> Tensor:
        vectors: Tensor = checkpoint(block, ids, hidden_ids, use_reentrant=False)
        return vectors

    return run


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
