"""Attention over rows that are padded."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from widemax.validation import ABSENT, check_fraction, check_whole

_MOST_HEADS = 2**10


def packed(context: Tensor) -> Tensor:
    """Return the classes of each context in their order, with the padding behind them.

    Formula: row b holds context[b, h] for all h with context[b, h] ≥ 0, then -1.

    Shapes: int64 [B, H], -1 anywhere → [B, L], L the most classes that a row has.

    Cost: O(B·H); all that follows costs as much as the longest row, however wide the padding was.

    Reference: none.

    Use when: contexts are wide and mostly padding. Avoid when: vectors are only averaged
    (``BagEncoder``).

    >>> packed(torch.tensor([[-1, -1, 4], [-1, 7, 5], [-1, -1, -1]])).tolist()
    [[4, -1], [7, 5], [-1, -1]]
    """
    known = context >= 0
    lengths = known.sum(-1)
    longest = int(lengths.max()) if len(lengths) else 0
    rows = context.new_full((len(context), longest), ABSENT)
    rows[torch.arange(longest, device=context.device) < lengths[:, None]] = context[known]
    return rows


def masked_softmax(scores: Tensor, known: Tensor) -> Tensor:
    """Return the softmax over the known places of the last dimension; 0 at all others.

    Formula: exp(s_i) / Σ over known j of exp(s_j); a row that knows nothing is 0 throughout.

    Shapes: scores [..., L], known bool that broadcasts to it → [..., L].

    Cost: O(elements).

    Reference: none.

    Use when: rows are padded, and some are empty. Avoid when: none is (``torch.softmax``).

    >>> known = torch.tensor([[True, False], [False, False]])
    >>> masked_softmax(torch.tensor([[3.0, 9.0], [3.0, 9.0]]), known).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    # The least number instead of -inf: a row of nothing has a softmax, and no gradient is NaN.
    least = torch.finfo(scores.dtype).min
    return scores.masked_fill(~known, least).softmax(-1).masked_fill(~known, 0.0)


def attention_pool(vectors: Tensor, query: Tensor, known: Tensor) -> Tensor:
    """Return the mean of vectors, weighted by how well each fits a query.

    Formula: Σ_l a_l·x_l with a = softmax over known l of x_l·q; 0 where nothing is known.

    Shapes: vectors [B, L, D], query [B, D], known bool [B, L] → [B, D].

    Cost: O(B·L·D).

    Reference: Lv et al. 2019 (user attention).

    Use when: which of the vectors count depends on who asks. Avoid when: all count alike
    (``BagEncoder``).

    >>> vectors = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> attention_pool(vectors, torch.tensor([[999.0, 0]]), torch.tensor([[True, True]])).tolist()
    [[1.0, 0.0]]
    """
    weights = masked_softmax((vectors @ query[..., None])[..., 0], known)
    return (weights[:, None] @ vectors)[:, 0]


class SelfAttention(nn.Module):
    """Each vector of a row becomes a mix of all of them, in several ways side by side.

    Formula: for head i with d = D / heads: A_i = softmax over known keys of Q_i·K_iᵀ / √d,
    Q_i, K_i, V_i = X·W_i; output = X + dropout((A_1·V_1, …)·W_O). No positions: order has to be
    in the vectors already.

    Shapes: vectors [B, L, D], known bool [B, L] → [B, L, D]; what it returns at unknown places is
    to be ignored.

    Cost: O(B·L·D·(D + L)).

    Reference: Vaswani et al. 2017; Lv et al. 2019, who attend within a session.

    Use when: some items of a short list do not belong to the others. Avoid when: rows are long.

    >>> attention = SelfAttention(8, num_heads=2)
    >>> attention(torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(self, dimension: int, num_heads: int = 1, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = check_whole("num_heads", num_heads, 1, _MOST_HEADS)
        if dimension % num_heads:
            raise ValueError(f"num_heads must divide dimension {dimension:,}, got {num_heads:,}")
        self.inputs = nn.Linear(dimension, 3 * dimension, bias=False)
        self.output = nn.Linear(dimension, dimension, bias=False)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        for layer in (self.inputs, self.output):
            nn.init.normal_(layer.weight, std=dimension**-0.5)

    def forward(self, vectors: Tensor, known: Tensor) -> Tensor:
        """Return the mixed vectors, [B, L, D]."""
        shape = (*vectors.shape[:2], 3, self.num_heads, vectors.shape[2] // self.num_heads)
        query, key, value = self.inputs(vectors).view(shape).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * shape[-1] ** -0.5
        mixed = masked_softmax(scores, known[:, None, None]) @ value
        joined = mixed.transpose(1, 2).reshape(vectors.shape)
        attended: Tensor = vectors + self.dropout(self.output(joined))
        return attended
