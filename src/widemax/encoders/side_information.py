"""Vectors of items from their ids and their fields."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from widemax.encoders.attention import masked_softmax
from widemax.scoring.rows import gather_rows
from widemax.validation import as_int64, check_ids, check_tensor, check_whole

_MOST_VALUES = 2**31


class SideInformationEncoder(nn.Module):
    """The vector of an item as a mean of its id's and its fields' vectors, by weights it learns.

    Formula: v(i) = Σ_s softmax_s(a_i) · W_s[code_s(i)], over s = the id and each field whose value
    is known. An item of which only the fields are known (``vectors_of``, and those not ``seen``)
    has the softmax of the mean of a over all items that were seen, the id left out: the
    normalised geometric mean of their weights, and the plain mean of the paper where all a are
    alike. With nothing known it is 0.

    Shapes: ``side`` int64 [V, S], codes of S fields, 0 for unknown, field s below
    ``num_values[s]``; ids of any shape → [*ids.shape, D]; ``weight`` [V, D] of the ids,
    ``side_weight`` [Σ num_values, D], ``attention`` [V, 1 + S]; their gradients hold the rows of
    the batch only (sparse).

    Reference: Wang et al. 2018 (EGES).

    >>> side = torch.tensor([[1, 2], [1, 0], [2, 1]])
    >>> encoder = SideInformationEncoder(side, [3, 3], 4)
    >>> vectors = encoder(torch.tensor([1]))  # equal weights at the start, and one field unknown
    >>> expected = (encoder.weight[1] + encoder.side_weight[1]) / 2
    >>> torch.allclose(vectors[0], expected), encoder.vectors_of(side[:2]).shape
    (True, torch.Size([2, 4]))
    """

    sparse = True
    """Whether gradients hold only the rows that were used."""
    side: Tensor
    seen: Tensor
    _firsts: Tensor

    def __init__(
        self,
        side: Tensor,
        num_values: Sequence[int],
        dimension: int,
        *,
        seen: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.num_values = tuple(
            check_whole(f"num_values[{s}]", number, 1, _MOST_VALUES)
            for s, number in enumerate(num_values)
        )
        side = self._check_codes("side", side)
        if not len(side) or not self.num_values:
            raise ValueError(f"side must have items and fields, got {list(side.shape)}")
        self.num_classes = len(side)
        self.dimension = check_whole("dimension", dimension, 1, 2**20)
        if seen is None:
            seen = torch.ones(len(side), dtype=torch.bool)
        elif check_tensor("seen", seen).shape != (len(side),) or seen.dtype != torch.bool:
            raise ValueError(
                f"seen must be bool [{len(side):,}], got {seen.dtype} {list(seen.shape)}"
            )
        numbers = torch.tensor(self.num_values)
        self.register_buffer("side", side)
        self.register_buffer("seen", seen)
        self.register_buffer("_firsts", numbers.cumsum(0) - numbers, persistent=False)
        self.weight = nn.Parameter(torch.empty(len(side), dimension))
        self.side_weight = nn.Parameter(torch.empty(sum(self.num_values), dimension))
        self.attention = nn.Parameter(torch.zeros(len(side), 1 + len(self.num_values)))
        for table in (self.weight, self.side_weight):
            nn.init.normal_(table, std=dimension**-0.5)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return dict.fromkeys(("weight", "attention"), range(self.num_classes))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors of some items, [*ids.shape, D]."""
        ids = check_ids("ids", ids, self.num_classes)
        rows = ids.reshape(-1)
        seen = self.seen[rows, None]
        logits = gather_rows(self.attention, rows, sparse=True)
        if not bool(seen.all()):
            logits = torch.where(seen, logits, self.mean_attention())
        codes = self.side[rows]
        weights = masked_softmax(logits, torch.cat([seen, codes > 0], dim=1))
        vectors = weights[:, :1] * gather_rows(self.weight, rows, sparse=True)
        return (vectors + self._of_fields(codes, weights[:, 1:])).view(*ids.shape, -1)

    def vectors_of(self, side: Tensor) -> Tensor:
        """Return the vectors [N, D] of items of which only the fields [N, S] are known."""
        codes = self._check_codes("side", side)
        logits = self.mean_attention()[1:].expand(len(codes), -1)
        return self._of_fields(codes, masked_softmax(logits, codes > 0))

    @torch.no_grad()
    def mean_attention(self) -> Tensor:
        """Return the mean of a over the items that were seen, [1 + S]; 0 where none was."""
        if not bool(self.seen.any()):
            return self.attention.new_zeros(self.attention.shape[1])
        return self.attention[self.seen].mean(0)

    def _of_fields(self, codes: Tensor, weights: Tensor) -> Tensor:
        """Return Σ_s weights[:, s] · W_s[codes[:, s]], [N, D]."""
        # Field by field: [N, S, D] never stands whole.
        vectors = self.side_weight.new_zeros(len(codes), self.dimension)
        for s, rows in enumerate((codes + self._firsts).unbind(1)):
            vectors = vectors + weights[:, s, None] * gather_rows(
                self.side_weight, rows, sparse=True
            )
        return vectors

    def _check_codes(self, name: str, codes: Tensor) -> Tensor:
        """Return ``codes`` as int64 [N, S] if each is a value of its field."""
        codes = as_int64(name, codes)
        if codes.dim() != 2 or codes.shape[1] != len(self.num_values):
            raise ValueError(
                f"{name} must have one column for each of {len(self.num_values)} num_values, got "
                f"{list(codes.shape)}"
            )
        for s, number in enumerate(self.num_values):
            check_ids(f"{name}[:, {s}]", codes[:, s], number)
        return codes

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return (
            f"num_classes={self.num_classes}, dimension={self.dimension}, "
            f"num_values={self.num_values}"
        )
