"""What every sampler is, and the drawing machinery that the independent proposals share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from widemax.candidates import Candidates
from widemax.declarations import Option
from widemax.devices import by_kernels
from widemax.kernels.sampling import distinct
from widemax.sampling.traced import let_graphs_draw, traced_draw
from widemax.validation import (
    ABSENT,
    MAX_CLASSES,
    MAX_DISTORTION,
    check_num_classes,
    check_num_samples,
    check_targets,
)

_LEAST_TRIES_BEFORE_GIVING_UP = 2**22
_TRIES_PER_SAMPLE_BEFORE_GIVING_UP = 128


NUM_SAMPLES = Option(
    "num_samples",
    1024,
    "Classes drawn for each batch; if distinct, at most half of all classes.",
    least=1,
    most=2**28,
)
UNIQUE = Option("unique", True, "Whether the drawn classes are distinct.")
PER_EXAMPLE = Option("per_example", False, "Whether each example draws its own classes.")
DISTORTION = Option(
    "distortion",
    0.75,
    "Classes are drawn by their counts to this power; below 0, rare ones more often.",
    least=-float(MAX_DISTORTION),
    most=float(MAX_DISTORTION),
)
EXTRA_COUNT = Option(
    "extra_count", 0.0, "Added to every count, so that classes never seen are drawn too.", most=1e9
)
DRAWN = (NUM_SAMPLES, UNIQUE, PER_EXAMPLE)
"""The options of samplers whose draws are independent."""

DRAWS = ("draws", "mixes")
"""Their traits."""


class KeepsPrecision(nn.Module):
    """A module whose buffers move between devices but are never rounded.

    ``model.half()`` and ``model.to(torch.bfloat16)`` are meant for weights. Applied to the
    probabilities of a proposal they would silently distort log Q.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, recurse)  # type: ignore[no-any-return, no-untyped-call]


class Sampler(KeepsPrecision, ABC):
    """A proposal Q(y | x): which classes compete with the targets, and how likely each was.

    Formula: ``log_prob(y)`` = log p(y), the probability of y in one draw;
    ``sample`` carries log Q(y), the expected count of y among all candidates.

    Shapes: targets [B] or [B, T] (-1 marks an absent positive in [B, T]) in, ``Candidates`` out.

    A sampler never drops hits (candidates that are targets): the objective decides. State that
    follows the data is kept in buffers, so it is part of ``state_dict``, and changes only in
    training mode. Check a sampler of your own with ``widemax.check_sampler``; where the draws are
    independent derive from ``DrawnSampler``, which needs two short methods.
    """

    num_classes: int

    is_probability_sample: bool = True
    """Whether the candidates are drawn from p; False for hard negatives, which have no log Q."""

    unique: bool = False
    """Whether the candidates are distinct draws."""

    per_example: bool = False
    """Whether each row has candidates of its own, [B, S]."""

    from_batch: bool = False
    """Whether targets of the batch are candidates: those of one user then should not compete."""

    def __init__(self, num_classes: int, *, limit: int = MAX_CLASSES) -> None:
        super().__init__()
        self.num_classes = check_num_classes(num_classes, limit=limit)

    @abstractmethod
    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Return candidates for a batch; ``num_samples=None`` asks for all the sampler has."""

    @abstractmethod
    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y) of one draw, like ``ids`` (float64; -inf where y is never drawn)."""

    def available(self, targets: Tensor) -> int | None:
        """Return how many candidates there are for these targets; None: any number."""
        return None

    @property
    def max_samples(self) -> int | None:
        """The most candidates that it is wise to ask for; None: any number."""
        return None

    def update(self, targets: Tensor) -> None:
        """Learn from the targets of a batch; ``sample`` calls it last, in training mode only."""
        return


