"""Reading trees from the user: nested lists, parent tables, categories.

Each form becomes a parent table: nodes 0..V−1 are the classes, the nodes above are inner ones, the
root has parent -1. Inner nodes of any number of children are then made binary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from widemax.heads.tree.builders import INNER, Slots, join_levels

NO_PARENT = -1
"""The parent of the root."""

Category = str | Sequence[str]


def parents_of_nested(nested: Sequence[Any]) -> NDArray[np.int64]:
    """Return the parent table of lists within lists whose items are class ids."""
    if not isinstance(nested, list | tuple):
        raise ValueError(f"nested must be a list of class ids and lists, got {nested!r}")
    class_parents: dict[int, int] = {}
    inner_parents = [NO_PARENT]
    # A queue, not recursion: lists may be nested deeper than Python's stack.
    waiting = [nested]
    for node, items in enumerate(waiting):
        if not items:
            raise ValueError("nested must not hold an empty list: a node needs a child")
        for item in items:
            if isinstance(item, list | tuple):
                waiting.append(item)
                inner_parents.append(node)
            else:
                class_parents[_new_class(item, class_parents)] = node
    for class_id in range(len(class_parents)):
        if class_id not in class_parents:
            raise ValueError(
                f"nested must hold every class from 0 to {max(class_parents):,}, "
                f"class {class_id:,} is missing"
            )
    return _parent_table([class_parents[y] for y in range(len(class_parents))], inner_parents)


def _new_class(item: object, known: dict[int, int]) -> int:
    if isinstance(item, bool) or not isinstance(item, int | np.integer):
        raise ValueError(f"nested must hold whole numbers and lists, got {item!r}")
    if item < 0:
        raise ValueError(f"nested must hold class ids from 0 up, got {item}")
    if int(item) in known:
        raise ValueError(f"nested must hold each class once, got class {item} again")
    return int(item)


def _parent_table(class_parents: list[int], inner_parents: list[int]) -> NDArray[np.int64]:
    """Return the table of classes and inner nodes, which count from 0, the root, in both lists."""
    nodes = class_parents + inner_parents
    return np.array([NO_PARENT if n == NO_PARENT else n + len(class_parents) for n in nodes])


def parents_of_categories(categories: Iterable[Category]) -> NDArray[np.int64]:
    """Return the parent table of classes that lie in categories like "a/b/c" or ("a", "b")."""
    inner_parents = [NO_PARENT]
    known: dict[tuple[int, str], int] = {}
    class_parents = []
    for class_id, category in enumerate(categories):
        node = 0
        for part in _parts(class_id, category):
            if (node, part) not in known:
                known[node, part] = len(inner_parents)
                inner_parents.append(node)
            node = known[node, part]
        class_parents.append(node)
    if not class_parents:
        raise ValueError("categories must hold one category for each class, got none")
    return _parent_table(class_parents, inner_parents)


def _parts(class_id: int, category: object) -> Sequence[str]:
    parts = category.split("/") if isinstance(category, str) else category
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError(
            f"categories must hold strings like 'a/b' or tuples of strings, got {category!r} for "
            f"class {class_id:,}"
        )
    if not parts or not all(parts):
        raise ValueError(f"categories must not be empty, got {category!r} for class {class_id:,}")
    return parts


def check_parents(parents: Tensor | NDArray[Any] | Sequence[int]) -> NDArray[np.int64]:
    """Return the table as int64 if every node leads to one root and the leaves come first."""
    table = parents.detach().cpu().numpy() if isinstance(parents, Tensor) else np.asarray(parents)
    if table.ndim != 1 or not len(table) or table.dtype.kind not in "iu":
        raise ValueError(
            f"parents must hold one whole number for each node, got shape {list(table.shape)} "
            f"and dtype {table.dtype}"
        )
    low, high = int(table.min()), int(table.max())
    if low < NO_PARENT or high >= len(table):
        wrong = low if low < NO_PARENT else high
        raise ValueError(
            f"parents must lie between -1 (the root) and {len(table) - 1:,}, got {wrong:,}"
        )
    roots = np.flatnonzero(table == NO_PARENT)
    if len(roots) != 1:
        found = "none (the table has a cycle)" if not len(roots) else f"{roots[:3].tolist()}"
        raise ValueError(f"parents must have one root, a node with parent -1; got {found}")
    leaves = np.setdiff1d(np.arange(len(table)), table)
    if len(leaves) and leaves[-1] != len(leaves) - 1:
        raise ValueError(
            f"parents must list the {len(leaves):,} leaves, the classes, before the inner nodes; "
            f"node {leaves[-1]:,} has no child"
        )
    # Twice as far up in each round: after log2 N rounds all but a cycle is at the root.
    above = np.where(table == NO_PARENT, roots[0], table)
    for _ in range(len(table).bit_length()):
        above = above[above]
    lost = np.flatnonzero(above != roots[0])
    if len(lost):
        raise ValueError(f"parents has a cycle: node {lost[0]:,} does not lead to the root")
    return table.astype(np.int64)


def binary_slots(parents: NDArray[np.int64]) -> Slots:
    """Return the slots of the parent table made binary.

    The children of a node, in the order of their ids, are halved until each stands alone; a node
    with one child is replaced by it.
    """
    family = _Family(parents)
    start, stop = family.skip_only_children(np.array([0]), np.array([1]))
    levels = []
    while (several := stop - start > 1).any():
        start, stop = start[several], stop[several]
        middle = (start + stop) // 2
        start = np.stack([start, middle], axis=1).ravel()
        stop = np.stack([middle, stop], axis=1).ravel()
        start, stop = family.skip_only_children(start, stop)
        levels.append(np.where(stop - start > 1, INNER, family.children[start]))
    return join_levels(levels)


class _Family:
    """The children of each node: those of one node are neighbours in ``children``."""

    def __init__(self, parents: NDArray[np.int64]) -> None:
        self.children = np.argsort(parents, kind="stable")
        self.size = np.bincount(parents + 1, minlength=len(parents) + 1)
        self.first = np.cumsum(self.size) - self.size

    def skip_only_children(
        self, start: NDArray[np.int64], stop: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Replace each range of one inner node by the range of that node's children."""
        while True:
            # Sizes are shifted by one: entry 0 belongs to the parent of the root.
            family = self.children[start] + 1
            skip = (stop - start == 1) & (self.size[family] > 0)
            if not skip.any():
                return start, stop
            start = np.where(skip, self.first[family], start)
            stop = np.where(skip, start + self.size[family], stop)
