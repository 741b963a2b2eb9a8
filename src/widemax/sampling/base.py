"""What every sampler is, and the drawing machinery that the independent proposals share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from widemax.candidates import Candidates
from widemax.validation import (
    ABSENT,
    MAX_CLASSES,
    check_num_classes,
    check_num_samples,
    check_targets,
)

_LEAST_TRIES_BEFORE_GIVING_UP = 2**22
_TRIES_PER_SAMPLE_BEFORE_GIVING_UP = 128


class Sampler(nn.Module, ABC):
    """A proposal Q(y | x): which classes compete with the targets, and how likely each was.

    Formula: ``log_prob(y)`` = log p(y), the probability of y in one draw;
    ``sample`` carries log Q(y), the expected count of y among all candidates.

    Shapes: targets [B] or [B, T] (-1 marks an absent positive in [B, T]) in, ``Candidates`` out.

    Cost: see each sampler.

    Reference: TensorFlow's candidate sampling; METHODS of the field differ only in p.

    Use when: writing a sampler of your own; hold it to ``widemax.check_sampler``. Avoid when: the
    draws are independent (derive from ``DrawnSampler``, which needs two short methods).

    A sampler never drops hits (candidates that are targets): the objective decides. State that
    follows the data is kept in buffers, so it is part of ``state_dict``, and changes only in
    training mode.

    >>> import widemax as wm
    >>> issubclass(wm.UniformSampler, wm.Sampler)
    True
    """

    num_classes: int

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


class DrawnSampler(Sampler):
    """A sampler whose draws are independent: it needs only ``draw`` and ``log_prob``.

    Formula: with replacement log Q(y) = log(num_samples · p(y)); with ``unique=True`` ids are
    drawn until num_samples distinct ones are found, and with T tries
    log Q(y) = log(−expm1(T · log1p(−p(y)))).

    Shapes: candidates are [S], or [B, S] with ``per_example=True``.

    Cost: that of ``draw``; unique draws add a sort, O(T log T).

    Reference: TensorFlow's candidate sampling (expected counts of unique draws).

    Use when: a proposal of your own draws independently. Avoid when: the candidates come from the
    batch or from a list.

    >>> import torch
    >>> import widemax as wm
    >>> class Coin(wm.DrawnSampler):
    ...     def draw(self, shape, *, device=None, generator=None):
    ...         return torch.randint(2, shape, device=device, generator=generator)
    ...     def log_prob(self, ids):
    ...         return torch.full(ids.shape, 0.5, dtype=torch.float64).log()
    >>> Coin(2).sample(4, torch.tensor([0])).target_log_expected_count.exp().tolist()
    [2.0]
    """

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
        if self.unique:
            ids, tries = self._draw_distinct(shape, targets.device, generator)
            target_tries = tries if targets.dim() == 2 or not self.per_example else tries[:, 0]
            log_count = log_inclusion(self.log_prob(ids), tries)
            target_log_count = log_inclusion(self.target_log_prob(targets), target_tries)
        else:
            ids = self.draw(shape, device=targets.device, generator=generator)
            log_count = self.log_prob(ids) + math.log(num_samples)
            target_log_count = self.target_log_prob(targets) + math.log(num_samples)
        return Candidates(
            ids=ids, log_expected_count=log_count, target_log_expected_count=target_log_count
        )

    def target_log_prob(self, targets: Tensor) -> Tensor:
        """Return ``log_prob`` of the targets, and 0 where a positive is absent."""
        return absent_as_zero(self.log_prob(targets.clamp(min=0)), targets)

    def _draw_distinct(
        self, shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        num_samples = shape[-1]
        if num_samples > self.num_drawable:
            raise ValueError(
                f"num_samples = {num_samples:,} distinct ids can never be drawn (unique=True): "
                f"only {self.num_drawable:,} of {self.num_classes:,} classes have a probability "
                "above 0"
            )
        limit = max(
            _LEAST_TRIES_BEFORE_GIVING_UP, _TRIES_PER_SAMPLE_BEFORE_GIVING_UP * num_samples
        )
        ids = torch.empty((*shape[:-1], 0), dtype=torch.int64, device=device)
        more = num_samples + num_samples // 4 + 4
        while ids.shape[-1] < limit:
            drawn = self.draw((*shape[:-1], more), device=device, generator=generator)
            ids = torch.cat([ids, drawn], dim=-1)
            new = first_appearance(ids)
            distinct = new.cumsum(-1)
            if bool((distinct[..., -1] >= num_samples).all()):
                return _first_distinct(ids, new, distinct, num_samples)
            more = ids.shape[-1]
        raise ValueError(
            f"num_samples = {num_samples:,} distinct ids were not found in {ids.shape[-1]:,} tries "
            f"(unique=True): the proposal is too concentrated; ask for at most "
            f"{int(distinct[..., -1].min()):,}"
        )


def first_appearance(ids: Tensor) -> Tensor:
    """Return a mask, like ``ids``, of the entries that no earlier entry of their row equals."""
    ordered, order = ids.sort(dim=-1, stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    return torch.zeros_like(new).scatter_(-1, order, new)


def _first_distinct(
    ids: Tensor, new: Tensor, distinct: Tensor, num_samples: int
) -> tuple[Tensor, Tensor]:
    """Return the first ``num_samples`` distinct ids in drawing order and the tries [..., 1]."""
    kept = new & (distinct <= num_samples)
    shape = (*ids.shape[:-1], num_samples)
    tries = (distinct < num_samples).sum(-1, keepdim=True) + 1
    return ids[kept].view(shape), tries


def log_inclusion(log_prob: Tensor, tries: Tensor) -> Tensor:
    """Return log(1 − (1 − p)^tries), the expected count of a class among distinct draws."""
    return torch.log(-torch.expm1(tries * torch.log1p(-log_prob.exp())))


def absent_as_zero(log_prob: Tensor, targets: Tensor) -> Tensor:
    """Return ``log_prob`` with 0 where ``targets`` marks an absent positive."""
    return log_prob.masked_fill(targets == ABSENT, 0.0)
