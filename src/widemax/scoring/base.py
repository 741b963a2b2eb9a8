"""What every scorer is: F(x, y) as an inner product of a query and a class vector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from widemax.candidates import ClassBlock, InnerProduct
from widemax.declarations import Option
from widemax.scoring.rows import widened
from widemax.validation import check_hidden

BIAS = Option("bias", False, "Whether each class has a bias.")
SIMILARITY = Option(
    "similarity",
    "dot",
    "How two vectors are compared: by their dot product or by their cosine.",
    choices=("dot", "cosine"),
)
TEMPERATURE = Option(
    "temperature",
    1.0,
    "Divides the similarity, never the bias; auto is 0.1 for half a million interactions or more, "
    "and the larger the fewer there are, 0.15 for 100,000, at most 0.3.",
    least=1e-6,
    most=1e6,
    word="auto",
)
NUM_LAYERS = Option("num_layers", 0, "Hidden layers of the user or item network.", most=16)
HIDDEN_SIZE = Option("hidden_size", 200, "Units of each hidden layer.", least=1, most=65_536)
LAYER_SIZE = replace(HIDDEN_SIZE, only_with="num_layers")


class Scorer(nn.Module, ABC):
    """Where a class's vector comes from, and so its score F(x, y).

    Formula: F(x, y) = query(x) · vector(y) + bias(y).

    Shapes: hidden [B, D]; ids None → [B, V]; ids [S], shared by the batch → [B, S]; ids [B, S],
    one list for each row → [B, S].

    A scorer of your own needs ``class_vectors``, and if it wants ``class_biases`` and ``queries``;
    every head, objective and exact evaluation then works with it. With ``class_tables`` a run can
    continue from another one that has it. One whose vectors are zero in most places says so by
    ``blocks``, and exact evaluation then multiplies no zeros.
    """

    num_classes: int
    dimension: int
    tables_are_shards = False
    """Whether class tables of one name, ``weights.0`` and ``weights.1``, are parts of one table."""

    @abstractmethod
    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return the vectors of the given classes, [*ids.shape, D], or of all, [V, D]."""

    def class_biases(self, ids: Tensor | None = None) -> Tensor | None:
        """Return the biases of the given classes, like ``ids``, or of all, [V]; None: no bias."""
        return None

    @torch.no_grad()
    def set_class_biases(self, biases: Tensor) -> None:
        """Set the biases of all classes to [V]: the parameter ``bias``, if there is one.

        A scorer that keeps them elsewhere sets them there.
        """
        bias = getattr(self, "bias", None)
        if isinstance(bias, nn.Parameter) and bias.shape == biases.shape:
            bias.copy_(biases)

    def queries(self, hidden: Tensor) -> Tensor:
        """Return what is multiplied with the class vectors, [B, D]."""
        return hidden

    def blocks(self, hidden: Tensor) -> Sequence[ClassBlock]:
        """Return all classes as blocks, in the order of their ids; what is exact goes by them."""
        check_hidden(hidden, self.dimension)
        return [ClassBlock(self.queries(hidden), self.class_vectors(), self.class_biases())]

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows.

        A run that continues another one has other ids: these tensors are copied key by key.
        """
        return {}

    def forward(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return F(x, y) for the given classes, or for all of them."""
        if ids is None and not torch.is_grad_enabled():
            return self._all_scores(self.blocks(hidden))
        queries = self.queries(check_hidden(hidden, self.dimension))
        vectors, biases = widened(self.class_vectors(ids)), self.class_biases(ids)
        if vectors.dim() == 2:
            scores = queries @ vectors.T
        elif vectors.shape[1] == 1:
            # One class a row, as in most batches of targets: cheaper than a batch of products.
            scores = (vectors[:, 0] * queries).sum(-1, keepdim=True)
        else:
            scores = torch.bmm(vectors, queries.unsqueeze(-1)).squeeze(-1)
        return scores if biases is None else scores + biases

    def _all_scores(self, blocks: Sequence[ClassBlock]) -> Tensor:
        """Return the scores of all classes by blocks, of which a scorer need not have all at once.

        What is kept has one place from the start: between blocks that come and go, small parts
        would keep the memory of each from being used for the next.
        """
        if len(blocks) == 1:
            return _scores_of(blocks[0])
        scores, start = torch.empty(0), 0
        for block in blocks:
            found = _scores_of(block)
            if not start:
                scores = found.new_empty(len(found), self.num_classes)
            scores[:, start : start + found.shape[1]] = found
            start += found.shape[1]
        return scores

    def inner_product(self, hidden: Tensor, targets: Tensor, ids: Tensor) -> InnerProduct:
        """Return the factors of F(x, t) for targets [B] and of F(x, y) for shared ids [S]."""
        both = torch.cat([targets, ids])
        return InnerProduct(
            queries=self.queries(check_hidden(hidden, self.dimension)),
            vectors=self.class_vectors(both),
            biases=self.class_biases(both),
        )


def _scores_of(block: ClassBlock) -> Tensor:
    scores = block.queries @ widened(block.vectors).T
    return scores if block.biases is None else scores + block.biases


def is_plain(scorer: Scorer) -> bool:
    """Return whether calling the scorer does no more than multiply the factors out."""
    hooked = scorer._forward_hooks or scorer._forward_pre_hooks or scorer._backward_hooks
    return not hooked and type(scorer).forward is Scorer.forward
