"""What a head scores classes with, taken out of it once."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import torch
from torch import Tensor

from widemax.candidates import TopK, merge_topk
from widemax.heads import ScorerHead
from widemax.heads.conversion import class_vectors_of
from widemax.heads.exact import linear_topk
from widemax.scoring import Scorer
from widemax.scoring.rows import widened
from widemax.validation import ABSENT

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
        """Return whether these are still the vectors and biases of the scorer."""
        biases = self.scorer.class_biases()
        same = biases is None or self.biases is None or widened(biases).equal(self.biases)
        return same and class_vectors_of(self.scorer).equal(self.vectors)

    def queries(self, hidden: Tensor) -> Tensor:
        """Return what is multiplied with the vectors, [B, D], in their precision."""
        hidden = hidden.to(self.vectors.device, widened(self.vectors).dtype)
        return self.scorer.queries(hidden)

    def scores(self, queries: Tensor, ids: Tensor) -> Tensor:
        """Return F(x, y) of ids [B, S], -inf where an id is absent."""
        absent = ids == ABSENT
        ids = ids.masked_fill(absent, 0)
        vectors = widened(self.vectors[ids])
        scores = torch.bmm(vectors, queries.unsqueeze(-1)).squeeze(-1)
        if self.biases is not None:
            scores += self.biases[ids]
        return scores.masked_fill(absent, -torch.inf)

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
