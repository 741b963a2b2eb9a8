"""Where the scores of an objective start: what it would learn if it knew no context."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from widemax.objectives.base import Objective

_ALMOST_CERTAIN = 1 - 2.0**-20


class Prior(NamedTuple):
    """What is known of classes before training, float64 [V] each.

    >>> log_target = torch.tensor([0.75, 0.25], dtype=torch.float64).log()
    >>> Prior(log_target, log_target, num_samples=1).log_odds.exp().round(decimals=4).tolist()
    [3.0, 0.3333]
    """

    log_target: Tensor
    """log π(y), π the share of the targets that are y."""
    log_expected_count: Tensor
    """log Q(y), Q the expected count of y among the candidates."""
    num_samples: int
    """How many candidates there are."""

    @property
    def log_odds(self) -> Tensor:
        """log π(y) − log(1 − π(y))."""
        prob = self.log_target.exp().clamp(max=_ALMOST_CERTAIN)
        return self.log_target - torch.log1p(-prob)


class InitialScores(Protocol):
    """The constant score of each class at which an objective is smallest, [V]."""

    def __call__(self, prior: Prior) -> Tensor:
        """Return F(y) that does not depend on the context."""
        ...


_F = TypeVar("_F", bound=Callable[..., Tensor])


def starts_at(initial_scores: Callable[..., Tensor]) -> Callable[[_F], _F]:
    """Return a decorator that says where the scores of an objective start.

    ``initial_scores`` takes a ``Prior`` and the options of the objective.
    """

    def declare(objective: _F) -> _F:
        vars(objective)["initial_scores"] = initial_scores
        return objective

    return declare


def find_initial_scores(objective: Objective) -> InitialScores | None:
    """Return where an objective starts with the options bound to it; None: where it likes.

    A softmax is the same for all scores that differ by a constant, so that it can start at 0. A
    logistic loss is not: at 0 every candidate is taken for a target.

    >>> import widemax as wm
    >>> find_initial_scores(wm.sampled_softmax) is None
    True
    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    >>> find_initial_scores(wm.nce)(Prior(half, half, num_samples=1)).exp().tolist()
    [0.5, 0.5]
    """
    if isinstance(objective, partial):
        inner = find_initial_scores(objective.func)
        return None if inner is None else partial(inner, **objective.keywords)
    found: InitialScores | None = getattr(objective, "initial_scores", None)
    return found
