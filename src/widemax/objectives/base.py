"""The one signature of every objective, and the few steps all of them share."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from widemax.candidates import InnerProduct
from widemax.declarations import Need, Option
from widemax.devices import by_kernels, demand

REMOVED = float("-inf")
"""The score of a candidate that does not compete: neutral in every loss of the table."""


LABEL_SMOOTHING = Option(
    "label_smoothing", 0.0, "Fraction of the label spread over all classes.", most=0.999
)
OVER_ALL = Need("sampler", names=("all",), why="is over every class")


class Objective(Protocol):
    """A function from scores to one loss per example: a row of the candidate-sampling table.

    Formula: G(x, y) = F(x, y) or F(x, y) − log Q(y), then a logistic or a softmax loss of G.

    Shapes: ``target_scores`` [B] or [B, T], ``candidate_scores`` [B, S],
    ``target_log_expected_count`` like the target scores, ``log_expected_count`` [S] or [B, S],
    ``hits`` bool [B, S] (or None: no candidate is a target), ``target_mask`` bool [B, T] (or
    None: every positive is present) → losses [B], at least float32.

    A candidate score of −inf does not compete, whatever the objective. A row without a positive
    has loss 0. Options of one objective are keyword arguments with defaults, bound with
    ``functools.partial``. Check an objective of your own with ``widemax.check_objective``.

    >>> import torch
    >>> import widemax as wm
    >>> objective: wm.Objective = wm.negative_sampling
    >>> loss = objective(torch.zeros(1), torch.zeros(1, 3), target_log_expected_count=None,
    ...                  log_expected_count=None, hits=None)
    >>> round(loss.item(), 4)  # 4 log 2
    2.7726
    """

    def __call__(
        self,
        target_scores: Tensor,
        candidate_scores: Tensor,
        *,
        target_log_expected_count: Tensor | None,
        log_expected_count: Tensor | None,
        hits: Tensor | None,
        target_mask: Tensor | None = None,
    ) -> Tensor:
        """Return one loss per row, [B]."""
        ...


class FromFactors(Protocol):
    """An objective whose scores come as the factors they are the products of."""

    def __call__(
        self,
        product: InnerProduct,
        *,
        target_log_expected_count: Tensor | None,
        log_expected_count: Tensor | None,
        hits: Tensor | None,
    ) -> Tensor:
        """Return one loss per row, [B], as the objective does from the product's scores."""
        ...


class FactoredObjective(Objective, Protocol):
    """An objective that can also start from factors, for one target a row and shared candidates.

    It saves the gradient of the scores, [B, S]. Both ways take the same options.
    """

    from_factors: FromFactors


_F = TypeVar("_F", bound=Callable[..., Tensor])


def factored(from_factors: FromFactors) -> Callable[[_F], _F]:
    """Return a decorator that makes an objective function a ``FactoredObjective``."""

    def declare(objective: _F) -> _F:
        vars(objective)["from_factors"] = from_factors
        return objective

    return declare


def find_from_factors(objective: Objective) -> FromFactors | None:
    """Return ``from_factors`` of an objective with the options bound to it; None: it has none.

    Options are bound with ``functools.partial``, which hides the attributes of what it wraps: this
    is the one place that looks through it.

    >>> import widemax as wm
    >>> product = InnerProduct(queries=torch.ones(1, 2), vectors=torch.ones(4, 2), biases=None)
    >>> from_factors = find_from_factors(partial(wm.info_nce, temperature=0.5))
    >>> loss = from_factors(product, target_log_expected_count=None, log_expected_count=None,
    ...                     hits=None)
    >>> round(loss.item(), 4)  # log 4
    1.3863
    """
    if isinstance(objective, partial):
        inner = None if objective.args else find_from_factors(objective.func)
        return None if inner is None else partial(inner, **objective.keywords)
    # Not isinstance of the protocol: 30 µs at every step of training.
    from_factors: FromFactors | None = getattr(objective, "from_factors", None)
    return from_factors


def keeps_hits(objective: _F) -> _F:
    """Mark an objective function as one for which a target among the draws is like any draw."""
    vars(objective)["keeps_hits"] = True
    return objective


def is_keeping_hits(objective: Objective) -> bool:
    """Return whether an objective, with or without options bound to it, keeps the hits.

    >>> import widemax as wm
    >>> is_keeping_hits(partial(wm.nce, normalize_positives=True)), is_keeping_hits(wm.info_nce)
    (True, False)
    """
    if isinstance(objective, partial):
        return is_keeping_hits(objective.func)
    return bool(getattr(objective, "keeps_hits", False))


class Positives(NamedTuple):
    """The positives of a batch."""

    scores: Tensor
    """Their scores, [B, T]."""
    share: Tensor
    """1/T for each one that is present, else 0, [B, T]."""
    mask: Tensor | None
    """Which positives are present, bool [B, T]; None: all of them."""

    # Not a property: torch.compile of torch 2.10 does not trace one of a NamedTuple.
    def present(self) -> Tensor:
        """Return which positives are present, bool [B, T]."""
        return self.share > 0 if self.mask is None else self.mask

    def without_absent(self, values: Tensor, fill: float) -> Tensor:
        """Return values like the scores, with ``fill`` where there is no positive."""
        return values if self.mask is None else values.masked_fill(~self.mask, fill)


