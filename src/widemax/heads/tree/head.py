"""Hierarchical softmax: a class is reached by a path of left or right decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from widemax.candidates import TopK
from widemax.declarations import Option, Setup, declare
from widemax.devices import by_kernels
from widemax.heads.base import BatchHead
from widemax.heads.batch import Batch
from widemax.heads.tree.model import TreeModel, by_rows
from widemax.heads.tree.tree import Tree
from widemax.scoring.base import BIAS
from widemax.validation import (
    check_generator,
    check_ignore_index,
    check_num_samples,
    check_whole,
)


@declare.head(
    "hierarchical",
    slots=[],
    options=[
        BIAS,
        Option(
            "tree",
            "huffman",
            "The tree over the classes: short paths for frequent ones, or all about equal.",
            choices=("balanced", "huffman"),
        ),
    ],
    traits=["kernel"],
)
class HierarchicalHead(BatchHead):
    """A binary tree over the classes with one logistic regression at each inner node.

    Formula: p(right at n) = σ(x·v_n + b_n); log P(y | x) = Σ over the path of y of log σ(±(x·v_n +
    b_n)), normalised by construction. L = −log P(y | x).

    Shapes: as ``Head``; ``weight`` is [V−1, D].

    Cost: O(B·L·D) a step, L the path length (``tree.describe(counts)``), against O(B·V·D) of the
    exact softmax. ``log_prob`` of all classes O(B·V·D); ``topk`` opens only branches that may
    win. With ``sparse=True`` the gradient of ``weight`` holds only the nodes on the paths, for
    optimisers that take sparse gradients; otherwise a step costs O(V·D) too.

    Reference: Morin & Bengio 2005; Mnih & Hinton 2008; Mikolov et al. 2013.

    Use when: V is large, steps must be cheap and probabilities exact. Avoid when: class vectors
    are needed afterwards (there are none), or accuracy matters more than the cost of a step.

    The node vectors start at 0, so that at first P(y | x) = 2^−depth: with a Huffman tree, about
    the frequency of y. The tree is part of ``state_dict``.

    >>> head = HierarchicalHead(16, Tree.huffman([8, 4, 2, 1, 1]))
    >>> losses = head(torch.randn(2, 16), torch.tensor([0, 4]))
    >>> [round(loss / 0.693147, 3) for loss in losses.tolist()]  # in bits: the path lengths
    [1.0, 4.0]
    """

    tree_children: Tensor
    bias: nn.Parameter | None

    def __init__(
        self,
        dimension: int,
        tree: Tree,
        *,
        bias: bool = False,
        sparse: bool = False,
        ignore_index: int = -100,
    ) -> None:
        dimension = check_whole("dimension", dimension, 1, 2**24)
        if not isinstance(tree, Tree):
            raise ValueError(f"tree must be a Tree, got {type(tree).__name__}: see Tree.huffman")
        super().__init__()
        self.num_classes = tree.num_classes
        self.dimension = dimension
        self.sparse = sparse
        self.ignore_index = check_ignore_index(ignore_index)
        self.weight = nn.Parameter(torch.zeros(len(tree.children), dimension))
        self.bias = nn.Parameter(torch.zeros(len(tree.children))) if bias else None
        self.tree = tree
        self.register_buffer("tree_children", tree.children)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the head of a run, which starts at the frequencies where it has biases."""
        balanced = setup.options.tree == "balanced"
        tree = Tree.balanced(setup.num_classes) if balanced else Tree.huffman(setup.counts)
        head = cls(setup.dimension, tree, bias=setup.options.bias, sparse=True)
        if head.bias is not None:
            head.bias.data.copy_(tree.log_odds(setup.counts))
        return head

    def batch_losses(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """Return the exact loss of each example, [B]; nothing is drawn."""
        present = batch.target_mask
        if present is None:
            return -self._model.path_log_prob(batch.hidden, batch.targets[:, None])[:, 0]
        # Only present positives are walked: the nodes of a stand-in would get a gradient of 0,
        # which a sparse optimiser takes for a step.
        rows, columns = present.nonzero(as_tuple=True)
        ids = batch.targets[rows, columns]
        log_prob = self._model.path_log_prob(batch.hidden[rows], ids[:, None])[:, 0]
        shares = log_prob / present.sum(-1)[rows]
        return -shares.new_zeros(len(batch.hidden)).index_add(0, rows, shares)

    def scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return ``log_prob``: a tree has no other scores."""
        return self.log_prob(hidden, ids)

    def log_prob(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return log P(y | x), exactly, of the given classes ([S] or [B, S]) or of all, [B, V]."""
        self._check_hidden(hidden)
        if ids is None:
            return by_rows(self._model.all_log_prob, 4 * self.num_classes, hidden)
        ids = self._check_ids(hidden, ids)
        if ids.dim() == 1:
            return self._model.shared_log_prob(hidden, ids)
        width = 8 * ids.shape[1] * len(self.tree.level_sizes)
        return by_rows(self._model.path_log_prob, width, hidden, ids)

    @torch.no_grad()
    def topk(self, hidden: Tensor, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes, leaving out ``exclude`` [B, E], padded with -1."""
        k, exclude = self._check_topk(hidden, k, exclude)
        if exclude is None:
            exclude = torch.empty((len(hidden), 0), dtype=torch.int64, device=hidden.device)
        model = self._model
        best = (model.search if by_kernels(hidden) else model.rank)(hidden, k, exclude)
        if bool(best.scores.isnan().any()):
            raise ValueError("scores hold NaN: check hidden and the node vectors")
        return best

    @torch.no_grad()
    def sample(
        self, hidden: Tensor, num_samples: int, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return classes drawn from P(y | x), with replacement, [B, ``num_samples``]."""
        self._check_hidden(hidden)
        num_samples = check_num_samples(num_samples, rows=len(hidden))
        check_generator(generator, hidden.device)
        return self._model.sample(hidden, num_samples, generator)

    @property
    def _model(self) -> TreeModel:
        return TreeModel(self.tree, self.weight, self.bias, self.sparse)

    def extra_repr(self) -> str:
        """Return what ``print(head)`` shows."""
        return (
            f"dimension={self.dimension}, tree={self.tree}, bias={self.bias is not None}, "
            f"sparse={self.sparse}"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.tree = self.tree.to(self.tree_children.device)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any, **options: Any
    ) -> None:
        """Load the tree of the state, too: the weights belong to its nodes."""
        children = state_dict.get(prefix + "tree_children")
        tree = self.tree
        if isinstance(children, Tensor) and children.shape == self.tree_children.shape:
            tree = Tree(children)
            # The buffer is replaced before it is written to: another head may share the old tree.
            self.tree_children = tree.children.to(self.tree_children.device)
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)
        self.tree = tree.to(self.tree_children.device)
