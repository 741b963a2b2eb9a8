"""Binary trees over the classes, as flat tables that serve a whole batch at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.devices import by_kernels
from widemax.heads.tree.builders import (
    balanced_slots,
    clustered_slots,
    huffman_slots,
    read_vectors,
)
from widemax.heads.tree.given import (
    Category,
    binary_slots,
    check_parents,
    parents_of_categories,
    parents_of_nested,
)
from widemax.validation import MAX_TABLE_CLASSES, Counts, check_counts, check_num_classes


@dataclass(frozen=True, kw_only=True)
class TreeSummary:
    """How long the paths of a tree are, compared with what any code of these counts needs.

    A training step costs in proportion to the average path.

    >>> counts = [1 / rank for rank in range(1, 10_001)]
    >>> print(Tree.huffman(counts).describe(counts))
    10000 classes: average path 9.56, entropy 9.53 bits, log2 V 13.29, deepest 17
    """

    num_classes: int
    """Leaves of the tree."""
    average_path: float
    """Σ_y p(y)·depth(y), at least the entropy; for Huffman less than one bit above it."""
    entropy_bits: float
    """−Σ_y p(y)·log2 p(y)."""
    log2_classes: float
    """The average path of a balanced tree, about."""
    max_depth: int
    """The longest path."""

    def __str__(self) -> str:
        return (
            f"{self.num_classes} classes: average path {self.average_path:.2f}, "
            f"entropy {self.entropy_bits:.2f} bits, log2 V {self.log2_classes:.2f}, "
            f"deepest {self.max_depth}"
        )


class Paths(NamedTuple):
    """The inner nodes from each class up to the root, padded to the longest path."""

    nodes: Tensor
    """[..., L]; 0 where the path has ended."""
    signs: Tensor
    """[..., L]: +1 where the path goes right, −1 where left, 0 where it has ended."""


class Tree:
    """A binary tree with the classes as leaves, walked for many classes at once; it never changes.

    V classes have V−1 inner nodes, numbered breadth first from the root, 0. ``children`` [V−1, 2]
    holds left and right: an inner node n ≥ 0, or class y as −1−y. ``depths`` [V] are the path
    lengths. It takes O(V) memory however deep it is: paths are not stored but walked from child to
    parent.

    ``Tree.huffman`` trains fastest, ``Tree.clustered`` and ``Tree.given`` predict better. The
    constructor takes only the numbering above; ``Tree.given`` takes any tree.

    >>> tree = Tree.huffman([5, 1, 2])
    >>> tree.children.tolist(), tree.depths.tolist()
    ([[1, -1], [-2, -3]], [1, 2, 2])
    """

    def __init__(self, children: Tensor) -> None:
        table = _check_children(children).numpy()
        self.num_classes = len(table) + 1
        self.children = torch.from_numpy(table)
        slots = table.ravel()
        steps = np.arange(len(slots))
        leaves = np.flatnonzero(slots < 0)
        classes = ~slots[leaves]
        self._class_steps = torch.full((self.num_classes,), -1)
        self._class_steps[classes] = torch.from_numpy(leaves)
        self._node_steps = torch.from_numpy(np.concatenate([[-1], steps[slots >= 0]])[: len(table)])
        self.level_sizes = _level_sizes(table)
        node_depths = np.repeat(np.arange(len(self.level_sizes)), self.level_sizes)
        self.depths = torch.zeros(self.num_classes, dtype=torch.int64)
        self.depths[classes] = torch.from_numpy(node_depths[leaves >> 1] + 1)
        self._leaf_places = torch.zeros(self.num_classes, dtype=torch.int64)
        self._leaf_places[classes] = torch.arange(len(classes))

    @classmethod
    def balanced(cls, num_classes: int) -> Tree:
        """Return the tree in which every path has ⌊log2 V⌋ or ⌈log2 V⌉ nodes.

        >>> Tree.balanced(1000).describe().max_depth
        10
        """
        num_classes = check_num_classes(num_classes, limit=MAX_TABLE_CLASSES)
        return cls._from_slots(balanced_slots(num_classes))

    @classmethod
    def huffman(cls, counts: Counts, vectors: Tensor | NDArray[Any] | None = None) -> Tree:
        """Return the tree with the shortest average path, at most 1 above the entropy in bits.

        Counts alone put classes side by side that have nothing in common. With ``vectors`` [V, D],
        as for ``clustered``, each path is as long as before, but similar classes share most of
        theirs: as fast, and easier to learn.

        >>> Tree.huffman([8, 4, 2, 1, 1]).depths.tolist()
        [1, 2, 3, 4, 4]
        >>> Tree.huffman([1, 1, 1, 1], np.array([[0.0], [5.0], [0.1], [5.1]])).children.tolist()
        [[1, 2], [-4, -2], [-1, -3]]
        """
        masses = check_counts(counts).astype(np.float64)
        tree = cls._from_slots(huffman_slots(masses))
        if vectors is None:
            return tree
        read = read_vectors(vectors, len(masses))
        return cls._from_slots(clustered_slots(read, masses, tree.depths.numpy()))

    @classmethod
    def clustered(cls, vectors: Tensor | NDArray[Any], counts: Counts | None = None) -> Tree:
        """Return a tree in which similar classes share most of their paths.

        The vectors [V, D], weighted by ``counts`` (None: equally), are cut in two by 2-means, and
        so is each part. Class vectors of a trained head will do; better still is the mean hidden
        state of the examples of each class, as in Mnih & Hinton 2008.

        >>> Tree.clustered(np.array([[0.0], [5.0], [0.1], [5.1]])).children.tolist()
        [[1, 2], [-4, -2], [-1, -3]]
        """
        read = read_vectors(vectors)
        masses = np.ones(len(read)) if counts is None else check_counts(counts, len(read))
        return cls._from_slots(clustered_slots(read, masses.astype(np.float64)))

    @classmethod
    def given(
        cls,
        nested: Sequence[Any] | None = None,
        *,
        parents: Tensor | NDArray[Any] | Sequence[int] | None = None,
        categories: Iterable[Category] | None = None,
    ) -> Tree:
        """Return your own tree, in one of three forms; nodes with many children are halved.

        ``nested``: lists of class ids and lists. ``parents``: the parent of each node, classes
        first, -1 for the root. ``categories``: one for each class, "a/b/c" or ("a", "b", "c").

        >>> Tree.given([[0, 1], 2]).depths.tolist()
        [2, 2, 1]
        >>> Tree.given(parents=[3, 3, 4, 4, -1]).depths.tolist()
        [2, 2, 1]
        >>> Tree.given(categories=["fruit/citrus", "fruit", "tool"]).depths.tolist()
        [2, 2, 1]
        """
        if sum(form is not None for form in (nested, parents, categories)) != 1:
            raise ValueError("give exactly one of nested, parents and categories")
        if nested is not None:
            parents = parents_of_nested(nested)
        if categories is not None:
            parents = parents_of_categories(categories)
        assert parents is not None
        return cls._from_slots(binary_slots(check_parents(parents)))

    @classmethod
    def _from_slots(cls, slots: NDArray[np.int64]) -> Tree:
        inner = slots < 0
        children = np.where(inner, np.cumsum(inner), ~slots)
        return cls(torch.from_numpy(children.reshape(-1, 2)))

    def to(self, device: torch.device | str) -> Tree:
        """Return this tree with its tables on a device."""
        if self.children.device == torch.device(device):
            return self
        moved = Tree.__new__(Tree)
        for name, value in vars(self).items():
            setattr(moved, name, value.to(device) if isinstance(value, Tensor) else value)
        return moved

    def paths(self, ids: Tensor) -> Paths:
        """Return the nodes and turns of each class, [..., L], from the leaf to the root."""
        length = len(self.level_sizes)
        if by_kernels(ids):
            length = int(self.depths[ids].max()) if ids.numel() else 0
        steps = [self._class_steps[ids]] if length else []
        for _ in range(length - 1):
            # A finished path has step -1; what it looks up at the end of the table is not used.
            above = self._node_steps[steps[-1] >> 1]
            steps.append(torch.where(steps[-1] < 0, -1, above))
        path = torch.stack(steps, -1) if steps else ids.new_empty((*ids.shape, 0))
        signs = torch.where(path < 0, 0, 2 * (path & 1) - 1)
        return Paths((path >> 1).clamp(min=0), signs)

    def leaf_log_prob(self, go_left: Tensor, go_right: Tensor) -> Tensor:
        """Return log p of every class, [V, R], from those of the turns at all nodes, [V−1, R]."""
        reached = go_left.new_zeros((1, go_left.shape[1]))
        leaves = []
        slots = torch.split(self.children, self.level_sizes)
        lefts = torch.split(go_left, self.level_sizes)
        rights = torch.split(go_right, self.level_sizes)
        for level, left, right in zip(slots, lefts, rights, strict=True):
            below = torch.stack([reached + left, reached + right], dim=1).flatten(0, 1)
            inner = level.flatten() >= 0
            leaves.append(below[~inner])
            reached = below[inner]
        return torch.cat(leaves).index_select(0, self._leaf_places) if leaves else reached

    def log_odds(self, counts: Counts) -> Tensor:
        """Return log(count right / count left) at each node, float32 [V−1].

        With these as biases a head predicts the frequencies before it has learned anything. A side
        that was never counted has half a count.

        >>> Tree.huffman([2, 1, 1]).log_odds([2, 1, 1]).exp().tolist()
        [1.0, 1.0]
        >>> Tree.balanced(2).log_odds([1, 3]).exp().tolist()
        [3.0...]
        """
        mass = np.zeros(len(self.children))
        of_classes = check_counts(counts, self.num_classes).astype(np.float64)
        slots = self.children.cpu().numpy()
        stop = len(slots)
        odds = np.zeros(len(slots))
        for size in reversed(self.level_sizes):
            level = slots[stop - size : stop]
            inner = level >= 0
            below = np.where(inner, mass[level * inner], of_classes[~level * ~inner])
            mass[stop - size : stop] = below.sum(1)
            left, right = np.maximum(below, 0.5).T
            odds[stop - size : stop] = np.log(right / left)
            stop -= size
        return torch.from_numpy(odds).float().to(self.children.device)

    def describe(self, counts: Counts | None = None) -> TreeSummary:
        """Return path lengths and the entropy of the counts (None: all classes alike).

        >>> print(Tree.huffman([8, 4, 2, 1, 1]).describe([8, 4, 2, 1, 1]))
        5 classes: average path 1.88, entropy 1.88 bits, log2 V 2.32, deepest 4
        """
        given = np.ones(self.num_classes) if counts is None else counts
        weights = check_counts(given, self.num_classes).astype(np.float64)
        # Divided by the largest first: the sum of huge counts would overflow.
        share = weights / weights.max()
        share /= share.sum()
        present = share[share > 0]
        depths = self.depths.cpu().numpy()
        return TreeSummary(
            num_classes=self.num_classes,
            average_path=float(share @ depths),
            entropy_bits=abs(float((present * np.log2(present)).sum())),
            log2_classes=float(np.log2(self.num_classes)),
            max_depth=int(depths.max()),
        )

    def __repr__(self) -> str:
        return f"Tree(num_classes={self.num_classes}, max_depth={len(self.level_sizes)})"


def _check_children(children: Tensor) -> Tensor:
    """Return a table as int64 on the CPU if it is one tree, numbered breadth first."""
    if children.dim() != 2 or children.shape[1] != 2 or children.dtype != torch.int64:
        raise ValueError(
            f"children must be int64 [V-1, 2], got {children.dtype} {list(children.shape)}"
        )
    children = children.detach().cpu().clone()
    slots = children.view(-1)
    inner = (slots >= 0).nonzero()[:, 0]
    numbers = torch.arange(1, max(len(children), 1))
    # An inner node stands in its parent's row, so its own row must come later.
    if not torch.equal(slots[inner], numbers) or bool((inner >> 1 >= numbers).any()):
        raise ValueError("children must number the inner nodes breadth first, each below one other")
    classes = (~slots[slots < 0]).sort().values
    if not torch.equal(classes, torch.arange(2 * len(children) - len(inner))):
        raise ValueError(f"children must hold each class from 0 to {len(children):,} once")
    return children


def _level_sizes(children: NDArray[np.int64]) -> list[int]:
    """Return how many inner nodes each level has, from those that the level above holds."""
    inner_up_to = np.concatenate([[0], np.cumsum((children >= 0).sum(1))]).tolist()
    sizes = []
    start, stop = 0, min(1, len(children))
    while start < stop:
        sizes.append(stop - start)
        start, stop = stop, 1 + inner_up_to[stop]
    return sizes
