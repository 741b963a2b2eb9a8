"""The softmax rows of the table: one positive wins against the negatives."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from widemax.candidates import InnerProduct
from widemax.declarations import declare
from widemax.devices import by_kernels
from widemax.objectives.base import (
    LABEL_SMOOTHING,
    OVER_ALL,
    REMOVED,
    check_log_count,
    correct_positives,
    factored,
    largest,
    read_negatives,
    read_positives,
    zero_without_positive,
)
from widemax.objectives.factored_softmax import softmax_of_factors
from widemax.objectives.log_sum import centre, sum_candidates
from widemax.validation import check_fraction, check_positive


def _full_softmax_from_factors(
    product: InnerProduct,
    *,
    target_log_expected_count: Tensor | None,
    log_expected_count: Tensor | None,
    hits: Tensor | None,
    label_smoothing: float = 0.0,
) -> Tensor:
    return _Softmax(hits=hits, label_smoothing=label_smoothing).of_factors(product)


@declare.objective("full-softmax", options=[LABEL_SMOOTHING], needs=[OVER_ALL])
@factored(_full_softmax_from_factors)
def full_softmax(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    target_log_expected_count: Tensor | None = None,
    log_expected_count: Tensor | None = None,
    hits: Tensor | None = None,
    target_mask: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The exact softmax cross-entropy, with every class among the candidates.

    Formula: L = −F(t) + LSE over {t} ∪ (L − {t}) of F; log Q is not used. F learns log P + K(x).

    Shapes: as ``Objective``, with S = V; ``hits`` marks the targets' own columns.

    Cost: O(B·V). ``FullHead`` computes the same without the [B, V] matrix.

    Reference: Bridle 1990; label smoothing: Szegedy 2016.

    Use when: V is small, or as the truth the others are compared with. Avoid when: V is large.

    >>> import torch
    >>> scores = torch.tensor([[2.0, 1.0, 0.0]])
    >>> hits = torch.tensor([[True, False, False]])
    >>> round(full_softmax(scores[:, 0], scores, hits=hits).item(), 4)
    0.4076
    """
    loss = _Softmax(hits=hits, label_smoothing=label_smoothing)
    return loss.of_scores(target_scores, candidate_scores, target_mask)


def _sampled_softmax_from_factors(
    product: InnerProduct,
    *,
    target_log_expected_count: Tensor | None,
    log_expected_count: Tensor | None,
    hits: Tensor | None,
    label_smoothing: float = 0.0,
) -> Tensor:
    counts = _check_expected_counts(target_log_expected_count, log_expected_count)
    return _Softmax(*counts, hits=hits, label_smoothing=label_smoothing).of_factors(product)


