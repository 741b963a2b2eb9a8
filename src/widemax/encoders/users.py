"""What encoders of users share: the table of items, features of users, and the last layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from widemax.scoring.pages import ask_for_huge_pages
from widemax.scoring.table import initial_deviation
from widemax.validation import ABSENT, check_fraction, check_tensor, check_whole

_MOST_UNITS = 2**20


class Tower(nn.Module):
    """Layers with ReLU on a vector and what is known beside it; without layers, their sum.

    From x [..., D] and e [..., E] or None, where a size of 1 in e stands for any: without
    ``layers``, x + A·e; else a linear map of ReLU(… ReLU(W_1·(x, e) + b_1) …), [..., D].

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
            hidden = torch.cat([hidden, extras.expand(*hidden.shape[:-1], -1)], dim=-1)
        for place, layer in enumerate(self.layers):
            hidden = layer(self.dropout(hidden.relu()) if place else hidden)
        return hidden


def item_table(num_classes: int, dimension: int, *, sparse: bool) -> nn.Embedding:
    """Return a new table of item vectors, which a scorer can be tied to."""
    weight = torch.empty(num_classes, dimension)
    ask_for_huge_pages(weight)
    # The first numbers are those that nn.Embedding would draw: what follows in a seed stays as is.
    nn.init.normal_(weight)
    nn.init.normal_(weight, std=initial_deviation(dimension))
    return nn.Embedding(num_classes, dimension, sparse=sparse, _weight=weight, dtype=weight.dtype)


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


def known_features(user_features: nn.Module, users: Tensor | None, histories: Tensor) -> Tensor:
    """Return the features [B, F] of the users of B histories; None: nobody is known."""
    rows = len(histories)
    if users is None:
        users = torch.full((rows,), ABSENT, device=histories.device)
    if check_tensor("users", users).shape != (rows,):
        raise ValueError(f"users must have shape [{rows}], got {list(users.shape)}")
    features: Tensor = user_features(users)
    return features
