"""A linear model of each item by all others, in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.declarations import declare
from widemax.models.baselines.base import REGULARISATION, Baseline
from widemax.models.options import MAX_HISTORY, WEIGHTS
from widemax.validation import check_num_classes, check_positive

MAX_EASE_CLASSES = 2**14
"""Most classes whose square matrix is inverted: two of them take 4 GB in float64."""

_USERS_AT_ONCE = 2**22


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

    Fitting takes O(V³) time and 20·V² bytes, V up to ``MAX_EASE_CLASSES``.

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
        gram = _gram(sets.weighed_by(weights), self.num_classes)
        gram.diagonal().add_(self.regularisation)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
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


def _gram(sets: Sequences, num_classes: int) -> Tensor:
    """Return how many sets hold each pair of classes, or products of weights, float64 [V, V]."""
    gram = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    rows_at_once = max(1, _USERS_AT_ONCE // num_classes)
    for rows in torch.split(torch.arange(len(sets)), rows_at_once):
        part = sets.chosen(rows)
        held = gram.new_zeros(len(rows), num_classes)
        owners = torch.repeat_interleave(torch.arange(len(rows)), part.lengths)
        held[owners, part.values] = 1.0 if part.weights is None else part.weights.double()
        gram.addmm_(held.T, held)
    return gram
