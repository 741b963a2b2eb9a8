"""One learned vector per class."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding as look_up
from torch.nn.functional import normalize

from widemax.scoring.base import Scorer
from widemax.validation import check_num_classes, check_positive, check_whole

MAX_ENTRIES = 2**38
"""Most numbers a table may hold: a terabyte in float32."""

Similarity = Literal["dot", "cosine"]


class TableScorer(Scorer):
    """A table with one vector, and if wanted one bias, per class.

    Formula: F(x, y) = x·v_y / τ + b_y, with x and v_y scaled to length 1 when ``similarity`` is
    "cosine". τ (``temperature``) divides the similarity only, never the bias or a correction.

    Shapes: ``weight`` [V, D], ``bias`` [V] or None; see ``Scorer``.

    Cost: O(B·S·D) time, V·D parameters. With ``sparse=True`` the gradient of ``weight`` holds only
    the rows of the given ids (as in ``nn.Embedding``), for optimisers that take it: SGD, Adagrad,
    SparseAdam.

    Reference: none.

    Use when: classes are known and each is seen often enough. Avoid when: new classes must be
    scored from their features.

    >>> import torch
    >>> scorer = TableScorer(1000, 64, bias=True)
    >>> scorer(torch.randn(8, 64), torch.tensor([5, 7])).shape
    torch.Size([8, 2])
    """

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        *,
        bias: bool = False,
        similarity: Similarity = "dot",
        temperature: float = 1.0,
        sparse: bool = False,
    ) -> None:
        num_classes = check_num_classes(num_classes, limit=MAX_ENTRIES)
        dimension = check_whole("dimension", dimension, 1, MAX_ENTRIES // num_classes)
        weight = nn.Parameter(torch.empty(num_classes, dimension))
        # Scores of a hidden state with entries of size 1 then start at size 1, whatever D is.
        nn.init.normal_(weight, std=dimension**-0.5)
        self._set_up(weight, bias, similarity, temperature, sparse)

    @classmethod
    def tied(
        cls,
        embedding: nn.Embedding,
        *,
        bias: bool = False,
        similarity: Similarity = "dot",
        temperature: float = 1.0,
        sparse: bool = False,
    ) -> TableScorer:
        """Return a scorer whose class vectors are the embedding's own, learned together.

        >>> embedding = nn.Embedding(10, 4)
        >>> TableScorer.tied(embedding).weight is embedding.weight
        True
        """
        if not isinstance(embedding, nn.Embedding):
            raise ValueError(f"embedding must be an nn.Embedding, got {type(embedding).__name__}")
        if embedding.padding_idx is not None:
            raise ValueError(
                f"embedding must not have a padding_idx, got {embedding.padding_idx}: it would be "
                "scored and recommended like any class"
            )
        scorer = cls.__new__(cls)
        if not isinstance(embedding.weight, nn.Parameter):
            raise ValueError("embedding must own its weight as a parameter, not compute it")
        scorer._set_up(embedding.weight, bias, similarity, temperature, sparse)
        return scorer

    def _set_up(
        self,
        weight: nn.Parameter,
        bias: bool,
        similarity: Similarity,
        temperature: float,
        sparse: bool,
    ) -> None:
        if similarity not in ("dot", "cosine"):
            raise ValueError(f"similarity must be 'dot' or 'cosine', got {similarity!r}")
        check_positive("temperature", temperature)
        super().__init__()
        self.num_classes, self.dimension = weight.shape
        self.similarity = similarity
        self.temperature = temperature
        self.sparse = sparse
        self.weight = weight
        self.bias = nn.Parameter(weight.new_zeros(self.num_classes)) if bias else None

    def queries(self, hidden: Tensor) -> Tensor:
        """Return hidden / τ, scaled to length 1 first when the similarity is cosine."""
        if self.similarity == "cosine":
            hidden = normalize(hidden, dim=-1)
        return hidden if self.temperature == 1 else hidden / self.temperature

    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return rows of the table, scaled to length 1 when the similarity is cosine."""
        vectors = self.weight if ids is None else look_up(ids, self.weight, sparse=self.sparse)
        return normalize(vectors, dim=-1) if self.similarity == "cosine" else vectors

    def class_biases(self, ids: Tensor | None = None) -> Tensor | None:
        """Return the biases of the given classes, or of all."""
        return self.bias if self.bias is None or ids is None else self.bias[ids]

    def extra_repr(self) -> str:
        """Return what ``print(scorer)`` shows."""
        return (
            f"num_classes={self.num_classes}, dimension={self.dimension}, "
            f"bias={self.bias is not None}, similarity={self.similarity!r}, "
            f"temperature={self.temperature}"
        )