class DrawnSampler(Sampler):
    """A sampler whose draws are independent: it needs only ``draw`` and ``log_prob``.

    Formula: with replacement log Q(y) = log(num_samples · p(y)); with ``unique=True`` ids are
    drawn until num_samples distinct ones are found, and with T tries
    log Q(y) = log(−expm1(T · log1p(−p(y)))), or log(num_samples · p(y)) where none was a repeat.

    Shapes: candidates are [S], or [B, S] with ``per_example=True``.

    Cost: that of ``draw``; unique draws read each of the T tries once more.

    Reference: TensorFlow's candidate sampling (expected counts of unique draws).

    Use when: a proposal of your own draws independently. Avoid when: the candidates come from the
    batch or from a list.

    >>> import torch
    >>> import widemax as wm
    >>> class Coin(wm.sampling.DrawnSampler):
    ...     def draw(self, shape, *, device=None, generator=None):
    ...         return torch.randint(2, shape, device=device, generator=generator)
    ...     def log_prob(self, ids):
    ...         return torch.full(ids.shape, 0.5, dtype=torch.float64).log()
    >>> Coin(2).sample(4, torch.tensor([0])).target_log_expected_count.exp().tolist()
    [2.0]
    """

    traced: bool = False
    """Whether ``log_prob`` is torch's own operations on ids, which can be part of a graph."""

    def __init__(
        self,
        num_classes: int,
        *,
        unique: bool = False,
        per_example: bool = False,
        limit: int = MAX_CLASSES,
    ) -> None:
        super().__init__(num_classes, limit=limit)
        self.unique = unique
        self.per_example = per_example
        let_graphs_draw(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of a copy, which draws by itself."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        let_graphs_draw(self)

    @abstractmethod
    def draw(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return independent draws, int64 of the given shape."""

    @property
    def num_drawable(self) -> int:
        """How many classes have a probability above 0."""
        return self.num_classes

    @property
    def max_samples(self) -> int | None:
        """Half of the classes where draws are distinct: nearly all would take for ever."""
        return max(1, self.num_drawable // 2) if self.unique else None

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Draw ``num_samples`` candidates, shared by the batch or for each example."""
        targets = check_targets(targets, self.num_classes)
        rows = targets.shape[0] if self.per_example else 1
        num_samples = check_num_samples(num_samples, rows=rows)
        shape = (rows, num_samples) if self.per_example else (num_samples,)
        tries = None
        if torch.compiler.is_compiling():
            ids, found = traced_draw(id(self), rows, num_samples, targets)
            ids, tries = ids.view(shape), found.view(*shape[:-1], 1) if self.unique else None
        elif self.unique:
            ids, tries = self.draw_distinct(shape, device=targets.device, generator=generator)
        else:
            ids = self.draw(shape, device=targets.device, generator=generator)
        log_count, target_log_count = self._log_counts(ids, targets, tries, num_samples)
        if self.training:
            self.update(targets)
        return Candidates(
            ids=ids,
            log_expected_count=log_count,
            target_log_expected_count=absent_as_zero(target_log_count, targets),
        )

    def _log_counts(
        self, ids: Tensor, targets: Tensor, tries: Tensor | None, num_samples: int
    ) -> tuple[Tensor, Tensor]:
        """Return the log expected counts of candidates and targets."""
        known = targets if targets.dim() == 1 else targets.clamp(min=0)
        if self.per_example:  # the probability of an id may depend on its row
            target_tries = tries if tries is None or targets.dim() == 2 else tries[:, 0]
            return (
                log_expected_count(self.log_prob(ids), num_samples, tries),
                log_expected_count(self.log_prob(known), num_samples, target_tries),
            )
        # In one call, because both are short.
        log_prob = self.log_prob(torch.cat([ids, known.flatten()]))
        log_count = log_expected_count(log_prob, num_samples, tries)
        return log_count[: len(ids)], log_count[len(ids) :].view(known.shape)

    def draw_distinct(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draw until each row, the last dimension of ``shape``, is full of distinct ids.

        Returns the ids, in drawing order, and the number of tries, int64 [..., 1].
        """
        num_samples, rows = shape[-1], math.prod(shape[:-1])
        if num_samples > self.num_drawable:
            raise ValueError(
                f"num_samples = {num_samples:,} distinct ids can never be drawn (unique=True): "
                f"only {self.num_drawable:,} of {self.num_classes:,} classes have a probability "
                "above 0"
            )
        # Shared by the rows: the tries of a large batch with per_example=True stay bounded too.
        limit = max(
            _LEAST_TRIES_BEFORE_GIVING_UP // max(rows, 1),
            _TRIES_PER_SAMPLE_BEFORE_GIVING_UP * num_samples,
        )
        # Twice as many as needed: one round is then enough for most proposals (Zipf's law too).
        drawn = self.draw((rows, 2 * num_samples), device=device, generator=generator)
        ids, tries, found = first_distinct(drawn, num_samples)
        missing = rows > 0 and int(found.min()) < num_samples
        while missing and drawn.shape[1] < limit:
            more = self.draw((rows, drawn.shape[1]), device=device, generator=generator)
            drawn = torch.cat([drawn, more], dim=1)
            ids, tries, found = first_distinct(drawn, num_samples)
            missing = rows > 0 and int(found.min()) < num_samples
        if not missing:
            return ids.view(shape), tries.view(*shape[:-1], 1)
        raise ValueError(
            f"num_samples = {num_samples:,} distinct ids were not found in {drawn.shape[1]:,} "
            f"tries (unique=True): the proposal is too concentrated; ask for at most "
            f"{int(found.min()):,}"
        )


def first_distinct(drawn: Tensor, num_samples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first distinct ids [R, S] of draws [R, T], the tries [R] and how many found [R].

    A row with fewer than S distinct ids is undefined beyond those found.
    """
    if by_kernels(drawn):
        ids, tries, found = distinct.first_distinct(drawn.numpy(), num_samples)
        return torch.from_numpy(ids), torch.from_numpy(tries), torch.from_numpy(found)
    return first_distinct_by_sorting(drawn, num_samples)


def first_distinct_by_sorting(drawn: Tensor, num_samples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what ``first_distinct`` does, on any device."""
    ordered, order = drawn.sort(dim=1, stable=True)
    new_in_order = torch.ones_like(ordered, dtype=torch.bool)
    new_in_order[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    new = torch.zeros_like(new_in_order).scatter_(1, order, new_in_order)
    nth = new.cumsum(1)
    # Column S takes what is not kept: repeats, and ids beyond the first S distinct ones.
    place = torch.where(new, (nth - 1).clamp(max=num_samples), num_samples)
    ids = drawn.new_full((len(drawn), num_samples + 1), ABSENT).scatter_(1, place, drawn)
    tries = ((nth < num_samples).sum(1) + 1).clamp(max=drawn.shape[1])
    return ids[:, :num_samples], tries, nth[:, -1].clamp(max=num_samples)


def log_expected_count(log_prob: Tensor, num_samples: int, tries: Tensor | None) -> Tensor:
    """Return log(num_samples · p), or log(1 − (1 − p)^tries) where the draws are distinct.

    Where no draw was a repeat, the distinct draws are ordinary ones and the count is
    num_samples · p, at most 1: nearer to the truth of such a call, and what TensorFlow reports.
    """
    if tries is None:
        return log_prob + math.log(num_samples)
    repeated = tries != num_samples
    one = tries.numel() == 1 and by_kernels(tries)
    if one and bool(repeated):
        return _log_rejecting(log_prob, tries)
    without_repeat = (log_prob + math.log(num_samples)).clamp(max=0.0)
    if one:
        return without_repeat
    return torch.where(repeated, _log_rejecting(log_prob, tries), without_repeat)


def log_expected_count_of_one(log_prob: float, num_samples: int, tries: int | None) -> float:
    """Return what ``log_expected_count`` does, of one probability: no operation of torch's is run.

    >>> one = log_expected_count(torch.tensor([-2.0]).double(), 5, torch.tensor([7]))
    >>> abs(log_expected_count_of_one(-2.0, 5, 7) - one.item()) < 1e-15
    True
    """
    if tries is None:
        return log_prob + math.log(num_samples)
    if tries == num_samples:
        return min(0.0, log_prob + math.log(num_samples))
    if log_prob == 0:
        return 0.0
    return math.log(-math.expm1(math.log1p(-math.exp(log_prob)) * tries))


def expected_tries(log_prob: Tensor, num_samples: int) -> Tensor:
    """Return about how many draws it takes to find distinct ids, float64 [1].

    T with Σ_y 1 − (1 − p(y))^T = num_samples, for log p of all classes, [V].

    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    >>> round(expected_tries(half, 1).item(), 4)
    1.0
    """
    low, high = torch.zeros(1, dtype=torch.float64), torch.full((1,), 2.0**60, dtype=torch.float64)
    low, high = low.to(log_prob.device), high.to(log_prob.device)
    log_missed = torch.log1p(-log_prob.exp())
    while bool(high - low > 1e-6 * high):
        # Of numbers so far apart the middle is that of their logarithms.
        middle = ((low + 1) * (high + 1)).sqrt() - 1
        too_few = -torch.expm1(log_missed * middle).sum() < num_samples
        low, high = torch.where(too_few, middle, low), torch.where(too_few, high, middle)
    return high


def _log_rejecting(log_prob: Tensor, tries: Tensor) -> Tensor:
    return torch.log1p(log_prob.exp().neg_()).mul_(tries).expm1_().neg_().log_()


def absent_as_zero(log_count: Tensor, targets: Tensor) -> Tensor:
    """Return ``log_count`` with 0 where ``targets`` marks an absent positive."""
    # Targets [B] were checked to have none.
    return log_count if targets.dim() == 1 else log_count.masked_fill(targets == ABSENT, 0.0)


def with_log_count_zero(ids: Tensor, targets: Tensor) -> Candidates:
    """Return candidates with log Q = 0: each is there exactly once, or is not corrected for."""
    return Candidates(
        ids=ids,
        log_expected_count=torch.zeros(ids.shape, dtype=torch.float64, device=ids.device),
        target_log_expected_count=torch.zeros(
            targets.shape, dtype=torch.float64, device=targets.device
        ),
    )


def uniform_log_prob(ids: Tensor, num_classes: int) -> Tensor:
    """Return −log V for each id, float64."""
    return torch.full(ids.shape, -math.log(num_classes), dtype=torch.float64, device=ids.device)
