"""A feed-forward language model with a tree for its output layer, in plain torch.

It shares nothing with widemax but the numbering of the words: a Huffman tree by a heap, node scores
by one product and one sum, gradients by autograd, AdamW as torch has it. huffman_tree.py holds the
library's tree to it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, softplus


@dataclass(frozen=True)
class Codes:
    """The path of each class: inner nodes, and a sign for each, +1 to the right; 0 ends a path."""

    nodes: Tensor
    signs: Tensor

    @classmethod
    def of(cls, nodes: list[list[int]], turns: list[list[int]]) -> Codes:
        """Pad paths given as lists; a turn is 1 to the right and 0 to the left."""
        longest = max(map(len, nodes))
        return cls(
            torch.tensor([path + [0] * (longest - len(path)) for path in nodes]),
            torch.tensor(
                [[2.0 * t - 1 for t in path] + [0.0] * (longest - len(path)) for path in turns]
            ),
        )

    @property
    def depths(self) -> Tensor:
        return (self.signs != 0).sum(1)

    def log_odds(self, counts: Tensor) -> Tensor:
        """The bias of each node at which the tree predicts the frequencies, [V − 1]."""
        right, left = torch.zeros(2, len(counts) - 1, dtype=torch.float64)
        for side, sign in ((right, 1), (left, -1)):
            words, steps = (self.signs == sign).nonzero(as_tuple=True)
            side.index_add_(0, self.nodes[words, steps], counts[words].double())
        return (right.log() - left.log()).float()


def huffman_codes(counts: list[int]) -> Codes:
    """Merge the two lightest until one is left; the root is the last of the inner nodes."""
    size = len(counts)
    heap = [(count, word) for word, count in enumerate(counts)]
    heapq.heapify(heap)
    parent = [(0, 0)] * (2 * size - 1)
    for inner in range(size, 2 * size - 1):
        (light, left), (heavy, right) = heapq.heappop(heap), heapq.heappop(heap)
        parent[left], parent[right] = (inner, 0), (inner, 1)
        heapq.heappush(heap, (light + heavy, inner))
    nodes, turns = [], []
    for word in range(size):
        path, at = [], word
        while at != 2 * size - 2:
            path.append(parent[at])
            at = parent[at][0]
        nodes.append([inner - size for inner, _ in reversed(path)])
        turns.append([turn for _, turn in reversed(path)])
    return Codes.of(nodes, turns)


@dataclass(frozen=True)
class Training:
    """How a plain model is trained; the first values are those of output_layers.py."""

    context_size: int = 5
    dimension: int = 128
    hidden_size: int = 128
    dropout: float = 0.2
    batch_size: int = 256
    epochs: int = 5
    learning_rate: float = 0.0015
    warmup_epochs: float = 0.03
    weight_decay: float = 0.1
    lazy_nodes: bool = False
    start_at_frequencies: bool = True
    seed: int = 0


class PlainTreeModel(nn.Module):
    """The last words side by side → tanh → a logistic regression at each node of the path."""

    def __init__(self, codes: Codes, training: Training) -> None:
        super().__init__()
        size, dimension, hidden_size = len(codes.nodes), training.dimension, training.hidden_size
        self.codes = codes
        self.words = nn.Parameter(torch.randn(size + 1, dimension) / dimension**0.5)
        self.hidden = nn.Linear(training.context_size * dimension, hidden_size)
        self.dropout = nn.Dropout(training.dropout)
        self.lazy = training.lazy_nodes
        self.node_vectors = nn.Parameter(torch.zeros(size - 1, hidden_size))
        self.node_biases = nn.Parameter(torch.zeros(size - 1))

    def forward(self, context: Tensor, targets: Tensor) -> Tensor:
        """Return −log P of each target; the last row of ``words`` stands before the beginning."""
        x = self.dropout(embedding(context, self.words).flatten(1))
        hidden = self.dropout(torch.tanh(self.hidden(x)))
        signs = self.codes.signs[targets]
        row, step = (signs != 0).nonzero(as_tuple=True)
        nodes = self.codes.nodes[targets][row, step]
        products = hidden.index_select(0, row) * embedding(
            nodes, self.node_vectors, sparse=self.lazy
        )
        logits = products.sum(-1) + self.node_biases[nodes]
        wrong = softplus(-signs[row, step] * logits)
        return wrong.new_zeros(len(targets)).index_add(0, row, wrong)


def contexts_of(stream: Tensor, context_size: int, before: int) -> Tensor:
    """The words before each word of a stream, ``before`` where there is none, [N, context_size]."""
    padded = torch.cat([torch.full((context_size,), before), stream[:-1]])
    return padded.unfold(0, context_size, 1)[: len(stream)]


@torch.no_grad()
def plain_perplexity(
    model: PlainTreeModel, training: Training, stream: Tensor, every: int
) -> float:
    model.eval()
    contexts = contexts_of(stream, training.context_size, len(model.words) - 1)
    places = torch.arange(0, len(stream), every)
    losses = [model(contexts[part], stream[part]).double() for part in places.split(4096)]
    return math.exp(torch.cat(losses).mean().item())


def train_plain(
    codes: Codes,
    training: Training,
    train: Tensor,
    valid: Tensor,
    counts: Tensor,
    progress: Callable[[str], object],
) -> PlainTreeModel:
    """Train a model from its own start, the rate falling to 0 in a line."""
    torch.manual_seed(training.seed)
    model = PlainTreeModel(codes, training)
    if training.start_at_frequencies:
        model.node_biases.data.copy_(codes.log_odds(counts))
    optimizers = _optimizers(model, training)
    contexts = contexts_of(train, training.context_size, len(model.words) - 1)
    per_epoch = math.ceil(len(train) / training.batch_size)
    total, warmup = training.epochs * per_epoch, training.warmup_epochs * per_epoch
    step = 0
    for epoch in range(training.epochs):
        model.train()
        for rows in torch.randperm(len(train)).split(training.batch_size):
            rising, falling = (step + 1) / max(warmup, 1), (total - step) / (total - warmup)
            model.zero_grad()
            model(contexts[rows], train[rows]).mean().backward()
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = training.learning_rate * min(rising, falling)
                optimizer.step()
            step += 1
        figure = plain_perplexity(model, training, valid, every=4)
        progress(f"epoch {epoch + 1}: valid perplexity {figure:.2f}")
    return model


def _optimizers(model: PlainTreeModel, training: Training) -> list[torch.optim.Optimizer]:
    """AdamW of all, or lazy Adam of the nodes: one that no path of the batch has stays as it is."""
    nodes = [model.node_vectors]
    others = [each for each in model.parameters() if each is not model.node_vectors]
    if training.lazy_nodes:
        return [torch.optim.AdamW(others, fused=True), torch.optim.SparseAdam(nodes)]
    decaying = {"params": nodes, "weight_decay": training.weight_decay}
    groups = [{"params": others, "weight_decay": 0.0}, decaying]
    return [torch.optim.AdamW(groups, fused=True)]
