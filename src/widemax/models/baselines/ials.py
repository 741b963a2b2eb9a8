"""Matrix factorisation of what was chosen and what was not, by alternating least squares."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.data.sequences import offsets_of
from widemax.declarations import Option, declare
from widemax.kernels.models.least_squares import solve_rows
from widemax.models.baselines.base import REGULARISATION, Baseline, transposed
from widemax.models.options import DIMENSION, MAX_HISTORY, WEIGHTS
from widemax.validation import check_not_negative, check_positive, check_whole

_MOST_ENTRIES = 2**32
_INITIAL_DEVIATION = 0.01
# Systems are solved until what is left is so many roundings of the right side.
_ROUNDINGS = 100
_VECTORS_AT_ONCE = 2**16
_CHOSEN_SHARE = 0.1


@declare.model(
    "ials",
    options=[
        DIMENSION,
        MAX_HISTORY,
        *WEIGHTS,
        REGULARISATION,
        Option(
            "penalty_power",
            1.0,
            "How the penalty of a vector grows with the weight of all that it is fitted to.",
            most=2.0,
        ),
        Option(
            "confidence",
            0.0,
            "Weight of what was chosen, beside 1 for all else; 0: users · items / choices / 10.",
            most=1e9,
        ),
        Option(
            "num_sweeps", 10, "Times that users and items are solved in turn.", least=1, most=10_000
        ),
    ],
    slots=["trainer"],
    traits=["fitted"],
    usual={"trainer": "fit", "regularisation": 0.005},
)
class IALS(Baseline):
    """Recommends by the product of a user vector, solved from the history, and item vectors.

    Formula: x and v minimise Σ over all users and items of c·(r − x_u·v_i)² + Σ λ_u·|x_u|² +
    Σ λ_i·|v_i|², with r = 1 and c = 1 + confidence (times its weight, where there are any) for what
    was chosen, r = 0 and c = 1 for all else, and λ = regularisation·(Σ c)^penalty_power over all
    entries of that user or item. With a power of 1, and a confidence of 0, which stands for a tenth
    of users · items / choices, the same settings fit logs of any size and density.
    In turn each side is solved exactly, the other held:
    x_u = (VᵀV + confidence·Σ_i v_i v_iᵀ + λ_u·I)⁻¹ (1 + confidence)·Σ_i v_i over the items of u.
    F(x, y) = x·v_y, x solved from the history in the same way.

    By conjugate gradients, to the rounding of the numbers; in the basis of the eigenvectors of VᵀV
    they converge fast whatever the vectors, and a sweep over T choices of N users takes about
    O(T·D + (N + V)·D²). User vectors are not kept.

    Reference: Hu, Koren & Volinsky 2008; the penalties are those of Rendle et al. 2022.

    Use when: items are many and histories are sets. Avoid when: order matters (``SASRec``).

    >>> model = IALS(4, dimension=2)
    >>> model.fit(Sequences.from_lists([[0, 1]] * 3 + [[2, 3]] * 3))
    >>> model.head.topk(torch.tensor([[0]]), 1, exclude=torch.tensor([[0]])).ids.tolist()
    [[1]]
    """

    item_vectors: Tensor
    gram: Tensor
    strength: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        dimension: int = 64,
        regularisation: float = 0.005,
        penalty_power: float = 1.0,
        confidence: float = 0.0,
        num_sweeps: int = 10,
        seed: int = 0,
    ) -> None:
        num_classes = check_whole("num_classes", num_classes, 1, _MOST_ENTRIES)
        self.dimension = check_whole(
            "dimension", dimension, 1, max(1, min(4096, _MOST_ENTRIES // num_classes))
        )
        self.regularisation = check_positive("regularisation", regularisation)
        self.penalty_power = check_not_negative("penalty_power", penalty_power)
        self.confidence = check_not_negative("confidence", confidence)
        self.num_sweeps = check_whole("num_sweeps", num_sweeps, 1, 10_000)
        self.seed = seed
        super().__init__(num_classes)
        self.register_buffer("item_vectors", torch.zeros(num_classes, dimension))
        self.register_buffer("strength", torch.zeros((), dtype=torch.float64))
        self.register_buffer("gram", torch.zeros(dimension, dimension, dtype=torch.float64))

    def fit_sets(self, sets: Sequences, weights: Tensor | None = None) -> None:
        """Solve users and items in turn, from random item vectors."""
        sets = sets.weighed_by(weights)
        self.strength.fill_(self.confidence or _usual_confidence(sets, self.num_classes))
        users = transposed(sets, self.num_classes)
        generator = torch.Generator().manual_seed(self.seed)
        self.item_vectors.normal_(std=_INITIAL_DEVIATION, generator=generator)
        user_vectors = self.item_vectors.new_zeros(len(sets), self.dimension)
        for _ in range(self.num_sweeps):
            user_vectors = self._fully_solved(sets, self.item_vectors, user_vectors)
            self.item_vectors.copy_(self._fully_solved(users, user_vectors, self.item_vectors))
        self.gram.copy_(_gram(self.item_vectors))

    def user_vectors(self, sets: Tensor) -> Tensor:
        """Return the vector of each history [B, H] that repeats no item, [B, D]; -1 is no item."""
        there = sets >= 0
        items, offsets = sets[there], offsets_of(there.sum(1))
        # The vectors of these members alone: turning all of them would take longer than solving.
        members = Sequences.trusted(torch.arange(len(items)), offsets)
        guess = self.item_vectors.new_zeros(len(sets), self.dimension)
        return self._solved(members, self.item_vectors[items], guess, self.gram, self.num_classes)

    def table_answers(self) -> dict[str, str | float]:
        """Return which buffer answers, and what a user is solved with."""
        return {
            "rule": "solve",
            "table.vectors": "item_vectors",
            "confidence": float(self.strength),
            "regularisation": self.regularisation,
            "penalty_power": self.penalty_power,
        }

    def set_scores(self, sets: Tensor) -> Tensor:
        """Return the products with the vector of each history, [B, V]."""
        return self.user_vectors(sets) @ self.item_vectors.T

    def _fully_solved(self, sets: Sequences, vectors: Tensor, guess: Tensor) -> Tensor:
        return self._solved(sets, vectors, guess, _gram(vectors), len(vectors))

    def _solved(
        self, sets: Sequences, vectors: Tensor, guess: Tensor, gram: Tensor, others: int
    ) -> Tensor:
        """Return the vector of each set, given those of its members and a first guess, [N, D].

        ``gram`` is VᵀV of all ``others`` that might be members.
        """
        # In the basis of its eigenvectors VᵀV is a diagonal, which all systems share.
        values, basis = torch.linalg.eigh(gram.double())
        basis = basis.to(vectors.dtype)
        solved, strengths = (guess @ basis).contiguous(), self._strengths(sets)
        solve_rows(
            sets.offsets.numpy(),
            sets.values.numpy(),
            strengths.to(vectors.dtype).numpy(),
            (vectors @ basis).contiguous().numpy(),
            values.clamp(min=0).to(vectors.dtype).numpy(),
            self._penalties(sets, strengths, others).to(vectors.dtype).numpy(),
            solved.numpy(),
            _ROUNDINGS * torch.finfo(vectors.dtype).eps,
        )
        turned_back: Tensor = solved @ basis.T
        return turned_back

    def _strengths(self, sets: Sequences) -> Tensor:
        """Return the confidence of each member, times its weight."""
        if sets.weights is None:
            return self.strength.expand(len(sets.values))
        strengths: Tensor = self.strength * sets.weights
        return strengths

    def _penalties(self, sets: Sequences, strengths: Tensor, others: int) -> Tensor:
        """Return regularisation·(others + Σ strengths)^penalty_power of each set, [N]."""
        owners = torch.repeat_interleave(torch.arange(len(sets)), sets.lengths)
        total = torch.bincount(owners, strengths.double(), minlength=len(sets)) + others
        return self.regularisation * total**self.penalty_power


def _usual_confidence(sets: Sequences, num_classes: int) -> float:
    """Return the confidence with which all choices together weigh a tenth of all else."""
    users = int((sets.lengths > 0).sum())
    return _CHOSEN_SHARE * users * num_classes / max(1, len(sets.values))


def _gram(vectors: Tensor) -> Tensor:
    """Return VᵀV in float64, [D, D], by parts: vectors are not copied as a whole."""
    gram = torch.zeros(vectors.shape[1], vectors.shape[1], dtype=torch.float64)
    for part in torch.split(vectors, _VECTORS_AT_ONCE):
        wide = part.double()
        gram.addmm_(wide.T, wide)
    return gram
