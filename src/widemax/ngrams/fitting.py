"""From counts to probabilities: discounts, and interpolation down to the uniform."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from widemax.ngrams.counting import CountedLevel, Ids, continuation_counts
from widemax.ngrams.trie import ROOT_KEY, Trie

Numbers = NDArray[np.float64]

Discounts: TypeAlias = tuple[float, float, float]
"""What is taken from a count of 1, of 2, and of 3 or more."""

DiscountRule: TypeAlias = Callable[[NDArray[np.int64]], Discounts]
"""From n_1 … n_4, the number of n-grams counted once … four times, to the discounts."""

FALLBACK: Discounts = (0.5, 1.0, 1.5)
"""Where too few n-grams were seen for the formulas; those of KenLM's ``--discount_fallback``."""


def no_discounts(counts_of_counts: NDArray[np.int64]) -> Discounts:
    """Take nothing: maximum likelihood."""
    return 0.0, 0.0, 0.0


def kneser_ney_discounts(counts_of_counts: NDArray[np.int64]) -> Discounts:
    """Return D = n_1 / (n_1 + 2·n_2) for every count; 0.5 where n_1 or n_2 is 0.

    >>> kneser_ney_discounts(np.array([4, 2, 1, 1]))
    (0.5, 0.5, 0.5)
    """
    once, twice = (int(number) for number in counts_of_counts[:2])
    discount = once / (once + 2 * twice) if once and twice else FALLBACK[0]
    return discount, discount, discount


def modified_kneser_ney_discounts(counts_of_counts: NDArray[np.int64]) -> Discounts:
    """Return D_k = k − (k + 1)·Y·n_{k+1} / n_k with Y = n_1 / (n_1 + 2·n_2), for k = 1, 2, 3.

    Where n_1, n_2 or n_3 is 0, or a D_k does not lie between 0 and k, all three are 0.5, 1, 1.5.

    >>> [round(discount, 3) for discount in modified_kneser_ney_discounts(np.array([8, 4, 2, 1]))]
    [0.5, 1.25, 2.0]
    """
    numbers = [int(number) for number in counts_of_counts]
    if not all(numbers[:3]):
        return FALLBACK
    scale = numbers[0] / (numbers[0] + 2 * numbers[1])
    first, second, third = (k - (k + 1) * scale * numbers[k] / numbers[k - 1] for k in (1, 2, 3))
    sound = 0 < first < 1 and 0 < second < 2 and 0 < third < 3
    return (first, second, third) if sound else FALLBACK


def interpolated(
    levels: list[CountedLevel], num_classes: int, rule: DiscountRule, *, continuation: bool
) -> Trie:
    """Return the model p(y | c) = (count − D) / total(c) + γ(c) · p(y | c without its first id).

    γ(c) is what the discounts took from c, and 1 where c was followed by nothing; below the
    unigram all classes are alike. With ``continuation``, counts are those of Kneser and Ney.
    """
    counts = continuation_counts(levels) if continuation else [level.counts for level in levels]
    probs = [np.array([1 / num_classes])]  # of the empty n-gram: what each class gets below all
    backoffs, first_place = [], 0
    for level, level_counts in zip(levels, counts, strict=True):
        contexts = level.keys // (num_classes + 1) - first_place
        own, passed_on = _share(level_counts, contexts, len(probs[-1]), rule)
        lower = probs[-1][level.suffixes - first_place]
        backoffs.append(passed_on)
        first_place += len(probs[-1])
        probs.append(own + passed_on[contexts] * lower)
    probs[0][:] = backoffs[0][:] = 1  # the unigrams hold their share of the uniform
    probs[1][num_classes] = 0  # the begin marker is never predicted
    backoffs.append(np.ones(len(probs[-1])))
    return Trie(
        num_classes,
        torch.from_numpy(np.concatenate([[ROOT_KEY], *(level.keys for level in levels)])),
        _logs(probs),
        _logs(backoffs),
    )


def _share(
    counts: Ids, contexts: Ids, num_contexts: int, rule: DiscountRule
) -> tuple[Numbers, Numbers]:
    """Return what n-grams keep of their context's probability, and what contexts pass on."""
    of_counts = np.bincount(np.minimum(counts, 5), minlength=5)[1:5]
    taken = np.array([0.0, *rule(of_counts)])[np.minimum(counts, 3)]
    total = np.bincount(contexts, weights=counts, minlength=num_contexts)
    total_taken = np.bincount(contexts, weights=taken, minlength=num_contexts)
    passed_on = np.divide(total_taken, total, out=np.ones(num_contexts), where=total > 0)
    return (counts - taken) / total[contexts], passed_on


def _logs(parts: list[Numbers]) -> torch.Tensor:
    """Return the logarithms of all parts, of 0 as −inf."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate(parts))
    # A certainty that rounding has lifted above 1 is still no more than certain.
    return torch.from_numpy(np.minimum(logs, 0.0))
