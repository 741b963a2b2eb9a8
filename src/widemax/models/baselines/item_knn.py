"""Items like those of the history, by the users they share."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.declarations import Option, declare
from widemax.kernels.models.neighbours import nearest_items
from widemax.models.baselines.base import Baseline, transposed
from widemax.models.options import MAX_HISTORY
from widemax.validation import ABSENT, check_not_negative, check_num_classes, check_whole

_MOST_ENTRIES = 2**32


@declare.model(
    "item-knn",
    options=[
        MAX_HISTORY,
        Option("num_neighbours", 100, "Neighbours kept for each item.", least=1, most=2**20),
        Option("shrinkage", 10.0, "Lowers the similarity of items that few users share.", most=1e9),
    ],
    slots=["trainer"],
    traits=["fitted"],
    usual={"trainer": "fit"},
)
class ItemKNN(Baseline):
    """Recommends the nearest neighbours of the items of a history.

    Formula: F(x, y) = Σ over the items i of x that have y among their ``num_neighbours`` nearest of
    s(i, y), s(i, j) = n_ij / (√(n_i·n_j) + shrinkage), n_i the users of i and n_ij those of both:
    the cosine of their columns, held down where few users speak for it.

    Fitting takes O(Σ over users of their items squared), and 12 bytes a neighbour.

    Reference: Deshpande & Karypis 2004; the shrinkage is that of Bell & Koren 2007.

    Use when: a strong floor is wanted within seconds. Avoid when: items share hardly any user.

    >>> model = ItemKNN(3, num_neighbours=2, shrinkage=0.0)
    >>> model.fit(Sequences.from_lists([[0, 1], [1, 2]]))
    >>> round(model.head.scores(torch.tensor([[0, 2]]))[0, 1].item(), 4)  # 2 / √2
    1.4142
    """

    weighs = False
    neighbours: Tensor
    similarities: Tensor

    def __init__(
        self, num_classes: int, *, num_neighbours: int = 100, shrinkage: float = 10.0
    ) -> None:
        num_classes = check_num_classes(num_classes, limit=_MOST_ENTRIES)
        self.num_neighbours = check_whole(
            "num_neighbours", num_neighbours, 1, max(1, _MOST_ENTRIES // num_classes)
        )
        self.shrinkage = check_not_negative("shrinkage", shrinkage)
        super().__init__(num_classes)
        shape = (num_classes, num_neighbours)
        self.register_buffer("neighbours", torch.full(shape, ABSENT))
        self.register_buffer("similarities", torch.zeros(shape))

    def fit_sets(self, sets: Sequences, weights: Tensor | None = None) -> None:
        """Find the neighbours of each item."""
        users = transposed(sets, self.num_classes)
        ids, similarities = nearest_items(
            sets.offsets.numpy(),
            sets.values.numpy(),
            users.offsets.numpy(),
            users.values.numpy(),
            self.shrinkage,
            self.num_neighbours,
        )
        self.neighbours.copy_(torch.from_numpy(ids))
        self.similarities.copy_(torch.from_numpy(similarities))

    def table_answers(self) -> dict[str, str | float]:
        """Return which buffers answer."""
        return {
            "rule": "neighbours",
            "table.neighbours": "neighbours",
            "table.similarities": "similarities",
        }

    def set_scores(self, sets: Tensor) -> Tensor:
        """Return the summed similarities to the items of each history, [B, V]."""
        rows, places = (sets >= 0).nonzero(as_tuple=True)
        items = sets[rows, places]
        neighbours = self.neighbours[items]
        scores = self.similarities.new_zeros(len(sets), self.num_classes)
        # Where an item has fewer neighbours, it adds 0 to the first class.
        columns = neighbours.clamp(min=0)
        own_rows = rows[:, None].expand_as(columns)
        return scores.index_put_((own_rows, columns), self.similarities[items], accumulate=True)
