"""A scorer and an encoder whose tables are divided over processes."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from widemax.candidates import ClassBlock
from widemax.declarations import Setup
from widemax.distributed.slices import Slices
from widemax.distributed.wire import Wire
from widemax.encoders.bag import BagEncoder
from widemax.encoders.contexts import bag_starts
from widemax.scoring.table import (
    Similarity,
    TableScorer,
    check_table_size,
    initial_deviation,
    scaled_vectors,
)
from widemax.validation import check_ids


class SlicedTableScorer(TableScorer):
    """A ``TableScorer`` of which each process holds consecutive rows.

    Formula: F(x, y) = x·v_y / τ + b_y, as in ``TableScorer``; v_y comes from the process that
    holds row y.

    Shapes: ``weight`` [V_r, D] and ``bias`` [V_r] are the rows of this process, of V in all.

    Cost: V·D / n parameters a process; rows of given ids travel by two all-to-alls forward and one
    backward, each distinct one once. Gradients are sparse and hold the rows that anybody asked for.

    Reference: Naumov et al. 2019 (DLRM), whose tables are divided so.

    Use when: no process could hold the table, or its optimiser's state. Avoid when: one can: then
    dividing the batch alone moves less (``JoinedBatches``).

    All processes call it together. It starts as a ``TableScorer`` would from the same state of
    torch's generator.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> scorer = SlicedTableScorer(1000, 8, Wire())
    >>> scorer(torch.randn(2, 8), torch.tensor([5, 7, 5])).shape
    torch.Size([2, 3])
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        wire: Wire,
        *,
        bias: bool = False,
        similarity: Similarity = "dot",
        temperature: float = 1.0,
        dtype: torch.dtype | None = None,
    ) -> None:
        num_classes, dimension = check_table_size(num_classes, dimension)
        slices = Slices(num_classes, wire)
        rows = slices.started(dimension, initial_deviation(dimension), dtype)
        self._set_up(nn.Parameter(rows), bias, similarity, temperature, True)
        self.num_classes, self.slices = num_classes, slices

    @classmethod
    def over(cls, wire: Wire, setup: Setup) -> Self:
        """Return the scorer of a run whose tables are divided."""
        options = setup.options
        scorer = cls(
            setup.num_classes,
            setup.dimension,
            wire,
            bias=options.bias,
            similarity=options.similarity,
            temperature=options.temperature,
        )
        if setup.items is not None:
            raise ValueError(
                "vocabulary_parallel cannot divide one table that is read and predicted: take "
                "--model next-item, which has two"
            )
        scorer.start_with_counts(setup)
        return scorer

    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return the vectors of the given classes, or all of them, gathered from all processes."""
        if ids is not None:
            return super().class_vectors(ids)
        whole = torch.cat(self.slices.wire.gathered(self.weight.detach(), self.slices.sizes()))
        return scaled_vectors(whole, self.similarity)

    def class_biases(self, ids: Tensor | None = None) -> Tensor | None:
        """Return the biases of the given classes, or all of them, gathered from all processes."""
        if self.bias is None or ids is not None:
            return super().class_biases(ids)
        return torch.cat(self.slices.wire.gathered(self.bias.detach(), self.slices.sizes()))

    @torch.no_grad()
    def set_class_biases(self, biases: Tensor) -> None:
        """Set the biases of all classes, [V]: each process its own."""
        if self.bias is not None:
            self.bias.copy_(biases[self.slices.own.start : self.slices.own.stop])

    def own_block(self, hidden: Tensor) -> ClassBlock:
        """Return the classes of this process as a block, whose first id is ``slices.own.start``."""
        vectors = scaled_vectors(self.weight, self.similarity)
        return ClassBlock(self.queries(hidden), vectors, self.bias)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return dict.fromkeys(("weight", "bias"), self.slices.own)

    def _rows(self, table: nn.Parameter, ids: Tensor) -> Tensor:
        return self.slices.rows(table, ids)


class SlicedBagEncoder(BagEncoder):
    """A ``BagEncoder`` of which each process holds consecutive rows of input vectors.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> SlicedBagEncoder(10, 4, Wire())(torch.tensor([[3, 5, -1]])).shape
    torch.Size([1, 4])
    >>> dist.destroy_process_group()
    """

    def __init__(self, num_classes: int, dimension: int, wire: Wire) -> None:
        nn.Module.__init__(self)
        self.num_classes, self.dimension = check_table_size(num_classes, dimension)
        self.slices = Slices(num_classes, wire)
        self.weight = nn.Parameter(self.slices.started(dimension, dimension**-0.5))

    def forward(self, context: Tensor) -> Tensor:
        """Return the hidden states, [B, D]."""
        context = check_ids("context", context, self.num_classes, absent=True)
        known = context >= 0
        rows = self.slices.rows(self.weight, context[known])
        starts = bag_starts(known.sum(-1))
        return embedding_bag(torch.arange(len(rows)), rows, starts, mode="mean")

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return {"weight": self.slices.own}
