"""The user's tower: what was chosen before and what is known of the user, as one vector."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, pad

from widemax.scoring.tower import RowFeatures, TowerScorer, feed_forward
from widemax.validation import check_hidden, check_ids, check_tensor, check_whole


class TwoTowerEncoder(nn.Module):
    """A small network on the mean of a history and the features of its user.

    Formula: hidden = W_L·relu(… relu(W_1·(h, f_u) + b_1) …) + b_L with h the mean of the history's
    vectors and f_u the encoded features of the user, if there are any.

    Shapes: history [B, ``history_dimension``], users int64 [B], -1 for one who is not known, or
    None for nobody known → hidden [B, dimension].

    Cost: O(B·Σ sizes of neighbouring layers).

    Reference: Covington et al. 2016; Yi et al. 2019.

    Use when: items have a tower (``TowerScorer``) and users a history. Avoid when: the order of
    the history matters.

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

    def forward(self, history: Tensor, users: Tensor | None = None) -> Tensor:
        """Return the hidden states, [B, dimension]."""
        check_hidden(history, self.history_dimension)
        if self.features is None:
            hidden: Tensor = self.tower(history)
            return hidden
        if users is None:
            users = torch.full((len(history),), -1, device=history.device)
        joined: Tensor = self.tower(torch.cat([history, self.features(users)], dim=1))
        return joined


def mean_inputs(items: TowerScorer, context: Tensor) -> Tensor:
    """Return the mean of what an item tower sees of the classes of each context.

    Formula: out_b = mean over h of (u_y, f_y) of y = context[b, h], over the places that are not
    -1; 0 for a context of nothing. A cold class takes part by its features.

    Shapes: context int64 [B, H], padded with -1 → [B, ``items.input_dimension``].

    Cost: each different class is encoded once, then O(B·H·I).

    Reference: none.

    Use when: histories hold classes that have features. Avoid when: they have none
    (``BagEncoder``).

    >>> items = TowerScorer(10, 4, id_dimension=4)
    >>> out = mean_inputs(items, torch.tensor([[-1, 3, 5], [-1, -1, -1]]))
    >>> torch.allclose(out[0], items.weight[[3, 5]].mean(0)), out[1].tolist()
    (True, [0.0, 0.0, 0.0, 0.0])
    """
    if check_tensor("context", context).dim() != 2:
        raise ValueError(f"context must have shape [B, H], got {list(context.shape)}")
    context = check_ids("context", context, items.num_classes, absent=True)
    known = context >= 0
    starts = pad(known.sum(-1).cumsum(0), (1, 0))[:-1]
    distinct, place = torch.unique(context[known], return_inverse=True)
    if not len(distinct):
        return items.unknown.new_zeros(len(context), items.input_dimension)
    return embedding_bag(place, items.inputs(distinct), starts, mode="mean")
