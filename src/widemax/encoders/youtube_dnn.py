"""A user from the mean of what they watched, from what is known of them, and from the time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from widemax.encoders.contexts import check_context, mean_rows
from widemax.encoders.dense import dense_mean
from widemax.encoders.users import Tower, features_dimension, item_table, known_features
from widemax.scoring.rows import gather_rows
from widemax.scoring.table import check_table_size
from widemax.validation import check_positive, check_tensor

_AGE_FEATURES = 3


class YouTubeDNNEncoder(nn.Module):
    """The mean of the watched items' vectors, put through a tower with all else that is known.

    Formula: m = mean over the known places of u(context[b, h]), 0 if there are none;
    e = (user features, a, a², √a) with a = age / ``oldest_age``, 0 where no age is given: now.
    Without ``layers``, hidden = m + A·e, and m itself where there is no e. Else hidden =
    C·ReLU(… ReLU(W_1·(m, e) + b_1) …) + c, one ReLU for each of ``layers``. The last map is linear,
    so that a user vector may point anywhere. ``dropout`` falls on m, on e and behind each ReLU.

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

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        layers: Sequence[int] = (),
        *,
        user_features: nn.Module | None = None,
        oldest_age: float | None = None,
        dropout: float = 0.0,
        sparse: bool = True,
    ) -> None:
        super().__init__()
        self.num_classes, self.dimension = check_table_size(num_classes, dimension)
        self.output_dimension = dimension
        self.oldest_age = None if oldest_age is None else check_positive("oldest_age", oldest_age)
        extras = features_dimension(user_features) + _AGE_FEATURES * (oldest_age is not None)
        self.tower = Tower(dimension, extras, layers, dropout=dropout)
        self.user_features = user_features
        self.items = item_table(num_classes, dimension, sparse=sparse)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return {"items.weight": range(self.num_classes)}

    def forward(
        self, context: Tensor, users: Tensor | None = None, ages: Tensor | None = None
    ) -> Tensor:
        """Return the user vectors, [B, D]."""
        context = check_context(context, self.num_classes)
        mean = mean_rows(self.items.weight, context, sparse=self.items.sparse)
        return self._of_mean(mean, users, ages)

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

    def _of_mean(self, mean: Tensor, users: Tensor | None, ages: Tensor | None) -> Tensor:
        features = None
        if self.user_features is not None:
            features = known_features(self.user_features, users, mean)
        return self._joined(mean, features, ages)

    def dense(self, context: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the user vectors of now, of contexts as ``DenseEncoder`` takes them, [B, D]."""
        return self._joined(dense_mean(self.items.weight, context), features, None)

    def _joined(self, mean: Tensor, features: Tensor | None, ages: Tensor | None) -> Tensor:
        extras = [] if features is None else [features]
        if self.oldest_age is not None:
            extras.append(_age_features(ages, mean, self.oldest_age))
        hidden: Tensor = self.tower(mean, torch.cat(extras, dim=1) if extras else None)
        return hidden

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return f"oldest_age={self.oldest_age}"


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
