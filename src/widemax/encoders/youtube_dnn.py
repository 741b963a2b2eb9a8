"""A user from the mean of what he watched, from what is known of him, and from when it was."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from widemax.encoders.mean_rows import mean_rows
from widemax.scoring.table import check_table_size, initial_deviation
from widemax.validation import (
    ABSENT,
    check_fraction,
    check_ids,
    check_positive,
    check_tensor,
    check_whole,
)

_MOST_UNITS = 2**20
_AGE_FEATURES = 3


class YouTubeDNNEncoder(nn.Module):
    """The mean of the watched items' vectors, put through a tower with all else that is known.

    Formula: m = mean over the known places of u(context[b, h]), 0 if there are none;
    e = (user features, a, a², √a) with a = age / ``oldest_age``, 0 where no age is given: now.
    Without ``layers``, hidden = m + A·e, and m itself where there is no e. Else hidden =
    C·ReLU(… ReLU(W_1·(m, e) + b_1) …) + c, one ReLU for each of ``layers``. The last map is linear,
    so that a user vector may point anywhere. ``dropout`` falls on m, on e and behind each ReLU.

    Shapes: context int64 [B, H], -1 anywhere; ``users`` int64 [B], -1 unknown; ``ages`` [B] days →
    hidden [B, D]; ``items.weight`` [V, D].

    Cost: ``mean_rows``' and the tower's. With ``sparse`` the gradient of ``items`` holds the rows
    of the context only.

    Reference: Covington, Adams & Sargin 2016.

    Use when: many items tell a user's taste, and their order little. ``user_features`` is any
    module that turns users [B] into [B, ``output_dimension``]. Avoid when: order matters
    (``SDMEncoder``), or one vector cannot hold a user's interests (``MINDEncoder``).

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
        self.oldest_age = None if oldest_age is None else check_positive("oldest_age", oldest_age)
        extras = features_dimension(user_features) + _AGE_FEATURES * (oldest_age is not None)
        self.tower = Tower(dimension, extras, layers, dropout=dropout)
        self.user_features = user_features
        self.items = item_table(num_classes, dimension, sparse=sparse)

    @property
    def output_dimension(self) -> int:
        """How wide the hidden state is: the ``dimension`` that the head's scorer needs."""
        return self.dimension

    def forward(
        self, context: Tensor, users: Tensor | None = None, ages: Tensor | None = None
    ) -> Tensor:
        """Return the user vectors, [B, D]."""
        context = check_context(context, self.num_classes)
        mean = mean_rows(self.items.weight, context, sparse=self.items.sparse)
        extras = []
        if self.user_features is not None:
            extras.append(known_features(self.user_features, users, context))
        if self.oldest_age is not None:
            extras.append(_age_features(ages, mean, self.oldest_age))
        hidden: Tensor = self.tower(mean, torch.cat(extras, dim=1) if extras else None)
        return hidden

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return f"oldest_age={self.oldest_age}"


class Tower(nn.Module):
    """Layers with ReLU on a vector and what is known beside it; without layers, their sum.

    Formula: without ``layers``, x + A·e; else a linear map of ReLU(… ReLU(W_1·(x, e) + b_1) …).

    Shapes: x [..., D], e [..., E] or None → [..., D].

    Cost: that of its layers.

    Reference: Covington, Adams & Sargin 2016.

    Use when: writing an encoder of users. Avoid when: nothing is known beside one vector.

    >>> Tower(4, 3, [16])(torch.zeros(2, 4), torch.zeros(2, 3)).shape
    torch.Size([2, 4])
    """

    def __init__(
        self, dimension: int, extras: int, layers: Sequence[int] = (), *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        sizes = [check_whole(f"layers[{i}]", size, 1, _MOST_UNITS) for i, size in enumerate(layers)]
        self.extras = extras
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        self.beside = nn.Linear(extras, dimension, bias=False) if extras and not sizes else None
        inputs = [dimension + extras, *sizes]
        outputs = [*sizes, dimension] if sizes else []
        self.layers = nn.ModuleList(
            nn.Linear(wide, narrow) for wide, narrow in zip(inputs, outputs, strict=False)
        )
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            last = layer is self.layers[-1]
            # He et al. 2015: signals keep their size through ReLUs, whatever the depth is.
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear" if last else "relu")
            nn.init.zeros_(layer.bias)

    def forward(self, vectors: Tensor, extras: Tensor | None = None) -> Tensor:
        """Return the vectors at the end of the tower, [..., D]."""
        hidden: Tensor = self.dropout(vectors)
        if extras is not None and self.extras:
            extras = self.dropout(extras)
            if self.beside is not None:
                return torch.add(hidden, self.beside(extras))
            hidden = torch.cat([hidden, extras], dim=-1)
        for place, layer in enumerate(self.layers):
            hidden = layer(self.dropout(hidden.relu()) if place else hidden)
        return hidden


def item_table(num_classes: int, dimension: int, *, sparse: bool) -> nn.Embedding:
    """Return a new table of item vectors, which a scorer can be tied to."""
    table = nn.Embedding(num_classes, dimension, sparse=sparse)
    nn.init.normal_(table.weight, std=initial_deviation(dimension))
    return table


def check_context(context: Tensor, num_classes: int) -> Tensor:
    """Return ``context`` if it is [B, H] of classes, or -1."""
    if check_tensor("context", context).dim() != 2:
        raise ValueError(f"context must have two dimensions, got {list(context.shape)}")
    return check_ids("context", context, num_classes, absent=True)


def features_dimension(user_features: nn.Module | None) -> int:
    """Return how wide the features of a user are: 0 where there are none."""
    if user_features is None:
        return 0
    width = getattr(user_features, "output_dimension", None)
    if not isinstance(user_features, nn.Module) or not isinstance(width, int):
        raise ValueError(
            "user_features must be a module with an output_dimension, got "
            f"{type(user_features).__name__}"
        )
    return check_whole("user_features.output_dimension", width, 1, _MOST_UNITS)


def known_features(user_features: nn.Module, users: Tensor | None, context: Tensor) -> Tensor:
    """Return the features [B, F] of the users of contexts [B, H]; None: nobody is known."""
    if users is None:
        users = context.new_full((len(context),), ABSENT)
    if check_tensor("users", users).shape != (len(context),):
        raise ValueError(f"users must have shape [{len(context)}], got {list(users.shape)}")
    features: Tensor = user_features(users)
    return features


def _age_features(ages: Tensor | None, like: Tensor, oldest: float) -> Tensor:
    """Return a, a² and √a of ages in days, [B, 3]; None: all is asked now, at age 0."""
    if ages is None:
        return like.new_zeros(len(like), _AGE_FEATURES)
    if check_tensor("ages", ages).shape != (len(like),):
        raise ValueError(f"ages must have shape [{len(like)}], got {list(ages.shape)}")
    if not bool((ages >= 0).all()):
        raise ValueError(f"ages must be at least 0 days, got {float(ages.min())}")
    share = ages.to(like.dtype) / oldest
    return torch.stack([share, share.square(), share.sqrt()], dim=1)
