"""The hidden layer of the neural probabilistic language model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from widemax.encoders.contexts import context_vectors
from widemax.encoders.dense import dense_rows
from widemax.validation import (
    ABSENT,
    check_fraction,
    check_ids,
    check_num_classes,
    check_tensor,
    check_whole,
)

_MOST_UNITS = 2**20


class NNLMEncoder(nn.Module):
    """A tanh layer on the vectors of the last words, side by side in their order.

    Formula: x = (u(w₁), …, u(w_n)) with a learned vector of its own for a place before the
    beginning; hidden = tanh(d + H·x), or with ``direct`` (tanh(d + H·x), x). A head with biases
    then scores y = b + U·tanh(d + H·x), with ``direct`` + W·x: its class vectors are the rows of
    (U, W). ``dropout`` falls on x and on the tanh while training.

    Shapes: context int64 [B, n], n = ``context_size``, -1 before the beginning → hidden
    [B, ``output_dimension``], which is ``hidden_size``, with ``direct`` + n·D. With ``sparse`` the
    gradient of ``weight`` [V, D] holds the rows of the context only.

    Reference: Bengio, Ducharme, Vincent & Janvin 2003.

    >>> encoder = NNLMEncoder(100, context_size=3, dimension=8, hidden_size=16, direct=True)
    >>> encoder(torch.tensor([[-1, 5, 7]])).shape, encoder.output_dimension
    (torch.Size([1, 40]), 40)
    """

    def __init__(
        self,
        num_classes: int,
        context_size: int,
        dimension: int,
        hidden_size: int,
        *,
        direct: bool = False,
        dropout: float = 0.0,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.num_classes = check_num_classes(num_classes)
        self.context_size = check_whole("context_size", context_size, 1, _MOST_UNITS)
        self.dimension = check_whole("dimension", dimension, 1, _MOST_UNITS)
        self.hidden_size = check_whole("hidden_size", hidden_size, 1, _MOST_UNITS)
        self.direct = direct
        self.output_dimension = hidden_size + direct * context_size * dimension
        self.sparse = sparse
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        self.weight = nn.Parameter(torch.empty(num_classes, dimension))
        self.start = nn.Parameter(torch.empty(dimension))
        self.hidden = nn.Linear(context_size * dimension, hidden_size)
        nn.init.normal_(self.weight, std=dimension**-0.5)
        # Where lines are one stream it is hardly ever trained, and should say nothing.
        nn.init.zeros_(self.start)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return {"weight": range(self.num_classes)}

    def forward(self, context: Tensor) -> Tensor:
        """Return the hidden states, [B, ``output_dimension``]."""
        if check_tensor("context", context).dim() != 2 or context.shape[1] != self.context_size:
            raise ValueError(
                f"context must have shape [B, {self.context_size}] (context_size), "
                f"got {list(context.shape)}"
            )
        context = check_ids("context", context, self.num_classes, absent=True)
        vectors = context_vectors(self.weight, context, self.start, sparse=self.sparse)
        return self._of_words(self.dropout(vectors.flatten(1)))

    def dense(self, context: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the hidden states of contexts as ``DenseEncoder`` takes them."""
        # Here what is not there comes first.
        lengths = (context >= 0).sum(1, keepdim=True)
        places = torch.arange(self.context_size, device=context.device) + lengths
        before = pad(context, (self.context_size, 0), value=ABSENT)
        return self._of_words(
            dense_rows(self.weight, before.gather(1, places), self.start).flatten(1)
        )

    def _of_words(self, words: Tensor) -> Tensor:
        hidden: Tensor = self.dropout(torch.tanh(self.hidden(words)))
        return torch.cat([hidden, words], dim=1) if self.direct else hidden

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return (
            f"num_classes={self.num_classes}, context_size={self.context_size}, "
            f"dimension={self.dimension}, direct={self.direct}, sparse={self.sparse}"
        )
