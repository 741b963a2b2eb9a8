"""A user from the mean of what they watched, from what is known of them, and from the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from widemax.encoders.contexts import check_context, mean_rows
from widemax.encoders.dense import dense_mean
from widemax.encoders.users import Tower, features_dimension, item_table, known_features
from widemax.scoring.rows import gather_rows
from widemax.scoring.table import check_table_size
from widemax.validation import ABSENT, check_positive, check_tensor

_AGE_FEATURES = 3

Mean = Callable[[nn.Embedding, Tensor], Tensor]


class YouTubeDNNEncoder(nn.Module):
    """The mean of the watched items' vectors, put through a tower with all else that is known.

    Formula: m = mean over the known places of u(context[b, h]), 0 if there are none;
    e = (user features, a, a², √a) with a = age / ``oldest_age``, 0 where no age is given: now.
    Without ``layers``, hidden = m + A·e, and m itself where there is no e. Else hidden =
    C·ReLU(… ReLU(W_1·(m, e) + b_1) …) + c, one ReLU for each of ``layers``. The last map is linear,
    so that a user vector may point anywhere. ``dropout`` falls on m, on e and behind each ReLU.
    With ``words``, bool [V], the classes that are words of searches have vectors of their own, and
    are no items of m: e also has their mean over the context, and over the places behind its last
    item, what was typed just now.

    Shapes: context int64 [B, H], -1 anywhere; ``users`` int64 [B], -1 unknown; ``ages`` [B] days →
    hidden [B, D]. ``user_features`` is any module that turns users [B] into
    [B, ``output_dimension``]. With ``sparse`` the gradient of ``items`` [V, D] holds the rows of
    the context only.

    Reference: Covington, Adams & Sargin 2016.

    >>> encoder = YouTubeDNNEncoder(10, 4)
    >>> hidden = encoder(torch.tensor([[-1, 3, 5], [-1, -1, -1]]))
    >>> torch.allclose(hidden[0], encoder.items.weight[[3, 5]].mean(0)), hidden[1].tolist()
    (True, [0.0, 0.0, 0.0, 0.0])
    """

    words: Tensor | None

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        layers: Sequence[int] = (),
        *,
        user_features: nn.Module | None = None,
        oldest_age: float | None = None,
        words: Tensor | None = None,
        dropout: float = 0.0,
        sparse: bool = True,
    ) -> None:
        super().__init__()
        self.num_classes, self.dimension = check_table_size(num_classes, dimension)
        self.output_dimension = dimension
        self.oldest_age = None if oldest_age is None else check_positive("oldest_age", oldest_age)
        extras = features_dimension(user_features) + _AGE_FEATURES * (oldest_age is not None)
        extras += 0 if words is None else 2 * dimension
        self.tower = Tower(dimension, extras, layers, dropout=dropout)
        self.user_features = user_features
        self.items = item_table(num_classes, dimension, sparse=sparse)
        # Known from the keys whenever the model is built: not part of what it learned.
        self.register_buffer("words", words, persistent=False)
        self.searches = None if words is None else item_table(num_classes, dimension, sparse=sparse)

    @property
    def only_mean(self) -> bool:
        """Whether a user vector is the mean of the items alone, as they are in the table."""
        return not self.tower.extras and not self.tower.layers

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        names = ["items.weight"] if self.searches is None else ["items.weight", "searches.weight"]
        return {name: range(self.num_classes) for name in names}

    def forward(
        self, context: Tensor, users: Tensor | None = None, ages: Tensor | None = None
    ) -> Tensor:
        """Return the user vectors, [B, D]."""
        context = check_context(context, self.num_classes)
        mean, searched = self._means(context, _sparse_mean)
        return self._of_mean(mean, users, ages, searched)

    def _means(self, context: Tensor, mean: Mean) -> tuple[Tensor, list[Tensor]]:
        """Return the means of the items of contexts and, where there are any, of the words."""
        items, *typed = self._apart(context)
        table = self.searches
        searched = [] if table is None else [mean(table, words) for words in typed]
        return mean(self.items, items), searched

    def _apart(self, context: Tensor) -> list[Tensor]:
        """Return the items of contexts, and with words these, and those behind the last item."""
        if self.words is None:
            return [context]
        typed = (context >= 0) & self.words[context.clamp(min=0)]
        items = context.masked_fill(typed, ABSENT)
        # Counted from the end: what has an item behind it was not typed just now.
        behind = (items >= 0).long().flip(1).cumsum(1).flip(1)
        words = context.masked_fill(~typed, ABSENT)
        return [items, words, words.masked_fill(behind > 0, ABSENT)]

    def of_others(self, bags: Tensor, targets: Tensor, owners: Tensor, users: Tensor) -> Tensor:
        """Return the user vectors of all items of a bag but the target, [B, D].

        With m the mean of the n items of bags[owner], [U, H], that of the others than target t is
        (n·m − v_t) / (n − 1): the bag is read once for all of its targets.
        """
        bags = check_context(bags, self.num_classes)
        table, sparse = self.items.weight, self.items.sparse
        sizes = (bags >= 0).sum(1, keepdim=True)
        sums = mean_rows(table, bags, sparse=sparse) * sizes
        # One copy of the target goes, if it is there: it may have been left out.
        there = (bags[owners] == targets[:, None]).any(1, keepdim=True)
        own = gather_rows(table, targets, sparse=sparse)
        others = sizes[owners] - there.long()
        return self._of_mean((sums[owners] - own * there) / others.clamp(min=1), users, None)

    def _of_mean(
        self,
        mean: Tensor,
        users: Tensor | None,
        ages: Tensor | None,
        searched: Sequence[Tensor] = (),
    ) -> Tensor:
        features = None
        if self.user_features is not None:
            features = known_features(self.user_features, users, mean)
        return self._joined(mean, features, ages, searched)

    def dense(self, context: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the user vectors of now, of contexts as ``DenseEncoder`` takes them, [B, D]."""
        mean, searched = self._means(context, _plain_mean)
        return self._joined(mean, features, None, searched)

    def _joined(
        self,
        mean: Tensor,
        features: Tensor | None,
        ages: Tensor | None,
        searched: Sequence[Tensor] = (),
    ) -> Tensor:
        extras = [*searched] if features is None else [*searched, features]
        if self.oldest_age is not None:
            extras.append(_age_features(ages, mean, self.oldest_age))
        hidden: Tensor = self.tower(mean, torch.cat(extras, dim=1) if extras else None)
        return hidden

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return f"oldest_age={self.oldest_age}"


def _sparse_mean(table: nn.Embedding, context: Tensor) -> Tensor:
    return mean_rows(table.weight, context, sparse=table.sparse)


def _plain_mean(table: nn.Embedding, context: Tensor) -> Tensor:
    return dense_mean(table.weight, context)


def _age_features(ages: Tensor | None, like: Tensor, oldest: float) -> Tensor:
    """Return a, a² and √a of ages in days, [B, 3]; None: all is asked now, at age 0."""
    if ages is None:
        return like.new_zeros(like.shape[0], _AGE_FEATURES)
    if check_tensor("ages", ages).shape != (len(like),):
        raise ValueError(f"ages must have shape [{len(like)}], got {list(ages.shape)}")
    if not bool((ages >= 0).all()):
        raise ValueError(f"ages must be at least 0 days, got {float(ages.min())}")
    share = ages.to(like.dtype) / oldest
    return torch.stack([share, share.square(), share.sqrt()], dim=1)
