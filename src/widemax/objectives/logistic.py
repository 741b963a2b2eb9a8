"""The logistic rows of the table: each candidate is a binary classification of its own."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from widemax.declarations import Option, Value, declare
from widemax.objectives.base import (
    OVER_ALL,
    Positives,
    correct_negatives,
    correct_positives,
    keeps_hits,
    read_negatives,
    read_positives,
    zero_without_positive,
)
from widemax.objectives.starting import Prior, starts_at

_WITH_BIAS: dict[str, Value] = {"bias": True}
"""Their scores start far below 0, which nothing but a bias can be set to."""

_OWN_START: dict[str, Value] = {"bias_start": 0.0}
"""Their biases start where an empty context would leave them, whatever is usual with a model."""


def _start_at_log_prob(prior: Prior, **options: object) -> Tensor:
    """F − log Q = log(π/Q): of π positives of a class and Q draws of it, π are positives."""
    return prior.log_target


def _start_at_log_odds(prior: Prior, **options: object) -> Tensor:
    """A class is drawn against only where it is no target: π positives, Q·(1 − π) draws."""
    return prior.log_odds


def _start_at_log_ratio(prior: Prior, **options: object) -> Tensor:
    """F = log(π/Q): of π positives of a class and Q draws of it, π are positives."""
    return prior.log_target - prior.log_expected_count


@declare.objective("nce", usual=_WITH_BIAS, fixed=_OWN_START)
@keeps_hits
@starts_at(_start_at_log_prob)
def nce(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    target_log_expected_count: Tensor | None,
    log_expected_count: Tensor | None,
    hits: Tensor | None = None,
    target_mask: Tensor | None = None,
    normalize_positives: bool = False,
) -> Tensor:
    """Noise-contrastive estimation: distinguish the target from the draws, hits kept.

    Formula: L = Σ_T softplus(−G) + Σ_S softplus(G), with G = F − log Q. F learns log P(y | x),
    normalised by itself.

    Shapes: as ``Objective``; ``hits`` is not used, a hit is a draw like any other.
    ``normalize_positives=True`` gives each of T positives the soft label 1/T (TensorFlow).

    Cost: O(B·S).

    Reference: Gutmann & Hyvärinen 2010; Mnih & Teh 2012.

    Start: without a context the loss is smallest at F(y) = log π(y), π(y) the share of the targets
    that are y. At F = 0 every class counts as certain, and frequent ones, drawn most often, are
    pushed below all others first: ``SampledHead`` sets a bias that is still 0 to log π.

    Use when: F itself must approximate a log-probability at test time; with a bias, whose start
    it rests on. Avoid when: few samples are drawn; its variance is larger than that of
    ``sampled_softmax``.

    >>> import torch
    >>> loss = nce(torch.tensor([0.0]), torch.tensor([[0.0]]),
    ...            target_log_expected_count=torch.zeros(1), log_expected_count=torch.zeros(1))
    >>> round(loss.item(), 4)  # 2 log 2
    1.3863
    """
    return _corrected_logistic(
        target_scores,
        candidate_scores,
        target_log_expected_count,
        log_expected_count,
        None,
        target_mask,
        normalize_positives,
    )


@declare.objective("sampled-logistic", usual=_WITH_BIAS, fixed=_OWN_START)
@starts_at(_start_at_log_odds)
def sampled_logistic(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    target_log_expected_count: Tensor | None,
    log_expected_count: Tensor | None,
    hits: Tensor | None,
    target_mask: Tensor | None = None,
    normalize_positives: bool = False,
) -> Tensor:
    """NCE with the hits removed: one logistic regression per class, on sampled negatives.

    Formula: L = Σ_T softplus(−G) + Σ_{S−T} softplus(G), with G = F − log Q. F learns the log odds
    of y.

    Shapes: as ``Objective``. ``normalize_positives=True`` gives each of T positives the soft
    label 1/T (TensorFlow).

    Cost: O(B·S).

    Reference: TensorFlow's candidate-sampling table.

    Start: without a context the loss is smallest at F(y) = log π(y) − log(1 − π(y)), π(y) the
    share of the targets that are y, to which ``SampledHead`` sets a bias that is still 0.

    Use when: many labels per example, each a yes or no; with a bias. Avoid when: classes
    exclude each other (``sampled_softmax``).

    >>> import torch
    >>> loss = sampled_logistic(torch.tensor([0.0]), torch.tensor([[0.0, 0.0]]),
    ...     target_log_expected_count=torch.zeros(1), log_expected_count=torch.zeros(2),
    ...     hits=torch.tensor([[True, False]]))
    >>> round(loss.item(), 4)  # 2 log 2
    1.3863
    """
    return _corrected_logistic(
        target_scores,
        candidate_scores,
        target_log_expected_count,
        log_expected_count,
        hits,
        target_mask,
        normalize_positives,
    )


@declare.objective("negative-sampling", traits=["uncorrected", "kernel"], fixed=_OWN_START)
@keeps_hits
@starts_at(_start_at_log_ratio)
def negative_sampling(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    target_log_expected_count: Tensor | None = None,
    log_expected_count: Tensor | None = None,
    hits: Tensor | None = None,
    target_mask: Tensor | None = None,
    normalize_positives: bool = False,
) -> Tensor:
    """word2vec's objective: NCE without the correction, hits kept.

    Formula: L = Σ_T softplus(−F) + Σ_S softplus(F); log Q is not used. F learns log(P/Q), with Q
    the expected count: for unigram draws a shifted pointwise mutual information.

    Shapes: as ``Objective``; neither ``hits`` nor the expected counts are used.
    ``normalize_positives=True`` gives each of T positives the soft label 1/T.

    Cost: O(B·S).

    Reference: Mikolov 2013; Levy & Goldberg 2014.

    Start: without a context the loss is smallest at F(y) = log π(y) − log Q(y), π(y) the share of
    the targets that are y: −log S where S classes are drawn as often as they are targets.
    ``SampledHead`` sets a bias that is still 0 to it.

    Use when: vectors are the product (word2vec, Item2Vec, EGES). Avoid when: probabilities or
    popularity matter.

    >>> import torch
    >>> round(negative_sampling(torch.tensor([2.0]), torch.tensor([[-2.0, -2.0]])).item(), 4)
    0.3808
    """
    positives = read_positives(target_scores, target_mask)
    negatives = read_negatives(candidate_scores, positives.scores.shape[0])
    return _logistic_loss(positives, negatives, normalize_positives)


@declare.objective("full-logistic", needs=[OVER_ALL], fixed=_OWN_START)
@starts_at(_start_at_log_odds)
def full_logistic(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    target_log_expected_count: Tensor | None = None,
    log_expected_count: Tensor | None = None,
    hits: Tensor | None = None,
    target_mask: Tensor | None = None,
    normalize_positives: bool = False,
) -> Tensor:
    """One exact logistic regression per class, with every class among the candidates.

    Formula: L = Σ_T softplus(−F) + Σ_{L−T} softplus(F); log Q is not used. F learns the log odds.

    Shapes: as ``Objective``, with S = V; ``hits`` marks the targets' own columns.
    ``normalize_positives=True`` gives each of T positives the soft label 1/T.

    Cost: O(B·V).

    Reference: TensorFlow's candidate-sampling table.

    Start: as ``sampled_logistic``.

    Use when: V is small and labels are many, or as the truth for ``sampled_logistic``. Avoid
    when: V is large.

    >>> import torch
    >>> hits = torch.tensor([[True, False, False]])
    >>> round(full_logistic(torch.zeros(1), torch.zeros(1, 3), hits=hits).item(), 4)  # 3 log 2
    2.0794
    """
    positives = read_positives(target_scores, target_mask)
    negatives = read_negatives(candidate_scores, positives.scores.shape[0], hits)
    return _logistic_loss(positives, negatives, normalize_positives)


CALIBRATION = Option(
    "calibration",
    0.75,
    "How much of the overconfidence due to sampling gbce removes, from 0 to 1.",
    most=1.0,
)


def _power(num_samples: int, num_classes: int, calibration: float) -> float:
    """Return β, written without a division by α, which is 0 where there are no candidates."""
    rate = num_samples / max(num_classes - 1, 1)
    return calibration * (rate - 1) + 1


def _start_of_gbce(
    prior: Prior, *, num_classes: int, calibration: float = 0.75, **options: object
) -> Tensor:
    """A positive counts β times: F = log(β·π / (Q·(1 − π)))."""
    power = _power(prior.num_samples, num_classes, calibration)
    return prior.log_odds - prior.log_expected_count + math.log(power)


@declare.objective("gbce", options=[CALIBRATION], traits=["uncorrected"], fixed=_OWN_START)
@starts_at(_start_of_gbce)
def gbce(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    num_classes: int,
    calibration: float = 0.75,
    target_log_expected_count: Tensor | None = None,
    log_expected_count: Tensor | None = None,
    hits: Tensor | None = None,
    target_mask: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy with the positive's confidence calibrated for sampled negatives.

    Formula: L = β·softplus(−F⁺) + Σ_{S−T} softplus(F⁻), with α = S/(V−1) and
    β = α·(t·(1 − 1/α) + 1/α), where t is ``calibration``: 0 is plain BCE, 1 undoes the
    overconfidence that uniform sampling at rate α brings.

    Shapes: as ``Objective``; the expected counts are not used. S is the number of candidates, V
    (``num_classes``) that of all classes, which ``SampledHead`` fills in.

    Cost: O(B·S).

    Reference: Petrov & Macdonald 2023 (gSASRec).

    Start: without a context the loss is smallest at F(y) = log β + log π(y) − log(1 − π(y)) −
    log Q(y), π(y) the share of the targets that are y, to which ``SampledHead`` sets a bias that
    is still 0.

    Use when: a sequence recommender trains on uniform negatives. Avoid when: the proposal is not
    uniform.

    >>> import torch
    >>> loss = gbce(torch.zeros(1), torch.zeros(1, 10), num_classes=101, calibration=1.0)
    >>> round(loss.item(), 4)  # (0.1 + 10) log 2
    7.0008
    """
    positives = read_positives(target_scores, target_mask)
    negatives = read_negatives(candidate_scores, positives.scores.shape[0], hits)
    if not 0 <= calibration <= 1:
        raise ValueError(f"calibration must lie between 0 and 1, got {calibration!r}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes:,}")
    power = _power(candidate_scores.shape[1], num_classes, calibration)
    gain = -(power * logsigmoid(positives.scores)).masked_fill(~positives.present(), 0.0).sum(-1)
    return zero_without_positive(gain - logsigmoid(-negatives).sum(-1), positives)


