"""Where the biases of a sampled head start."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.objectives import Objective, Prior, find_initial_scores
from widemax.sampling import AllClassesSampler, Sampler
from widemax.sampling.base import expected_tries, log_expected_count, uniform_log_prob
from widemax.scoring import Scorer
from widemax.validation import Counts, check_counts

_MAX_LOG_MASS = 1e-3
"""How far the logarithm of the sum of a proposal's probabilities may be from 0."""


@torch.no_grad()
def start_biases(
    scorer: Scorer,
    sampler: Sampler,
    objective: Objective,
    num_samples: int | None,
    counts: Counts | None,
) -> None:
    """Set biases that are all 0 to the scores at which the objective starts.

    Biases that are not all 0 have been learned or set, and stay. The share of each class among
    the targets comes from ``counts``, each one more than it is; without counts it is the share of
    the class among the draws.

    >>> import widemax as wm
    >>> scorer, sampler = wm.TableScorer(4, 2, bias=True), wm.UniformSampler(4)
    >>> start_biases(scorer, sampler, wm.nce, 2, None)
    >>> scorer.bias.exp().tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    initial_scores = find_initial_scores(objective)
    biases = None if initial_scores is None else scorer.class_biases()
    if initial_scores is None or biases is None or biases.is_meta or bool(biases.any()):
        return
    if isinstance(sampler, AllClassesSampler):
        num_samples = sampler.num_classes
    log_prob = _log_prob(sampler, biases.device)
    log_target = log_prob if counts is None else _log_shares(counts, sampler.num_classes)
    log_target = log_target.to(biases.device)
    # With as many candidates as a batch has, one stands for their unknown number.
    size = num_samples or 1
    tries = expected_tries(log_prob, size) if sampler.unique else None
    log_count = log_expected_count(log_prob, size, tries)
    scorer.set_class_biases(initial_scores(Prior(log_target, log_count, size)))


def _log_shares(counts: Counts, num_classes: int) -> Tensor:
    array = check_counts(counts, num_classes, all_zero=True)
    seen = torch.from_numpy(array).double() + 1
    return seen.log() - seen.sum().log()


def _log_prob(sampler: Sampler, device: torch.device) -> Tensor:
    """Return log p of all classes, that of the rarest where it is −inf.

    It is −log V where a class alone has no probability: it depends on the example, or the
    candidates are not drawn.
    """
    every_class = torch.arange(sampler.num_classes, device=device)
    try:
        log_prob = sampler.log_prob(every_class)
    except ValueError:
        return uniform_log_prob(every_class, sampler.num_classes)
    if not abs(float(log_prob.logsumexp(0))) <= _MAX_LOG_MASS:
        return uniform_log_prob(every_class, sampler.num_classes)
    return log_prob.clamp(min=float(log_prob[log_prob.isfinite()].min()))
