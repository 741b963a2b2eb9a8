"""The user's tower: what was chosen before and what is known of the user, as one vector."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from widemax.encoders.contexts import bag_starts, check_context
from widemax.encoders.users import known_features
from widemax.scoring.tower import RowFeatures, TowerScorer, feed_forward
from widemax.validation import check_hidden, check_whole


class TwoTowerEncoder(nn.Module):
    """A small network on the mean of a history and the features of its user.

    Formula: hidden = W_L·relu(… relu(W_1·(h, f_u) + b_1) …) + b_L with h the mean of the history's
    vectors and f_u the encoded features of the user, if there are any.

    Shapes: history [B, ``history_dimension``], users int64 [B], -1 for one who is not known, or
    None for nobody known → hidden [B, dimension].

    Reference: Covington et al. 2016; Yi et al. 2019.

    >>> encoder = TwoTowerEncoder(6, 4, hidden_sizes=(8,))
    >>> encoder(torch.zeros(3, 6)).shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        history_dimension: int,
        dimension: int,
        *,
        features: RowFeatures | None = None,
        hidden_sizes: Sequence[int] = (),
    ) -> None:
        super().__init__()
        if features is not None and not isinstance(features, RowFeatures):
            raise ValueError(f"features must be a FeatureEncoder, got {type(features).__name__}")
        self.history_dimension = check_whole("history_dimension", history_dimension, 1, 2**16)
        self.dimension = check_whole("dimension", dimension, 1, 2**16)
        self.features = features
        more = features.output_dimension if features is not None else 0
        self.tower = feed_forward([history_dimension + more, *hidden_sizes, dimension])

    def class_tables(self) -> dict[str, range]:
        """Return no tensor: the vectors of the items are those of the scorer."""
        return {}

    def forward(self, history: Tensor, users: Tensor | None = None) -> Tensor:
        """Return the hidden states, [B, dimension]."""
        check_hidden(history, self.history_dimension)
        if self.features is not None:
            features = known_features(self.features, users, history)
            history = torch.cat([history, features], dim=1)
        hidden: Tensor = self.tower(history)
        return hidden


def mean_inputs(items: TowerScorer, context: Tensor) -> Tensor:
    """Return the mean of an item tower's inputs for each context, [B, ``items.input_dimension``].

    The input of a class is its vector and its features, of a cold one its features alone; each
    distinct class is encoded once. A context [B, H] of nothing but -1 gives 0.

    >>> items = TowerScorer(10, 4, id_dimension=4)
    >>> out = mean_inputs(items, torch.tensor([[-1, 3, 5], [-1, -1, -1]]))
    >>> torch.allclose(out[0], items.weight[[3, 5]].mean(0)), out[1].tolist()
    (True, [0.0, 0.0, 0.0, 0.0])
    """
    context = check_context(context, items.num_classes)
    known = context >= 0
    distinct, place = torch.unique(context[known], return_inverse=True)
    if not len(distinct):
        return items.unknown.new_zeros(len(context), items.input_dimension)
    return embedding_bag(place, items.inputs(distinct), bag_starts(known.sum(-1)), mode="mean")
