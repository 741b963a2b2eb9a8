"""What the simple recommenders share: fitted in one go, a history is a set of items."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.data.sequences import offsets_of
from widemax.declarations import Option, Setup
from widemax.models.context_head import ContextHead
from widemax.models.retrieval.history import HistoryModel
from widemax.validation import ABSENT, check_ids, check_tensor

REGULARISATION = Option("regularisation", 1.0, "Weight of the L2 penalty.", least=1e-9, most=1e9)


class SetHead(ContextHead):
    """The scores of a simple recommender, asked by contexts instead of hidden states.

    Formula: F(x, y) = ``set_scores`` of the distinct items of the context; log P = F − LSE of F,
    which is a probability by name only unless the recommender's scores are logarithms.

    Shapes: ``hidden`` is the context itself, int64 [B, H], -1 where there is no item;
    ``set_scores`` takes such a context in which no item is repeated and returns [B, V].

    Cost: that of the scores of all V classes.

    Use when: a recommender without hidden states should answer like any other. Avoid when: there
    is anything to train with gradients.

    >>> head = SetHead(3, lambda sets: (sets[:, :, None] == torch.arange(3)).sum(1).float())
    >>> head.scores(torch.tensor([[2, 2, -1]])).tolist()
    [[0.0, 0.0, 1.0]]
    """

    def __init__(self, num_classes: int, set_scores: Callable[[Tensor], Tensor]) -> None:
        super().__init__(num_classes)
        self._set_scores = set_scores

    def scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return F(x, y) of the given classes ([S] shared, or [B, S]), or of all, [B, V]."""
        return _chosen(self._all_scores(hidden), ids)

    def log_prob(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return the scores, normalised over all classes by a softmax."""
        return _chosen(self._all_scores(hidden).log_softmax(-1), ids)

    def _all_scores(self, hidden: Tensor) -> Tensor:
        if check_tensor("hidden", hidden).dim() != 2:
            raise ValueError(f"hidden must have shape [B, H], got {list(hidden.shape)}")
        hidden = check_ids("hidden", hidden, self.num_classes, absent=True)
        return self._set_scores(as_sets(hidden))


class Baseline(HistoryModel):
    """A recommender that is fitted instead of trained, and sees a history as a set.

    What is fitted are buffers whose shapes follow from the arguments, so that ``load_state_dict``
    takes them.

    Use when: writing a recommender to compare models with. Avoid when: it is trained with
    gradients (``Model``).
    """

    fitted: Tensor
    weighs: ClassVar[bool] = True
    """Whether ``fit_sets`` takes the weights of its values too."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(None, SetHead(num_classes, self._fitted_scores))
        self.register_buffer("fitted", torch.tensor(False))

    @property
    def num_classes(self) -> int:
        """How many items there are."""
        return self.head.num_classes

    @staticmethod
    def min_parameter_count(setup: Setup) -> int:
        """Return 0: each checks its own size before it allocates."""
        return 0

    @abstractmethod
    def set_scores(self, sets: Tensor) -> Tensor:
        """Return the scores [B, V] of histories [B, H] that repeat no item; -1 is no item."""

    @abstractmethod
    def fit_sets(self, sets: Sequences, weights: Tensor | None = None) -> None:
        """Fit to histories that repeat no item, each in rising order of ids, with weights [T]."""

    def fit(self, sequences: Sequences) -> None:
        """Fit to the histories of users; what was fitted before is forgotten.

        Of the weights of an item that a user had several times the largest counts.
        """
        check_ids("sequences", sequences.values, self.num_classes)
        weights = sequences.relative_weights()
        if weights is None:
            self.fit_sets(distinct(sequences))
        elif not self.weighs:
            raise ValueError(f"{type(self).__name__} counts all that users had alike: no weights")
        else:
            sets = distinct(sequences.weighed_by(weights))
            self.fit_sets(sets.weighed_by(None), sets.weights)
        self.fitted.fill_(True)

    def _fitted_scores(self, sets: Tensor) -> Tensor:
        if not self.fitted:
            raise ValueError(f"{type(self).__name__} has not been fitted yet")
        return self.set_scores(sets)


def as_sets(context: Tensor) -> Tensor:
    """Return contexts [B, H] sorted, with -1 for what is repeated.

    >>> as_sets(torch.tensor([[5, -1, 2, 5]])).tolist()
    [[-1, 2, 5, -1]]
    """
    ordered = context.sort(dim=1).values
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return ordered.masked_fill(repeated, ABSENT)


def distinct(sequences: Sequences) -> Sequences:
    """Return the distinct values of each sequence, in rising order, each with its largest weight.

    Values of weight 0 are left out.

    >>> distinct(Sequences.from_lists([[4, 0, 4], [1]])).values.tolist()
    [0, 4, 1]
    """
    owners = torch.repeat_interleave(torch.arange(len(sequences)), sequences.lengths)
    width = 1 + int(sequences.values.max()) if len(sequences.values) else 1
    pairs = owners * width + sequences.values
    if sequences.weights is None:
        pairs, weights = torch.unique(pairs), None
    else:
        counted = sequences.weights > 0
        pairs, place = torch.unique(pairs[counted], return_inverse=True)
        weights = sequences.weights.new_zeros(len(pairs))
        weights.scatter_reduce_(0, place, sequences.weights[counted], "amax")
    offsets = offsets_of(torch.bincount(pairs // width, minlength=len(sequences)))
    return Sequences.trusted(pairs % width, offsets, weights=weights)


def transposed(sets: Sequences, num_classes: int) -> Sequences:
    """Return, for each class, the numbers of the sets that hold it, in rising order.

    >>> transposed(Sequences.from_lists([[0, 2], [2]]), 3).lengths.tolist()
    [1, 0, 2]
    """
    owners = torch.repeat_interleave(torch.arange(len(sets)), sets.lengths)
    order = sets.values.argsort(stable=True)
    counts = torch.bincount(sets.values, minlength=num_classes)
    weights = None if sets.weights is None else sets.weights[order]
    return Sequences.trusted(owners[order], offsets_of(counts), weights=weights)


def _chosen(values: Tensor, ids: Tensor | None) -> Tensor:
    """Return the columns ``ids`` of values [B, V], one list for all rows or one a row."""
    if ids is None:
        return values
    ids, rows = check_ids("ids", ids, values.shape[1]), len(values)
    if ids.dim() != 1 and (ids.dim() != 2 or len(ids) != rows):
        raise ValueError(f"ids must have shape [S] or [{rows}, S], got {list(ids.shape)}")
    return values.gather(1, ids.expand(rows, -1))
