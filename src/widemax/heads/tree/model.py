"""Probabilities of classes from decisions at the nodes of a tree: the core of its head."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding as look_up
from torch.nn.functional import logsigmoid

from widemax.candidates import TopK
from widemax.devices import by_kernels
from widemax.heads.exact.linear import linear_scores
from widemax.heads.tree.pair_product import pair_product
from widemax.heads.tree.tree import Tree
from widemax.kernels.heads.tree import best_first
from widemax.validation import ABSENT

# Temporaries of evaluation hold at most this many values (64 MB in float32), whatever B is.
_CHUNK_VALUES = 2**24


class TreeModel(NamedTuple):
    """A tree with the vectors [V−1, D], and optionally the biases [V−1], of its inner nodes."""

    tree: Tree
    weight: Tensor
    bias: Tensor | None
    sparse: bool

    def path_log_prob(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """Return log P of classes [R, S] of each row's own by their paths, O(R·S·L·D)."""
        nodes, signs = self.tree.paths(ids.flatten())
        if not by_kernels(hidden):
            return self._padded_log_prob(hidden, nodes, signs).view(ids.shape)
        path, step = (signs != 0).nonzero(as_tuple=True)
        # Nodes near the root are on many paths: each is looked up once, and has one gradient.
        own, place = torch.unique(nodes[path, step], return_inverse=True)
        vectors = self._wide(look_up(own, self.weight, sparse=self.sparse))
        logits = pair_product(self._wide(hidden), vectors, path // max(ids.shape[1], 1), place)
        if self.bias is not None:
            logits = logits + self.bias[own][place]
        turns = logsigmoid(logits * signs[path, step])
        return turns.new_zeros(ids.numel()).index_add(0, path, turns).view(ids.shape)

    def _padded_log_prob(self, hidden: Tensor, nodes: Tensor, signs: Tensor) -> Tensor:
        """Return the same from paths [N, L] as they are, padded with the root, in fixed shapes."""
        vectors = self._wide(look_up(nodes, self.weight, sparse=self.sparse))
        queries = self._wide(hidden).repeat_interleave(len(nodes) // max(len(hidden), 1), dim=0)
        logits = (vectors * queries[:, None]).sum(-1)
        if self.bias is not None:
            logits = logits + self.bias[nodes]
        return logsigmoid(logits * signs).masked_fill(signs == 0, 0.0).sum(-1)

    def shared_log_prob(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """Return log P of the same classes [S] for every row; each of their nodes counts once."""
        nodes, signs = self.tree.paths(ids)
        own, place = torch.unique(nodes, return_inverse=True)
        vectors = self._wide(look_up(own, self.weight, sparse=self.sparse))
        biases = None if self.bias is None else self.bias[own]

        def of_rows(rows: Tensor) -> Tensor:
            logits = linear_scores(self._wide(rows), vectors, biases)
            # Where a path has ended nothing is added.
            return logsigmoid(logits[:, place] * signs).masked_fill(signs == 0, 0.0).sum(-1)

        return by_rows(of_rows, nodes.numel() + len(own), hidden)

    def all_log_prob(self, hidden: Tensor) -> Tensor:
        """Return log P of all classes, [R, V], from the root down, O(R·V·D)."""
        # Nodes come first, so that a level of the tree is one block of memory.
        logits = linear_scores(self._wide(self.weight), self._wide(hidden), None)
        if self.bias is not None:
            logits = logits + self.bias[:, None]
        return self.tree.leaf_log_prob(logsigmoid(-logits), logsigmoid(logits)).T

    def search(self, hidden: Tensor, k: int, exclude: Tensor) -> TopK:
        """Return the k best classes by best-first search, on the CPU."""
        bias = hidden.new_empty(0) if self.bias is None else self.bias
        weight = self._wide(self.weight).detach().contiguous()
        ids, scores, _ = best_first(
            hidden.detach().double().contiguous().numpy(),
            weight.numpy(),
            bias.detach().double().numpy(),
            self.tree.children.numpy(),
            exclude.contiguous().numpy(),
            k,
        )
        return TopK(ids=torch.from_numpy(ids), scores=torch.from_numpy(scores).to(weight.dtype))

    def rank(self, hidden: Tensor, k: int, exclude: Tensor) -> TopK:
        """Return the k best classes by the probabilities of all: the reference, on any device."""
        size = _rows_at_once(4 * self.tree.num_classes)
        blocks = zip(torch.split(hidden, size), torch.split(exclude, size), strict=True)
        found = [self._rank_rows(rows, k, left_out) for rows, left_out in blocks]
        return TopK(
            ids=torch.cat([best.ids for best in found]),
            scores=torch.cat([best.scores for best in found]),
        )

    def _rank_rows(self, hidden: Tensor, k: int, exclude: Tensor) -> TopK:
        log_prob = self.all_log_prob(hidden)
        rows, columns = (exclude != ABSENT).nonzero(as_tuple=True)
        log_prob[rows, exclude[rows, columns]] = -torch.inf
        scores, ids = log_prob.topk(k)
        return TopK(ids=ids.masked_fill(scores == -torch.inf, ABSENT), scores=scores)

    def sample(self, hidden: Tensor, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """Return classes drawn from P(y | x), [B, S], by walking down from the root."""
        rows = torch.arange(len(hidden), device=hidden.device).repeat_interleave(num_samples)
        blocks = torch.split(rows, _rows_at_once(4 * hidden.shape[1]))
        drawn = torch.cat([self._walk_down(hidden, block, generator) for block in blocks])
        return drawn.view(len(hidden), num_samples)

    def _walk_down(self, hidden: Tensor, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        hidden, weight = self._wide(hidden), self._wide(self.weight)
        classes = torch.zeros_like(rows)
        walkers = torch.arange(len(rows) if len(self.weight) else 0, device=rows.device)
        nodes = torch.zeros_like(walkers)
        while len(walkers):
            logits = pair_product(hidden, weight, rows[walkers], nodes)
            if self.bias is not None:
                logits = logits + self.bias[nodes]
            if bool(logits.isnan().any()):
                raise ValueError("scores hold NaN: check hidden and the node vectors")
            # A uniform float32 has 24 bits, too few for rare turns.
            uniform = torch.rand(
                len(nodes), dtype=torch.float64, device=nodes.device, generator=generator
            )
            below = self.tree.children[nodes, (uniform < logits.double().sigmoid()).long()]
            arrived = below < 0
            classes[walkers[arrived]] = ~below[arrived]
            walkers, nodes = walkers[~arrived], below[~arrived]
        return classes

    def _wide(self, tensor: Tensor) -> Tensor:
        """Return the tensor in the dtype of the weights, or in float32 if theirs is narrower."""
        return tensor.to(torch.promote_types(self.weight.dtype, torch.float32))


def by_rows(function: Callable[..., Tensor], width: int, hidden: Tensor, *others: Tensor) -> Tensor:
    """Return function(hidden, *others), some rows at a time unless a graph keeps them all anyway.

    ``width`` is how many values the temporaries of one row hold.
    """
    size = _rows_at_once(width)
    if torch.is_grad_enabled() or len(hidden) <= size:
        return function(hidden, *others)
    result: Tensor | None = None
    for start in range(0, len(hidden), size):
        rows = slice(start, start + size)
        part = function(hidden[rows], *(other[rows] for other in others))
        if result is None:
            result = part.new_empty((len(hidden), part.shape[1]))
        result[rows] = part
    assert result is not None
    return result


def _rows_at_once(width: int) -> int:
    return max(1, _CHUNK_VALUES // max(width, 1))
