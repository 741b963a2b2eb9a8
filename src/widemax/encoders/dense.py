"""Encoders in plain dense operations, which other runtimes have too: what an export traces.

Training reads rows sparsely, packs what is padded and groups what is alike. None of that can be
traced for batches of any size. So each encoder that can be exported has a second form, ``dense``,
which the tests hold equal to the first.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from widemax.validation import ABSENT


@runtime_checkable
class DenseEncoder(Protocol):
    """An encoder that can be traced.

    Where it reads features of users it has a ``user_features`` that says which.
    """

    def dense(self, context: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the hidden states of contexts [B, H], H ≥ 1, with their padding on the right.

        Features are those of the users, encoded, [B, F].
        """


class MeanEncoder(nn.Module):
    """The mean of rows that were computed before, beside features, through layers.

    >>> encoder = MeanEncoder(torch.eye(3))
    >>> encoder.dense(torch.tensor([[2, 0, -1], [-1, -1, -1]])).tolist()
    [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]
    """

    rows: Tensor

    def __init__(
        self, rows: Tensor, layers: nn.Module | None = None, user_features: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("rows", rows)
        self.layers = layers
        self.user_features = user_features

    def dense(self, context: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the hidden states, [B, D]."""
        hidden = dense_mean(self.rows, context)
        if features is not None:
            hidden = torch.cat([hidden, features], dim=1)
        return hidden if self.layers is None else self.layers(hidden)


def last_items(context: Tensor, reach: int) -> Tensor:
    """Return the last ``reach`` classes of contexts [B, H], -1 anywhere, with the padding behind.

    The result is [B, min(H + 1, reach)]: there is a place even where there is no class.

    >>> last_items(torch.tensor([[-1, 4, -1, 7, 5], [6, -1, -1, -1, -1]]), 2).tolist()
    [[7, 5], [6, -1]]
    """
    context = pad(context, (0, 1), value=ABSENT)
    known = (context >= 0).long()
    behind = known.flip(1).cumsum(1).flip(1)
    kept = (context >= 0) & (behind <= reach)
    places = torch.arange(context.shape[1], device=context.device)
    order = torch.where(kept, places, places + context.shape[1]).argsort(1)
    return torch.where(kept, context, ABSENT).gather(1, order)[:, :reach]


def dense_rows(table: Tensor, context: Tensor, absent: Tensor | None = None) -> Tensor:
    """Return the row of each class of a context, and one given vector, or 0, at -1, [B, H, D].

    >>> dense_rows(torch.tensor([[7.0], [8.0]]), torch.tensor([[1, -1]])).tolist()
    [[[8.0], [0.0]]]
    """
    absent = table.new_zeros(1) if absent is None else absent
    return torch.where((context >= 0)[..., None], table[context.clamp(min=0)], absent)


def dense_mean(table: Tensor, context: Tensor) -> Tensor:
    """Return the mean of the rows that each context names, [B, D]; 0 where it names none."""
    count = (context >= 0).sum(1, keepdim=True).clamp(min=1)
    return dense_rows(table, context).sum(1) / count.to(table.dtype)


def state_after(states: Tensor, context: Tensor) -> Tensor:
    """Return the state [B, D] of [B, H, D] at the last class of each context; 0 where is none.

    >>> states = torch.tensor([[[1.0], [2.0], [3.0]]]).expand(2, -1, -1)
    >>> state_after(states, torch.tensor([[4, 4, -1], [-1, -1, -1]])).tolist()
    [[2.0], [0.0]]
    """
    lengths = (context >= 0).sum(1)
    places = torch.arange(context.shape[1], device=context.device)
    last = (places == lengths[:, None] - 1).to(states.dtype)
    return (last[:, None] @ states)[:, 0]