def _corrected_logistic(
    target_scores: Tensor,
    candidate_scores: Tensor,
    target_log_expected_count: Tensor | None,
    log_expected_count: Tensor | None,
    hits: Tensor | None,
    target_mask: Tensor | None,
    normalize_positives: bool,
) -> Tensor:
    if target_log_expected_count is None or log_expected_count is None:
        raise ValueError("this objective needs target_log_expected_count and log_expected_count")
    positives = read_positives(target_scores, target_mask)
    negatives = read_negatives(candidate_scores, positives.scores.shape[0], hits)
    return _logistic_loss(
        correct_positives(positives, target_log_expected_count),
        correct_negatives(negatives, log_expected_count),
        normalize_positives,
    )


def _logistic_loss(positives: Positives, negatives: Tensor, normalize_positives: bool) -> Tensor:
    """Return Σ softplus(−G) over positives + Σ softplus(G) over negatives, [B].

    softplus(G) = −logsigmoid(−G): torch's own softplus turns linear above 20, wrong in float64.
    """
    label = positives.share if normalize_positives else torch.ones_like(positives.share)
    gain = label * logsigmoid(positives.scores) + (1 - label) * logsigmoid(-positives.scores)
    gain = gain.masked_fill(~positives.present(), 0.0).sum(-1)
    return zero_without_positive(-gain - logsigmoid(-negatives).sum(-1), positives)
