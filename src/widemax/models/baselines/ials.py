"""Matrix factorisation of what was chosen and what was not, by alternating least squares."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.declarations import Option, declare
from widemax.models.baselines.base import REGULARISATION, Baseline, transposed
from widemax.models.options import DIMENSION, MAX_HISTORY, WEIGHTS
from widemax.validation import ABSENT, check_not_negative, check_positive, check_whole

_MOST_ENTRIES = 2**32
_INITIAL_DEVIATION = 0.1
# Vectors gathered at once, padding included: few enough for the cache to help.
_PLACES_AT_ONCE = 2**14
_SYSTEMS_AT_ONCE = 2**22


@declare.model(
    "ials",
    options=[
        DIMENSION,
        MAX_HISTORY,
        *WEIGHTS,
        REGULARISATION,
        Option("confidence", 10.0, "Weight of chosen items relative to all others.", most=1e9),
        Option(
            "num_sweeps", 15, "Times that users and items are solved in turn.", least=1, most=10_000
        ),
    ],
    slots=["trainer"],
    traits=["fitted"],
    usual={"trainer": "fit"},
)
class IALS(Baseline):
    """Recommends by the product of a user vector, solved from the history, and item vectors.

    Formula: x and v minimise Σ over all users and items of c·(r − x_u·v_i)² +
    regularisation·(Σ|x_u|² + Σ|v_i|²), with r = 1 and c = 1 + confidence (times its weight, where
    there are any) for what was chosen, r = 0 and c = 1 for all else. In turn each side is solved
    exactly, the other held:
    x_u = (VᵀV + confidence·Σ_i v_i v_iᵀ + regularisation·I)⁻¹ (1 + confidence)·Σ_i v_i over the
    items of u. F(x, y) = x·v_y, x solved from the history in the same way.

    A sweep over T choices of N users takes O(T·D² + (N + V)·D³). User vectors are not kept.

    Reference: Hu, Koren & Volinsky 2008.

    Use when: items are many and histories are sets. Avoid when: order matters (``SASRec``).

    >>> model = IALS(4, dimension=2, regularisation=0.1, confidence=10.0)
    >>> model.fit(Sequences.from_lists([[0, 1]] * 3 + [[2, 3]] * 3))
    >>> model.head.topk(torch.tensor([[0]]), 1, exclude=torch.tensor([[0]])).ids.tolist()
    [[1]]
    """

    item_vectors: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        dimension: int = 64,
        regularisation: float = 1.0,
        confidence: float = 10.0,
        num_sweeps: int = 15,
        seed: int = 0,
    ) -> None:
        num_classes = check_whole("num_classes", num_classes, 1, _MOST_ENTRIES)
        self.dimension = check_whole(
            "dimension", dimension, 1, max(1, min(4096, _MOST_ENTRIES // num_classes))
        )
        self.regularisation = check_positive("regularisation", regularisation)
        self.confidence = check_not_negative("confidence", confidence)
        self.num_sweeps = check_whole("num_sweeps", num_sweeps, 1, 10_000)
        self.seed = seed
        super().__init__(num_classes)
        self.register_buffer("item_vectors", torch.zeros(num_classes, dimension))

    def fit_sets(self, sets: Sequences, weights: Tensor | None = None) -> None:
        """Solve users and items in turn, from random item vectors."""
        sets = sets.weighed_by(weights)
        users = transposed(sets, self.num_classes)
        generator = torch.Generator().manual_seed(self.seed)
        self.item_vectors.normal_(std=_INITIAL_DEVIATION, generator=generator)
        for _ in range(self.num_sweeps):
            user_vectors = self._solved(sets, self.item_vectors)
            self.item_vectors.copy_(self._solved(users, user_vectors))

    def table_answers(self) -> dict[str, str | float]:
        """Return which buffer answers, and what a user is solved with."""
        return {
            "rule": "solve",
            "table.vectors": "item_vectors",
            "confidence": self.confidence,
            "regularisation": self.regularisation,
        }

    def set_scores(self, sets: Tensor) -> Tensor:
        """Return the products with the vector of each history, [B, V]."""
        gram = self.item_vectors.T @ self.item_vectors
        return self._solve(sets, self.item_vectors, gram) @ self.item_vectors.T

    def _solved(self, sets: Sequences, vectors: Tensor) -> Tensor:
        """Return the vector of each set, given those of its members."""
        gram = vectors.T @ vectors
        solved = vectors.new_zeros(len(sets), self.dimension)
        for rows, members, weights in _padded_parts(sets, _SYSTEMS_AT_ONCE // self.dimension**2):
            solved[rows] = self._solve(members, vectors, gram, weights)
        return solved

    def _solve(
        self, members: Tensor, vectors: Tensor, gram: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return (gram + confidence·Σ v vᵀ + regularisation·I)⁻¹ (1 + confidence)·Σ v, [B, D]."""
        there = (members >= 0).to(vectors.dtype)[..., None]
        chosen = vectors[members.clamp(min=0)] * there
        weighed = chosen if weights is None else chosen * weights[..., None]
        systems = torch.baddbmm(gram, weighed.mT, chosen, alpha=self.confidence)
        systems.diagonal(dim1=1, dim2=2).add_(self.regularisation)
        wanted = (1 + self.confidence) * chosen.sum(1)
        if weights is not None:
            wanted = chosen.sum(1) + self.confidence * weighed.sum(1)
        factors = torch.linalg.cholesky(systems)
        return torch.cholesky_solve(wanted[..., None], factors)[..., 0]


def _padded_parts(
    sets: Sequences, most_rows: int
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield rows of similar length, their members [B, L], padded with -1, and their weights."""
    order = sets.lengths.argsort(stable=True)
    start = 0
    while start < len(order):
        ahead = sets.lengths[order[start : start + max(1, most_rows)]].clamp(min=1)
        # Lengths rise, so that the last row says how wide the part is.
        fitting = ahead * torch.arange(1, len(ahead) + 1) <= _PLACES_AT_ONCE
        rows = order[start : start + max(1, int(fitting.sum()))]
        start += len(rows)
        steps = torch.arange(max(1, int(sets.lengths[rows[-1]])))
        places = sets.offsets[rows, None] + steps
        inside = steps < sets.lengths[rows, None]
        if len(sets.values):
            places = places.clamp(max=len(sets.values) - 1)
            weights = None if sets.weights is None else sets.weights[places]
            yield rows, torch.where(inside, sets.values[places], ABSENT), weights
        else:
            yield rows, torch.full_like(places, ABSENT), None
