"""What a head scores classes with, taken out of it once."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from widemax.candidates import TopK, merge_topk
from widemax.heads import ScorerHead
from widemax.heads.conversion import class_vectors_of
from widemax.heads.exact.linear import linear_topk
from widemax.scoring import Scorer
from widemax.scoring.rows import HALF, widened
from widemax.validation import ABSENT, check_tensor

_BLOCK = 2**24


@dataclass(frozen=True, eq=False)
class ClassRows:
    """What classes are scored by, copied from a head."""

    vectors: Tensor
    """What the query is multiplied with, [V, D]: of length 1 where the similarity is cosine."""
    biases: Tensor | None
    """What is added to the products, [V]."""
    scorer: Scorer
    """What makes queries of hidden states; the temperature is in them."""

    @classmethod
    def of_head(cls, head: ScorerHead) -> ClassRows:
        """Copy the vectors and biases of a head: what it learns later is not in them."""
        if not isinstance(head, ScorerHead):
            raise ValueError(
                f"head must be one whose classes have vectors (a ScorerHead), "
                f"got {type(head).__name__}"
            )
        biases = head.scorer.class_biases()
        copied = None if biases is None else widened(biases).detach().clone()
        return cls(class_vectors_of(head), copied, head.scorer)

    def are_current(self) -> bool:
        """Return whether the first rows are still the vectors and biases of the scorer."""
        biases, own = self.scorer.class_biases(), self.scorer.num_classes
        same = biases is None or self.biases is None or widened(biases).equal(self.biases[:own])
        return same and class_vectors_of(self.scorer).equal(self.vectors[:own])

    def new_rows(self, vectors: Tensor, biases: Tensor | None) -> ClassRows:
        """Return further rows, checked, of the precision and the length that these have."""
        dimension = self.vectors.shape[1]
        for name, given, shape in (("vectors", vectors, [dimension]), ("biases", biases, [])):
            if given is None:
                continue
            check_tensor(name, given)
            if [*given.shape] != [len(vectors), *shape] or not given.is_floating_point():
                wanted = "[N, " + f"{dimension}]" if shape else "[N]"
                raise ValueError(
                    f"{name} must be floating point {wanted}, got {given.dtype} {list(given.shape)}"
                )
            if not bool(given.isfinite().all()):
                raise ValueError(f"{name} must be finite, got {given[~given.isfinite()][0].item()}")
        if (biases is None) != (self.biases is None):
            needed = "must be given: the head has some" if biases is None else "are not of the head"
            raise ValueError(f"biases {needed}")
        if similarity_of(self.scorer) == "cosine":
            vectors = normalize(vectors, dim=1)
        vectors = vectors.detach().to(self.vectors)
        added = None if biases is None else biases.detach().to(self.biases)
        return ClassRows(vectors, added, self.scorer)

    def followed_by(self, new: ClassRows) -> ClassRows:
        """Return these rows, and others after them."""
        biases = None
        if self.biases is not None and new.biases is not None:
            biases = torch.cat([self.biases, new.biases])
        return ClassRows(torch.cat([self.vectors, new.vectors]), biases, self.scorer)

    def without(self, ids: Tensor) -> ClassRows:
        """Return these rows with a bias of -inf for some classes: nothing ranks below it."""
        if not len(ids):
            return self
        vectors = self.vectors
        if self.biases is None:
            biases = torch.zeros(len(vectors), dtype=widened(vectors).dtype, device=vectors.device)
        else:
            biases = self.biases.clone()
        biases[ids.to(biases.device)] = -torch.inf
        return ClassRows(vectors, biases, self.scorer)

    def queries(self, hidden: Tensor) -> Tensor:
        """Return what is multiplied with the vectors, [B, D], in their precision."""
        hidden = hidden.to(self.vectors.device, widened(self.vectors).dtype)
        return self.scorer.queries(hidden)

    def scores(self, queries: Tensor, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return F(x, y) of ids [B, S], none of which is absent.

        In NumPy, whose calls on a few rows cost a part of torch's. Each product is a sum of its
        own: a class has the same digits among few or many, in one row or a batch.
        """
        own = queries.cpu().numpy()[:, None]
        products: NDArray[Any] = np.vecdot(_taken(self.vectors, ids), own)
        return products if self.biases is None else products + _taken(self.biases, ids)

    def best(self, queries: Tensor, k: int, exclude: Tensor | None) -> TopK:
        """Return the k best classes by going through all."""
        return linear_topk(queries, self.vectors, self.biases, k, exclude=exclude)

    def best_among(self, queries: Tensor, k: int, exclude: Tensor | None, ids: Tensor) -> TopK:
        """Return the k best of the classes ``ids`` [S], in rising order, by going through these."""
        if not len(ids):
            none = torch.full((len(queries), k), ABSENT, device=queries.device)
            return TopK(ids=none, scores=torch.full_like(none, -torch.inf, dtype=queries.dtype))
        if exclude is not None:
            place = torch.searchsorted(ids, exclude.clamp(min=0)).clamp(max=len(ids) - 1)
            exclude = torch.where(ids[place] == exclude, place, ABSENT)
        biases = None if self.biases is None else self.biases[ids]
        found = linear_topk(queries, self.vectors[ids], biases, min(k, len(ids)), exclude=exclude)
        own = torch.where(found.ids < 0, ABSENT, ids[found.ids.clamp(min=0)])
        return merge_topk([TopK(ids=own, scores=found.scores)], k)


def _taken(table: Tensor, ids: NDArray[np.int64]) -> NDArray[Any]:
    """Return rows of a table in at least float32, [*ids.shape, ...]."""
    if table.is_cpu and table.dtype not in HALF:
        return table.numpy().take(ids, axis=0)
    rows = widened(table[torch.from_numpy(ids).to(table.device)])
    return rows.cpu().numpy()


def model_digest(scorer: Scorer) -> str:
    """Return the sha256 of all that class vectors and biases are made from.

    Of the parameters, not of the vectors: those may be computed, and rounded otherwise elsewhere.
    """
    digest = sha256(similarity_of(scorer).encode())
    named = [*scorer.named_parameters(), *scorer.named_buffers()]
    for name, tensor in sorted(named, key=lambda each: each[0]):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        flat = tensor.detach().reshape(-1)
        for start in range(0, len(flat), _BLOCK):
            block = flat[start : start + _BLOCK].cpu().contiguous()
            digest.update(block.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def similarity_of(scorer: Scorer) -> str:
    """Return by what a scorer compares: "dot", unless it says otherwise."""
    return str(getattr(scorer, "similarity", "dot"))
