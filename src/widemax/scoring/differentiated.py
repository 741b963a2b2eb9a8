"""Class vectors whose dimension follows the class's frequency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from widemax.candidates import ClassBlock
from widemax.declarations import Option, Setup, declare
from widemax.scoring.base import BIAS, Scorer
from widemax.scoring.rows import look_up
from widemax.validation import check_hidden, check_num_classes


class _Block(NamedTuple):
    """Classes start..stop and the columns of the hidden state that score them."""

    start: int
    stop: int
    columns: slice
    weight: Tensor


@declare.scorer(
    "differentiated",
    options=[
        BIAS,
        Option(
            "frequency_blocks",
            3,
            "Number of blocks, by frequency, that classes are put into.",
            least=1,
            most=16,
        ),
    ],
)
class DifferentiatedScorer(Scorer):
    """Classes in frequency blocks, each scored by a slice of the hidden state of its own size.

    Formula: F(x, y) = x_k · v_y + b_y for class y of block k, where x = [x_A; x_B; …] and x_k has
    dimension d_k. One block is ``TableScorer``.

    Shapes: ``blocks`` lists (classes, dimension) in the order of the class ids; the classes sum
    to V, the dimensions to D. See ``Scorer``.

    Cost: Σ_k V_k·d_k parameters and O(B·Σ_k V_k·d_k) time for all classes, in every head: an exact
    step, ``log_prob`` and ``topk`` go block by block. Given classes cost O(d_k) each. With
    ``sparse=True`` gradients hold only the rows of the given ids.

    Reference: Chen, Grangier & Auli 2015.

    Use when: frequent classes deserve more dimensions than rare ones, and parameters or the time
    of an exact softmax count. Avoid when: rare classes matter most; or time alone counts
    (``AdaptiveHead``).

    >>> _ = torch.manual_seed(0)
    >>> scorer = DifferentiatedScorer(1000, [(100, 48), (900, 16)])
    >>> scorer(torch.randn(8, 64)).shape, sum(p.numel() for p in scorer.parameters())
    (torch.Size([8, 1000]), 19200)
    """

    def __init__(
        self,
        num_classes: int,
        blocks: Sequence[tuple[int, int]],
        *,
        bias: bool = False,
        sparse: bool = False,
    ) -> None:
        check_num_classes(num_classes)
        sizes = [size for size, _ in blocks]
        dimensions = [dimension for _, dimension in blocks]
        for size, dimension in blocks:
            if size < 1 or dimension < 1:
                raise ValueError(
                    f"blocks must hold (classes, dimension) of at least 1, got {(size, dimension)}"
                )
        if sum(sizes) != num_classes:
            raise ValueError(
                f"blocks must hold num_classes = {num_classes:,} classes in all, got {sum(sizes):,}"
            )
        super().__init__()
        self.num_classes = num_classes
        self.dimension = sum(dimensions)
        self.sparse = sparse
        self.weights = nn.ParameterList(torch.empty(block) for block in blocks)
        for weight in self.weights:
            # Scores start at one size in every block, whatever its dimension is.
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        self.bias = nn.Parameter(torch.zeros(num_classes)) if bias else None

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the scorer of a run: each block has thrice the classes of the one before.

        Dimensions halve from block to block, and sum to that of the hidden state.
        """
        count = setup.options.frequency_blocks
        sizes = _shares(setup.num_classes, [3.0**block for block in range(count)])
        dimensions = _shares(setup.dimension, [2.0**-block for block in range(count)])
        blocks = list(zip(sizes, dimensions, strict=True))
        return cls(setup.num_classes, blocks, bias=setup.options.bias, sparse=setup.sparse)

    def _blocks(self) -> Iterator[_Block]:
        start = column = 0
        for weight in self.weights:
            size, dimension = weight.shape
            yield _Block(start, start + size, slice(column, column + dimension), weight)
            start, column = start + size, column + dimension

    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return the vectors with zeros outside their slice, [*ids.shape, D] or [V, D]."""
        if ids is None:
            padded: Tensor = torch.block_diag(*self.weights)  # type: ignore[no-untyped-call]
            return padded
        vectors: Tensor = self.weights[0].new_zeros(*ids.shape, self.dimension)
        for block in self._blocks():
            inside = (ids >= block.start) & (ids < block.stop)
            vectors[..., block.columns][inside] = self._rows(block, ids[inside])
        return vectors

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        blocks = {
            f"weights.{place}": range(block.start, block.stop)
            for place, block in enumerate(self._blocks())
        }
        return {**blocks, "bias": range(self.num_classes)}

    def class_biases(self, ids: Tensor | None = None) -> Tensor | None:
        """Return the biases of the given classes, or of all."""
        return self.bias if self.bias is None or ids is None else self.bias[ids]

    def blocks(self, hidden: Tensor) -> list[ClassBlock]:
        """Return the blocks, each with its slice of the hidden state: nothing is padded."""
        check_hidden(hidden, self.dimension)
        return [
            ClassBlock(
                hidden[:, block.columns],
                block.weight,
                None if self.bias is None else self.bias[block.start : block.stop],
            )
            for block in self._blocks()
        ]

    def forward(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return F(x, y) for the given classes, or for all, slice by slice."""
        check_hidden(hidden, self.dimension)
        if ids is None:
            scores = torch.cat([hidden[:, b.columns] @ b.weight.T for b in self._blocks()], dim=1)
        else:
            scores = self._scores_of(hidden, ids)
        biases = self.class_biases(ids)
        return scores if biases is None else scores + biases

    def _scores_of(self, hidden: Tensor, ids: Tensor) -> Tensor:
        flat, parts, places = ids.flatten(), [], []
        for block in self._blocks():
            place = ((flat >= block.start) & (flat < block.stop)).nonzero()[:, 0]
            vectors = self._rows(block, flat[place])
            if ids.dim() == 1:
                parts.append(hidden[:, block.columns] @ vectors.T)
            else:
                rows = place.div(max(1, ids.shape[1]), rounding_mode="floor")
                parts.append((hidden[rows, block.columns] * vectors).sum(-1))
            places.append(place)
        # The parts are ordered by block: back into the order of the ids.
        scores = torch.cat(parts, dim=-1)[..., torch.cat(places).argsort()]
        return scores if ids.dim() == 1 else scores.view(ids.shape)

    def _rows(self, block: _Block, ids: Tensor) -> Tensor:
        return look_up(block.weight, ids - block.start, sparse=self.sparse)

    def extra_repr(self) -> str:
        """Return what ``print(scorer)`` shows."""
        blocks = [tuple(weight.shape) for weight in self.weights]
        return f"num_classes={self.num_classes}, blocks={blocks}, bias={self.bias is not None}"


def _shares(total: int, weights: Sequence[float]) -> list[int]:
    """Return whole numbers of at least 1 that sum to ``total``, roughly by weight."""
    if total < len(weights):
        raise ValueError(
            f"frequency_blocks must be at most {total:,}, as there are classes and dimensions, "
            f"got {len(weights)}"
        )
    shares = [max(1, int(total * weight / sum(weights))) for weight in weights]
    shares[shares.index(max(shares))] += total - sum(shares)
    return shares
