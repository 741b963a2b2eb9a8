"""A vector with a value for each class, kept in fewer places than there are classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MIX = 0x2545F4914F6CDD1D
_LOW = 2**31 - 1


class Sketch:
    """Adds values of classes to a few places, so that inner products keep their expectation.

    With as many places as classes each has its own, and nothing is approximate. With fewer, class
    y of row r goes to place h(y) with the sign s(r, y), which are pseudo-random: ⟨u, v⟩ of the
    sketches is ⟨u, v⟩ on average, and ‖u‖² is right within sqrt(2 / width) of itself (a count
    sketch: Charikar, Chen & Farach-Colton 2002). As the signs of rows are independent, the sum of
    ‖u‖² over many rows is closer still.

    >>> sketch = Sketch(5, most=8)
    >>> sketch.width, sketch.exact, Sketch(10**8, most=1000).width
    (5, True, 512)
    """

    def __init__(self, num_classes: int, most: int) -> None:
        self.exact = num_classes <= most
        self.width = num_classes if self.exact else 2 ** int(math.log2(max(1, most)))

    def places(self, ids: Tensor) -> Tensor:
        """Return the place of each class, like ``ids``."""
        if self.exact:
            return ids
        return (_mixed(ids) >> 8) & (self.width - 1)

    def signed(self, values: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """Return values [R, C] of rows [R] and classes [C] or [R, C] with their signs."""
        if self.exact:
            return values
        # A bit in the middle of a product, where all bits of both factors have a say.
        product = _mixed(ids) * (2 * _mixed(rows)[:, None] + 1)
        return torch.where((product >> 31) & 1 == 1, -values, values)

    def relative_error(self, effective_rows: float) -> float:
        """Return the standard error of a norm ‖u‖ over so many rows, relative to it."""
        return 0.0 if self.exact else 0.5 * math.sqrt(2 / (self.width * max(1.0, effective_rows)))


def _mixed(values: Tensor) -> Tensor:
    """Return whole numbers below 2^31 in which every bit of the given ones has a say."""
    mixed = (values + 1) * _MIX
    mixed = (mixed ^ (mixed >> 29)) * _MIX
    return (mixed ^ (mixed >> 32)) & _LOW
