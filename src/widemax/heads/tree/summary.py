"""What a tree's paths cost, beside what they could cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class TreeSummary:
    """How long the paths of a tree are, beside what any code of these counts would need.

    Formula: entropy ≤ average path = Σ_y p(y)·depth(y); for Huffman < entropy + 1 bit.

    Shapes: numbers.

    Cost: it only holds them.

    Reference: Morin & Bengio 2005 report 13.3 → 9.16 bits at V = 10,000.

    Use when: choosing a tree; a training step costs in proportion to the average path. Avoid
    when: accuracy is the question; a longer path may predict better.

    >>> from widemax.heads.tree.tree import Tree
    >>> counts = [1 / rank for rank in range(1, 10_001)]
    >>> print(Tree.balanced(10_000).describe(counts))
    10000 classes: average path 13.05, entropy 9.53 bits, log2 V 13.29, deepest 14
    >>> print(Tree.huffman(counts).describe(counts))
    10000 classes: average path 9.56, entropy 9.53 bits, log2 V 13.29, deepest 17
    """

    num_classes: int
    average_path: float
    entropy_bits: float
    log2_classes: float
    max_depth: int

    def __str__(self) -> str:
        return (
            f"{self.num_classes} classes: average path {self.average_path:.2f}, "
            f"entropy {self.entropy_bits:.2f} bits, log2 V {self.log2_classes:.2f}, "
            f"deepest {self.max_depth}"
        )


def summarise(depths: NDArray[np.int64], counts: NDArray[Any]) -> TreeSummary:
    """Return the summary of paths of these lengths, taken as often as the counts say."""
    weights = counts.astype(np.float64)
    share = weights / weights.max()
    share /= share.sum()
    present = share[share > 0]
    return TreeSummary(
        num_classes=len(depths),
        average_path=float(share @ depths),
        entropy_bits=abs(float((present * np.log2(present)).sum())),
        log2_classes=float(np.log2(len(depths))),
        max_depth=int(depths.max()),
    )
