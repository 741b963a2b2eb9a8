"""Gradients by scores, hidden states and class vectors: exact, and summed over groups of draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from widemax.auditing.measuring.moments import NUM_GROUPS, Moments
from widemax.auditing.measuring.sketch import Sketch

Space = Literal["scores", "hidden", "class vectors"]

# What the sums of one space take at most, so that an audit has bounds whatever V is.
_MAX_BYTES = 2**26
_MAX_PRODUCTS = 2**22


class Part(NamedTuple):
    """Examples that are judged together; they lie side by side."""

    name: str
    start: int
    stop: int

    @property
    def rows(self) -> slice:
        """Where they are among all examples."""
        return slice(self.start, self.stop)


class Touched(NamedTuple):
    """What a loss, or a tile of the exact softmax, says of the scores of some classes."""

    rows: Tensor
    """The examples, int64 [R]."""
    ids: Tensor
    """The classes, [C] for all of them or [R, C]."""
    values: Tensor
    """The derivatives by their scores, [R, C]."""


class GradientSums(ABC):
    """The exact gradient in one space, and the sums of sampled ones over each group of draws."""

    space: Space
    exact: Tensor
    sums: Tensor

    @abstractmethod
    def add(self, touched: Touched, group: int | None) -> None:
        """Add derivatives by scores to the sums of a group, or to the exact gradient (None)."""

    @abstractmethod
    def moments(self, part: Part | None, rounds: int) -> Moments:
        """Return the moments of some examples, or of all (None), once all draws are made."""

    @property
    def sketch(self) -> Sketch | None:
        """How classes share places, if there are sums by class."""
        return None

    def is_constant(self) -> bool:
        """Return whether all groups have the same sums: nothing was random."""
        first, others = self.sums[..., :1, :], self.sums[..., 1:, :]
        return bool((first == others).all())


class ScoreSums(GradientSums):
    """d loss / d F(x, y) for every class y: softmax(F) − label where the loss is exact.

    It shows every fault of an objective, whatever the class vectors are.
    """

    space = "scores"

    def __init__(self, num_classes: int, num_examples: int, like: Tensor) -> None:
        most = _MAX_BYTES // (like.element_size() * NUM_GROUPS * num_examples)
        self._sketch = Sketch(num_classes, most)
        self.exact = like.new_zeros(num_examples, self._sketch.width)
        self.sums = like.new_zeros(num_examples, NUM_GROUPS, self._sketch.width)

    @property
    def sketch(self) -> Sketch:
        """How classes share places."""
        return self._sketch

    def add(self, touched: Touched, group: int | None) -> None:
        """Add derivatives by scores."""
        rows, ids, values = touched
        values = self._sketch.signed(values, rows, ids).to(self.exact.dtype)
        places = self._sketch.places(ids).expand(values.shape)
        total, row = (self.exact, rows) if group is None else (self.sums, rows * NUM_GROUPS + group)
        flat = row[:, None] * self._sketch.width + places
        total.view(-1).scatter_add_(0, flat.flatten(), values.flatten())

    def moments(self, part: Part | None, rounds: int) -> Moments:
        """Return the moments of a part, or of all examples."""
        rows = slice(None) if part is None else part.rows
        return Moments.of(self.sums[rows] / rounds, self.exact[rows])


class HiddenSums(GradientSums):
    """d loss / d hidden, which every head has."""

    space = "hidden"

    def __init__(self, num_examples: int, dimension: int, like: Tensor) -> None:
        self.exact = like.new_zeros(num_examples, dimension)
        self.sums = like.new_zeros(num_examples, NUM_GROUPS, dimension)

    def add(self, touched: Touched, group: int | None) -> None:
        """Do nothing: what reaches a hidden state is told by ``add_hidden``."""

    def add_hidden(self, rows: Tensor, gradient: Tensor, group: int | None) -> None:
        """Add gradients [R, D]."""
        total = self.exact if group is None else self.sums[:, group]
        total.index_add_(0, rows, gradient.to(total.dtype))

    def moments(self, part: Part | None, rounds: int) -> Moments:
        """Return the moments of a part, or of all examples."""
        rows = slice(None) if part is None else part.rows
        return Moments.of(self.sums[rows] / rounds, self.exact[rows])


class ClassSums(GradientSums):
    """Σ_x d loss / d vector(y) for every class y, summed over the examples of each part.

    The gradient of a step: here errors of single examples may cancel.
    """

    space = "class vectors"

    def __init__(self, queries: Tensor, num_classes: int, parts: list[Part], like: Tensor) -> None:
        self.queries, self.parts = queries.to(like.dtype), parts
        dimension, number = queries.shape[1], len(parts)
        most = _MAX_BYTES // (like.element_size() * NUM_GROUPS * number * dimension)
        self._sketch = Sketch(num_classes, most)
        # Columns of the vectors are the rows of a sketch: each has signs of its own.
        self.exact = like.new_zeros(number, self._sketch.width, dimension)
        self.sums = like.new_zeros(number, self._sketch.width, NUM_GROUPS, dimension)

    @property
    def sketch(self) -> Sketch:
        """How classes share places."""
        return self._sketch

    def add(self, touched: Touched, group: int | None) -> None:
        """Add derivatives by scores, times the queries of their examples."""
        total = self.exact if group is None else self.sums[:, :, group]
        for number, part in enumerate(self.parts):
            inside = ((touched.rows >= part.start) & (touched.rows < part.stop)).nonzero()[:, 0]
            if len(inside):
                self._add_part(touched, inside, total[number])

    def _add_part(self, touched: Touched, inside: Tensor, total: Tensor) -> None:
        rows, ids, values = touched
        values, queries = values[inside].to(total.dtype), self.queries[rows[inside]]
        if ids.dim() == 1:
            self._add_rows(ids, values.T @ queries, total)
            return
        at_once = max(1, _MAX_PRODUCTS // (values.shape[1] * queries.shape[1]))
        for chunk in torch.split(torch.arange(len(inside), device=ids.device), at_once):
            products = values[chunk, :, None] * queries[chunk, None]
            self._add_rows(ids[inside][chunk].flatten(), products.flatten(0, 1), total)

    def _add_rows(self, ids: Tensor, gradients: Tensor, total: Tensor) -> None:
        columns = torch.arange(gradients.shape[1], device=ids.device)
        signed = self._sketch.signed(gradients.T, columns, ids).T
        places = self._sketch.places(ids)[:, None].expand(signed.shape)
        total.scatter_add_(0, places, signed)

    def moments(self, part: Part | None, rounds: int) -> Moments:
        """Return the moments of a part, or of the sum over all."""
        if part is None:
            sums, exact = self.sums.sum(0), self.exact.sum(0)
        else:
            number = self.parts.index(part)
            sums, exact = self.sums[number], self.exact[number]
        # A column at a time: its signs are its own, so that their errors are independent.
        return Moments.of((sums / rounds).permute(2, 1, 0), exact.T.contiguous())