@declare.objective("sampled-softmax", options=[LABEL_SMOOTHING])
@factored(_sampled_softmax_from_factors)
def sampled_softmax(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    target_log_expected_count: Tensor | None,
    log_expected_count: Tensor | None,
    hits: Tensor | None,
    target_mask: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Softmax cross-entropy over the target and the sampled classes, corrected by log Q.

    Formula: L = −G(t) + LSE over {t} ∪ (S − {t}) of G, with G = F − log Q. F learns log P + K(x).
    With label smoothing ε the mass ε lies uniformly on all classes, which the sample estimates
    with weights 1 for the target and 1/Q for a candidate.

    Shapes: as ``Objective``. With T positives the label is 1/T each and all of them compete.

    Cost: O(B·S).

    Reference: Bengio & Senécal 2008; Jean 2015; with in-batch candidates: Yi 2019.

    Use when: one label per example and a likelihood is wanted; it is the default. Draw distinct
    classes (``unique=True``): its bias then vanishes as samples grow. Avoid when: few samples meet
    rare targets, where its bias is largest, or draws with replacement are many: the target stands
    once at e^F/Q among them, so with Q well above 1 the gradient is 1/(1 − P(t)) times too large,
    and a warning says so (``corrected_log_q`` has neither fault).

    >>> import torch
    >>> loss = sampled_softmax(torch.tensor([1.0]), torch.tensor([[1.0, 0.5]]),
    ...     target_log_expected_count=torch.tensor([0.0]),
    ...     log_expected_count=torch.tensor([0.0, 0.0]), hits=torch.tensor([[True, False]]))
    >>> round(loss.item(), 4)  # log(1 + exp(-0.5))
    0.4741
    """
    counts = _check_expected_counts(target_log_expected_count, log_expected_count)
    loss = _Softmax(*counts, hits=hits, label_smoothing=label_smoothing)
    return loss.of_scores(target_scores, candidate_scores, target_mask)


def _info_nce_from_factors(
    product: InnerProduct,
    *,
    target_log_expected_count: Tensor | None,
    log_expected_count: Tensor | None,
    hits: Tensor | None,
    temperature: float = 1.0,
    label_smoothing: float = 0.0,
) -> Tensor:
    loss = _Softmax(hits=hits, temperature=temperature, label_smoothing=label_smoothing)
    return loss.of_factors(product)


@declare.objective("info-nce", options=[LABEL_SMOOTHING], traits=["uncorrected"])
@factored(_info_nce_from_factors)
def info_nce(
    target_scores: Tensor,
    candidate_scores: Tensor,
    *,
    target_log_expected_count: Tensor | None = None,
    log_expected_count: Tensor | None = None,
    hits: Tensor | None = None,
    target_mask: Tensor | None = None,
    temperature: float = 1.0,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Softmax cross-entropy over target and candidates without a correction.

    Formula: L = −G(t) + LSE over {t} ∪ (S − {t}) of G, with G = F/τ; log Q is not used, so
    F/τ learns log(P/Q) + K(x): popular classes are pushed down on purpose.

    Shapes: as ``Objective``. Leave ``temperature`` at 1 when the scorer already divides by its own.

    Cost: O(B·S).

    Reference: van den Oord 2018.

    Use when: contrastive representations are wanted, not a likelihood. Avoid when: popularity is
    part of the answer (``sampled_softmax``, which subtracts log Q).

    >>> import torch
    >>> loss = info_nce(torch.tensor([0.9]), torch.tensor([[0.1, 0.3]]), temperature=0.1)
    >>> round(loss.item(), 4)
    0.0028
    """
    loss = _Softmax(hits=hits, temperature=temperature, label_smoothing=label_smoothing)
    return loss.of_scores(target_scores, candidate_scores, target_mask)


def _check_expected_counts(
    target_log_expected_count: Tensor | None, log_expected_count: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return both, and warn of a target expected several times: only one copy of it competes."""
    if target_log_expected_count is None or log_expected_count is None:
        raise ValueError("sampled_softmax needs target_log_expected_count and log_expected_count")
    known = by_kernels(target_log_expected_count) and target_log_expected_count.numel()
    if known and float(target_log_expected_count.max()) > 1e-3:
        # Without the number, so that Python shows it once and not at every batch.
        warnings.warn(
            "sampled_softmax: a target is expected more than once among the candidates, and its "
            "gradient is too large (up to 1 / (1 − P) times). Take the objective corrected_log_q "
            "(--objective corrected-log-q), or draw fewer classes, or distinct ones where the "
            "sampler can (unique=True, --unique)",
            stacklevel=3,
        )
    return target_log_expected_count, log_expected_count


class _Softmax(NamedTuple):
    """−Σ share·G(t) + LSE over positives ∪ negatives of G = F/τ − log Q."""

    target_log_expected_count: Tensor | None = None
    log_expected_count: Tensor | None = None
    hits: Tensor | None = None
    temperature: float = 1.0
    label_smoothing: float = 0.0

    def of_factors(self, product: InnerProduct) -> Tensor:
        """Return the losses [B] in one step where the factors suffice, else by their scores."""
        self._check_options()
        losses = None
        if not self.label_smoothing:
            losses = softmax_of_factors(
                product,
                target_log_count=self.target_log_expected_count,
                log_count=self.log_expected_count,
                hits=self.hits,
                temperature=self.temperature,
            )
        if losses is None:
            losses = self.of_scores(product.target_scores(), product.candidate_scores(), None)
        return losses

    def of_scores(
        self, target_scores: Tensor, candidate_scores: Tensor, target_mask: Tensor | None
    ) -> Tensor:
        """Return the losses [B]."""
        self._check_options()
        positives = read_positives(target_scores, target_mask)
        candidates = sum_candidates(
            candidate_scores,
            len(positives.scores),
            log_expected_count=self.log_expected_count,
            hits=self.hits,
            temperature=self.temperature,
        )
        centred, negative_sum = centre(positives, candidates, self.temperature)
        if self.target_log_expected_count is not None:
            centred = correct_positives(centred, self.target_log_expected_count)
        if centred.mask is None and centred.scores.shape[1] == 1 and not self.label_smoothing:
            # One positive each, the usual case: LSE(G_t, n) − G_t = log(1 + e^(n − G_t)). Where
            # nothing competes the second derivative of torch.logaddexp would be NaN.
            return -logsigmoid(centred.scores[:, 0] - negative_sum)
        # A row without a positive keeps its absent ones: an LSE of nothing has NaN for a gradient.
        present = centred.present()
        absent = ~present & present.any(-1, keepdim=True)
        competing = centred.scores.masked_fill(absent, REMOVED)
        log_total = torch.cat([competing, negative_sum[:, None]], dim=-1).logsumexp(-1)
        labelled = (centred.share * centred.scores).sum(-1)
        if self.label_smoothing:
            negatives = read_negatives(candidate_scores, len(competing), self.hits)
            top = largest(positives.without_absent(positives.scores, REMOVED), negatives)
            shifted = (negatives - top) / self.temperature
            uniform = _uniform_mean(competing, shifted, self.log_expected_count)
            labelled = (1 - self.label_smoothing) * labelled + self.label_smoothing * uniform
        return zero_without_positive(log_total - labelled, positives)

    def _check_options(self) -> None:
        check_positive("temperature", self.temperature)
        check_fraction("label_smoothing", self.label_smoothing)


def _uniform_mean(positives: Tensor, negatives: Tensor, log_count: Tensor | None) -> Tensor:
    """Return the mean of G over all classes, as the competing ones estimate it, [B].

    A candidate stands for 1/Q classes, a positive for itself, and a removed one for none.
    """
    log_share = torch.zeros_like(torch.cat([positives, negatives], dim=-1))
    if log_count is not None:
        log_count = check_log_count(log_count, negatives).to(negatives.dtype)
        log_share[:, positives.shape[1] :] = -log_count
        negatives = negatives - log_count
    competing = torch.cat([positives, negatives], dim=-1)
    removed = torch.isneginf(competing)
    share = log_share.masked_fill(removed, REMOVED).softmax(-1)
    return (share * competing.masked_fill(removed, 0.0)).masked_fill(removed, 0.0).sum(-1)
