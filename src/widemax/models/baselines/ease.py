"""A linear model of each item by all others, in closed form."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.data import Sequences
from widemax.declarations import declare
from widemax.kernels.models.gram import lower_gram
from widemax.models.baselines.base import REGULARISATION, Baseline, transposed
from widemax.models.options import MAX_HISTORY, WEIGHTS
from widemax.validation import check_num_classes, check_positive

MAX_EASE_CLASSES = 2**14
"""Most classes whose square matrix is inverted: in float64 it takes 2 GB."""

_INVERTED_AT_ONCE = 256


@declare.model(
    "ease",
    options=[MAX_HISTORY, REGULARISATION, *WEIGHTS],
    slots=["trainer"],
    traits=["fitted"],
    usual={"trainer": "fit", "regularisation": 500.0},
)
class EASE(Baseline):
    """Predicts each item from the set of all others, by the best linear weights.

    Formula: B minimises |X − X·B|² + regularisation·|B|² with a diagonal of 0, for X [users, V] of
    0 and 1, or of weights: with P = (XᵀX + regularisation·I)⁻¹, B_ij = −P_ij / P_jj off the
    diagonal. F(x, y) = Σ over the items i of x of B_iy.

    Fitting takes O(V³) time and 16·V² bytes, V up to ``MAX_EASE_CLASSES``.

    Reference: Steck 2019.

    Use when: items are a few thousand and histories are sets: hard to beat there. Avoid when:
    there are more (``ItemKNN``, ``IALS``), or order matters (``SASRec``).

    >>> model = EASE(3, regularisation=1.0)
    >>> model.fit(Sequences.from_lists([[0, 1], [0, 1], [2]]))
    >>> round(model.head.scores(torch.tensor([[0]]))[0, 1].item(), 4)  # 2 / (2 + 1)
    0.6667
    """

    weight: Tensor

    def __init__(self, num_classes: int, *, regularisation: float = 500.0) -> None:
        num_classes = check_num_classes(num_classes, limit=MAX_EASE_CLASSES)
        self.regularisation = check_positive("regularisation", regularisation)
        super().__init__(num_classes)
        self.register_buffer("weight", torch.zeros(num_classes, num_classes))

    def fit_sets(self, sets: Sequences, weights: Tensor | None = None) -> None:
        """Count which items share users, and invert."""
        inverse = _lower_gram(sets.weighed_by(weights), self.num_classes)
        inverse.diagonal().add_(self.regularisation)
        _invert(inverse)
        inverse /= -inverse.diagonal().clone()
        inverse.fill_diagonal_(0.0)
        self.weight.copy_(inverse)

    def table_answers(self) -> dict[str, str | float]:
        """Return which buffer answers."""
        return {"rule": "sum", "table.rows": "weight"}

    def set_scores(self, sets: Tensor) -> Tensor:
        """Return the summed weights of the items of each history, [B, V]."""
        scores = self.weight.new_zeros(len(sets), self.num_classes)
        rows, places = (sets >= 0).nonzero(as_tuple=True)
        return scores.index_add_(0, rows, self.weight[sets[rows, places]])


def _lower_gram(sets: Sequences, num_classes: int) -> Tensor:
    """Return how many sets hold each pair of classes, or products of weights, float64 [V, V]."""
    if sets.weights is None:
        sets = sets.weighed_by(torch.ones(len(sets.values)))
    parts: list[NDArray[Any]] = []
    for each in (sets, transposed(sets, num_classes)):
        assert each.weights is not None
        parts += [each.offsets.numpy(), each.values.numpy(), each.weights.double().numpy()]
    return torch.from_numpy(lower_gram(*parts))


def _invert(matrix: Tensor) -> None:
    """Invert a positive definite matrix, given by its lower triangle, in its own memory.

    By halves, with the Schur complement of the first: nearly all of it is matrix products, which
    run at the full speed of the processor where a triangular inverse does not.
    """
    if len(matrix) <= _INVERTED_AT_ONCE:
        matrix.copy_(torch.cholesky_inverse(torch.linalg.cholesky(matrix)))
        return
    half = len(matrix) // 2
    first, below, last = matrix[:half, :half], matrix[half:, :half], matrix[half:, half:]
    _invert(first)
    slopes = below @ first
    last.addmm_(slopes, below.T, alpha=-1)
    _invert(last)
    torch.mm(last, slopes, out=below)
    first.addmm_(slopes.T, below)
    below.neg_()
    matrix[:half, half:] = below.T
