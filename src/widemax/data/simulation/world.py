"""A catalogue and its users whose true P(y | user) is known exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from widemax.validation import (
    MAX_SAMPLES,
    check_ids,
    check_num_classes,
    check_tensor,
    check_whole,
)

MAX_ENTRIES = 2**29
"""Most float64 values one table or one answer of a world may hold (4 GB)."""

MAX_SHARPNESS = 1e6
MAX_EXPONENT = 100.0

# 64 MB a block: whole rows of P(y | user) for as many users as fit, at least one.
_ENTRIES_PER_BLOCK = 2**23
_NORMALIZATION_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedWorld:
    """A world in which every user's choice among the classes follows a known distribution.

    log P(y | u) = log_popularity(y) + user_vector(u) · item_vector(y) − log Z(u), a softmax
    (multinomial logit) choice model over Zipf's law: popularity(y) ∝ (y + 1)^−exponent, item
    vectors in random directions of norm 1 and user vectors in random directions of norm
    ``sharpness``. As all items have one norm, preferences average out over users, and the marginal
    P(y) stays close to the popularity. An answer costs O(V·D) per distinct user asked about, in
    blocks of 64 MB (or one row of V).

    >>> world = SimulatedWorld.create(num_classes=1000, num_users=20, seed=0)
    >>> users, targets = world.interactions(5000, generator=torch.Generator().manual_seed(1))
    >>> users.shape, round(world.log_prob(users[:1]).exp().sum().item(), 6)
    (torch.Size([5000]), 1.0)
    >>> round(world.kl(torch.arange(20), world.log_popularity.expand(20, -1)), 2)
    0.45
    """

    log_popularity: Tensor
    """Float64 [V]."""
    item_vectors: Tensor
    """Float64 [V, D]."""
    user_vectors: Tensor
    """Float64 [N, D]."""

    @classmethod
    def create(
        cls,
        *,
        num_classes: int,
        num_users: int,
        dimension: int = 16,
        exponent: float = 1.0,
        sharpness: float = 4.0,
        seed: int = 0,
    ) -> SimulatedWorld:
        """Make a world; the same arguments give the same bits."""
        check_num_classes(num_classes, limit=MAX_ENTRIES)
        check_whole("dimension", dimension, 1, MAX_ENTRIES // num_classes)
        check_whole("num_users", num_users, 1, MAX_ENTRIES // dimension)
        _check_between("exponent", exponent, MAX_EXPONENT)
        _check_between("sharpness", sharpness, MAX_SHARPNESS)
        generator = torch.Generator().manual_seed(check_whole("seed", seed, 0, 2**63 - 1))
        rank = torch.arange(1, num_classes + 1, dtype=torch.float64)
        return cls(
            log_popularity=torch.log_softmax(-exponent * rank.log(), dim=0),
            item_vectors=_random_directions(num_classes, dimension, generator),
            user_vectors=_random_directions(num_users, dimension, generator).mul_(sharpness),
        )

    @property
    def num_classes(self) -> int:
        """How many classes there are; class 0 is the most popular."""
        return self.item_vectors.shape[0]

    @property
    def num_users(self) -> int:
        """How many users there are."""
        return self.user_vectors.shape[0]

    def features(self, users: Tensor) -> Tensor:
        """Return what an encoder may see of ``users``: their vectors, float32 [B, D]."""
        return self.user_vectors[self._check_users(users)].float()

    def log_prob(self, users: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return log P(y | user), float64: of the given classes ([S] shared, or [B, S]), or of all.

        With ``ids`` no more than one block of [B, V] stands in memory at any time.
        """
        users = self._check_users(users)
        if ids is None:
            return self._log_prob_of_all(users)
        ids = check_ids("ids", ids, self.num_classes)
        if ids.dim() not in (1, 2) or (ids.dim() == 2 and len(ids) != len(users)):
            raise ValueError(
                f"ids must have shape [S] or [{len(users)}, S] like users, got {list(ids.shape)}"
            )
        ids = ids.expand(len(users), ids.shape[-1])
        return self._scores(users, ids) - self._log_normalizer(users)[:, None]

    def sample(self, users: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return one exact draw from P(y | user) for each of ``users``, int64 [B]."""
        users = self._check_users(users)
        uniform = torch.rand(users.shape, dtype=torch.float64, generator=generator)
        distinct, row_of_draw = torch.unique(users, return_inverse=True)
        draws_by_row = row_of_draw.argsort()
        ends = torch.bincount(row_of_draw, minlength=len(distinct)).cumsum(0).tolist()
        classes = torch.empty_like(users)
        done = 0
        for first, log_prob in self._blocks(distinct):
            end = ends[first + len(log_prob) - 1]
            draws = draws_by_row[done:end]
            cumulative = log_prob.exp_().cumsum_(dim=1)
            classes[draws] = _invert(cumulative, row_of_draw[draws] - first, uniform[draws])
            done = end
        return classes

    def interactions(
        self, num_interactions: int, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return uniformly drawn users and the class each one chose, two int64 [B]."""
        check_whole("num_interactions", num_interactions, 1, MAX_SAMPLES)
        users = torch.randint(self.num_users, (num_interactions,), generator=generator)
        return users, self.sample(users, generator=generator)

    def marginal(self) -> Tensor:
        """Return P(y), the mean of P(y | user) over all users, float64 [V]."""
        total = torch.zeros(self.num_classes, dtype=torch.float64)
        for _, log_prob in self._blocks(torch.arange(self.num_users)):
            total += log_prob.exp_().sum(dim=0)
        return total / self.num_users

    @torch.no_grad()
    def kl(self, users: Tensor, model_log_prob: Tensor | Callable[[Tensor], Tensor]) -> float:
        """Return the mean over ``users`` of KL(P ‖ model), in nats.

        ``model_log_prob`` holds the model's log-probabilities of all classes, [B, V], or is a
        function that returns them for some of the users; then [B, V] never stands whole.
        """
        users = self._check_users(users)
        if not len(users):
            raise ValueError("users must hold at least one user, got none")
        if isinstance(model_log_prob, Tensor):
            _check_shape(model_log_prob, (len(users), self.num_classes))
        total = 0.0
        for first, truth in self._blocks(users):
            rows = slice(first, first + len(truth))
            if isinstance(model_log_prob, Tensor):
                model = model_log_prob[rows]
            else:
                model = model_log_prob(users[rows])
                _check_shape(model, tuple(truth.shape))
            total += _kl(truth, _checked_normalized(model.double(), first))
        return total / len(users)

    def _check_users(self, users: Tensor) -> Tensor:
        if check_tensor("users", users).dim() != 1:
            raise ValueError(f"users must have shape [B], got {list(users.shape)}")
        return check_ids("users", users, self.num_users)

    def _log_prob_of_all(self, users: Tensor) -> Tensor:
        if len(users) * self.num_classes > MAX_ENTRIES:
            raise ValueError(
                f"users must number at most {MAX_ENTRIES // self.num_classes:,} for all of "
                f"{self.num_classes:,} classes, got {len(users):,}; pass ids, or fewer users"
            )
        result = torch.empty(len(users), self.num_classes, dtype=torch.float64)
        for first, log_prob in self._blocks(users):
            result[first : first + len(log_prob)] = log_prob
        return result

    def _score_blocks(self, users: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield log P(y | user) + log Z(user) of some users after the others, [U, V].

        Each block comes with the place of its first user, and is the caller's to overwrite.
        """
        size = max(1, _ENTRIES_PER_BLOCK // self.num_classes)
        for first in range(0, len(users), size):
            vectors = self.user_vectors[users[first : first + size]]
            yield first, torch.addmm(self.log_popularity, vectors, self.item_vectors.T)

    def _blocks(self, users: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield log P(y | user) in the same way."""
        for first, scores in self._score_blocks(users):
            yield first, scores.sub_(scores.logsumexp(dim=1, keepdim=True))

    def _log_normalizer(self, users: Tensor) -> Tensor:
        """Return log Z(user), [B]."""
        distinct, place = torch.unique(users, return_inverse=True)
        result = torch.empty(len(distinct), dtype=torch.float64)
        for first, scores in self._score_blocks(distinct):
            result[first : first + len(scores)] = scores.logsumexp(dim=1)
        return result[place]

    def _scores(self, users: Tensor, ids: Tensor) -> Tensor:
        """Return log P(y | user) + log Z(user) of the classes ``ids``, [B, S]."""
        pairs = max(1, _ENTRIES_PER_BLOCK // self.item_vectors.shape[1])
        user, item = users[:, None].expand(ids.shape).flatten(), ids.flatten()
        result = self.log_popularity[item]
        for first in range(0, len(item), pairs):
            some = slice(first, first + pairs)
            result[some] += torch.linalg.vecdot(
                self.user_vectors[user[some]], self.item_vectors[item[some]]
            )
        return result.view(ids.shape)


def _random_directions(rows: int, dimension: int, generator: torch.Generator) -> Tensor:
    """Return vectors of norm 1, uniform on the sphere."""
    vectors = torch.randn(rows, dimension, dtype=torch.float64, generator=generator)
    return vectors.div_(vectors.norm(dim=1, keepdim=True))


def _invert(cumulative: Tensor, rows: Tensor, uniform: Tensor) -> Tensor:
    """Return the first class of each draw's row whose cumulative weight exceeds the draw.

    ``torch.searchsorted`` wants as many draws for every row; users differ, so all draws are
    halved side by side.
    """
    num_classes = cumulative.shape[1]
    wanted = uniform * cumulative[rows, -1]
    low = torch.zeros_like(rows)
    high = torch.full_like(rows, num_classes - 1)
    for _ in range((num_classes - 1).bit_length()):
        middle = (low + high) // 2
        reached = cumulative[rows, middle] > wanted
        high = torch.where(reached, middle, high)
        low = torch.where(reached, low, middle + 1)
    # Rounding can lift a draw just below 1 to the whole weight, beyond the last class.
    return low.clamp_(max=num_classes - 1)


def _kl(truth: Tensor, model: Tensor) -> float:
    """Return the sum over the rows of KL(truth ‖ model)."""
    probability = truth.exp()
    # A class that never happens costs nothing, even if the model rules it out: 0 · inf = 0.
    terms = torch.where(probability > 0, probability * (truth - model), 0.0)
    return float(terms.sum())


def _checked_normalized(model: Tensor, first: int) -> Tensor:
    total = model.logsumexp(dim=1)
    wrong = ~(total.abs() <= _NORMALIZATION_TOLERANCE)  # so that NaN is wrong
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"model_log_prob must be normalised: the probabilities of row {first + row:,} "
            f"add up to {math.exp(min(float(total[row]), 700.0)):.6g}, not to 1"
        )
    return model


def _check_shape(model: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(model.shape) != shape:
        raise ValueError(f"model_log_prob must have shape {list(shape)}, got {list(model.shape)}")


def _check_between(name: str, value: float, limit: float) -> None:
    if not 0 <= value <= limit:
        raise ValueError(f"{name} must be between 0 and {limit:g}, got {value!r}")