def at_least_float32(name: str, scores: Tensor) -> Tensor:
    """Return half-precision scores as float32: sums of exponentials need the range."""
    if not scores.is_floating_point():
        raise ValueError(f"{name} must be floating point, got dtype {scores.dtype}")
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def read_positives(target_scores: Tensor, target_mask: Tensor | None) -> Positives:
    """Return the positives as [B, T] with the share 1/T of each."""
    if target_scores.dim() not in (1, 2) or target_scores.shape[1:].numel() == 0:
        raise ValueError(
            "target_scores must have shape [B], or [B, T] with T at least 1, got "
            f"{list(target_scores.shape)}"
        )
    scores = at_least_float32("target_scores", target_scores)
    scores = scores if scores.dim() == 2 else scores[:, None]
    if target_mask is None:
        share = scores.new_full((), 1 / scores.shape[1]).expand_as(scores)
        return Positives(scores, share, None)
    if target_mask.dtype != torch.bool:
        raise ValueError(f"target_mask must be bool, got dtype {target_mask.dtype}")
    mask = like_positives("target_mask", target_mask, scores)
    share = mask.to(scores.dtype) / mask.sum(-1, keepdim=True).clamp(min=1)
    return Positives(scores.masked_fill(~mask, 0.0), share, mask)


def like_positives(name: str, values: Tensor, scores: Tensor) -> Tensor:
    """Return values that have the shape of the target scores, [B] or [B, T], as [B, T]."""
    if values.numel() != scores.numel() or values.shape[:1] != scores.shape[:1]:
        raise ValueError(
            f"{name} must have the shape of target_scores, {list(scores.shape)}, got "
            f"{list(values.shape)}"
        )
    return values.reshape(scores.shape)


def read_negatives(candidate_scores: Tensor, rows: int, hits: Tensor | None = None) -> Tensor:
    """Return the candidates' scores [B, S] with every hit removed."""
    if candidate_scores.dim() != 2 or candidate_scores.shape[0] != rows:
        raise ValueError(
            f"candidate_scores must have shape [{rows}, S], got {list(candidate_scores.shape)}"
        )
    scores = at_least_float32("candidate_scores", candidate_scores)
    check_hits(hits, scores.shape)
    return scores if hits is None else scores.masked_fill(hits, REMOVED)


def check_hits(hits: Tensor | None, shape: tuple[int, ...]) -> None:
    """Refuse hits that are not bool of the scores' shape."""
    if hits is not None and (hits.shape != shape or hits.dtype != torch.bool):
        raise ValueError(
            f"hits must be bool of shape {list(shape)}, got {hits.dtype} of shape "
            f"{list(hits.shape)}"
        )


@torch.no_grad()
def largest(*groups: Tensor) -> Tensor:
    """Return the largest score of each row that competes, [B, 1]; 0 where none does."""
    top = groups[0].new_full((groups[0].shape[0], 1), REMOVED)
    for scores in groups:
        if scores.shape[1]:
            top = torch.maximum(top, scores.amax(-1, keepdim=True))
    return top.masked_fill(torch.isneginf(top), 0.0)


def correct_positives(positives: Positives, target_log_expected_count: Tensor) -> Positives:
    """Return the positives with G = F − log Q; a target that is never drawn is an error."""
    log_count = positives.without_absent(
        like_positives("target_log_expected_count", target_log_expected_count, positives.scores),
        0.0,
    )
    if not by_kernels(log_count):
        demand(log_count.isfinite().all(), "target_log_expected_count must be finite")
    elif not all_finite(log_count):
        raise ValueError(
            "target_log_expected_count must be finite, got "
            f"{log_count[~log_count.isfinite()][0].item()}: -inf is a target with proposal "
            "probability 0 (a reserved id, or a class without counts); give it a probability, or "
            "use an objective without a correction of the target (corrected_log_q, "
            "negative_sampling, importance_sampling, info_nce)"
        )
    return positives._replace(scores=positives.scores - log_count.to(positives.scores.dtype))


def correct_negatives(negatives: Tensor, log_expected_count: Tensor) -> Tensor:
    """Return G = F − log Q of the candidates; a removed one stays removed, whatever its Q."""
    return negatives - check_log_count(log_expected_count, negatives).to(negatives.dtype)


def check_log_count(log_count: Tensor, scores: Tensor, hits: Tensor | None = None) -> Tensor:
    """Return log Q like the candidates, [S] or [B, S], with 0 where it is −inf and removed.

    A class of proposal probability 0 is never drawn: one that competes is an error.
    """
    check_count_shape(log_count, scores.shape)
    if not by_kernels(log_count):
        unknown = ~log_count.isfinite()
        fine = ~(unknown & _competing(scores, hits)).any()
        demand(fine, "log_expected_count must be finite for every candidate that competes")
        return log_count.masked_fill(unknown, 0.0)
    if all_finite(log_count):
        return log_count
    unknown = ~log_count.isfinite()
    if bool((unknown & _competing(scores, hits)).any()):
        raise ValueError(
            "log_expected_count must be finite for every candidate that competes, got "
            f"{log_count[unknown][0].item()}: a class of proposal probability 0 is never drawn"
        )
    return log_count.masked_fill(unknown, 0.0)


def _competing(scores: Tensor, hits: Tensor | None) -> Tensor:
    """Return which candidates are not removed, bool [B, S]."""
    removed = torch.isneginf(scores)
    return ~(removed if hits is None else removed | hits)


def check_count_shape(log_count: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse log Q that is not [S], [B, S] or one value for all candidates."""
    # [B] or [B, 1] would be read as something else.
    if log_count.shape not in (shape, shape[1:], ()):
        raise ValueError(
            f"log_expected_count must have shape [S] = {list(shape[1:])} or [B, S] = "
            f"{list(shape)}, got {list(log_count.shape)}"
        )


def all_finite(values: Tensor) -> bool:
    """Return whether no value is NaN or infinite: the sum shows it in one pass without a copy."""
    return math.isfinite(float(values.sum()))


def zero_without_positive(losses: Tensor, positives: Positives) -> Tensor:
    """Return the losses [B] with 0 where a row has no positive."""
    return losses if positives.mask is None else torch.where(positives.mask.any(-1), losses, 0.0)
