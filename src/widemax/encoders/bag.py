"""The mean of the vectors of a context."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from widemax.devices import by_kernels
from widemax.encoders.contexts import bag_starts
from widemax.encoders.dense import dense_mean
from widemax.validation import ABSENT, check_ids, check_num_classes, check_whole


class BagEncoder(nn.Module):
    """The mean of the input vectors of the classes in a context.

    Formula: hidden_b = mean over h of u(context[b, h]), over the places that are not -1; 0 for a
    context of nothing.

    Shapes: context int64 [B, H], padded with -1 → hidden [B, D]; ``weight`` [V, D], whose gradient
    holds the rows of the context only (sparse).

    Reference: Mikolov et al. 2013 (CBOW); Covington et al. 2016 (the mean of what was watched).

    >>> encoder = BagEncoder(10, 4)
    >>> hidden = encoder(torch.tensor([[3, 5, -1], [-1, -1, -1]]))
    >>> torch.allclose(hidden[0], encoder.weight[[3, 5]].mean(0)), hidden[1].tolist()
    (True, [0.0, 0.0, 0.0, 0.0])
    """

    sparse = True
    """Whether gradients hold only the rows that were used."""

    def __init__(self, num_classes: int, dimension: int) -> None:
        super().__init__()
        self.num_classes = check_num_classes(num_classes)
        self.dimension = check_whole("dimension", dimension, 1, 2**20)
        self.weight = nn.Parameter(torch.empty(num_classes, dimension))
        nn.init.normal_(self.weight, std=dimension**-0.5)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return {"weight": range(self.num_classes)}

    def forward(self, context: Tensor) -> Tensor:
        """Return the hidden states, [B, D]."""
        context = check_ids("context", context, self.num_classes, absent=True)
        if context.shape[0] == 1 and self._may_use_numpy():
            return self._mean_of_one(context)
        known = context >= 0
        starts = bag_starts(known.sum(-1)) if len(context) > 1 else context.new_zeros(len(context))
        return embedding_bag(context[known], self.weight, starts, mode="mean", sparse=True)

    def _may_use_numpy(self) -> bool:
        plain = not torch.is_grad_enabled() and by_kernels(self.weight)
        return plain and self.weight.dtype == torch.float32

    def _mean_of_one(self, context: Tensor) -> Tensor:
        """Return the same for one context: of a few rows torch needs several times as long."""
        known = np.array([each for each in context[0].tolist() if each != ABSENT], np.int64)
        rows = self.weight.numpy().take(known, axis=0)
        return torch.from_numpy(rows.sum(axis=0, keepdims=True) / max(len(known), 1))

    def dense(self, context: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the hidden states of contexts as ``DenseEncoder`` takes them, [B, D]."""
        return dense_mean(self.weight, context)

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return f"num_classes={self.num_classes}, dimension={self.dimension}"
