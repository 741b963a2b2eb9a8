"""From counts to probabilities: absolute discounting, interpolated down to the uniform."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from widemax.ngrams.counting import CountedLevel, Ids, continuation_counts
from widemax.ngrams.discounts import DiscountRule
from widemax.ngrams.trie import ROOT_KEY, Trie

Numbers = NDArray[np.float64]


class _Shared(NamedTuple):
    """What an n-gram keeps of its context's probability [G], and what each context passes on."""

    own: Numbers
    passed_on: Numbers


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
        shared = _share(level_counts, contexts, len(probs[-1]), rule)
        lower = probs[-1][level.suffixes - first_place]
        backoffs.append(shared.passed_on)
        first_place += len(probs[-1])
        probs.append(shared.own + shared.passed_on[contexts] * lower)
    probs[0][:] = backoffs[0][:] = 1  # the unigrams hold their share of the uniform
    probs[1][num_classes] = 0  # the begin marker is never predicted
    backoffs.append(np.ones(len(probs[-1])))
    return Trie(
        num_classes,
        torch.from_numpy(np.concatenate([[ROOT_KEY], *(level.keys for level in levels)])),
        _logs(probs),
        _logs(backoffs),
    )


def _share(counts: Ids, contexts: Ids, num_contexts: int, rule: DiscountRule) -> _Shared:
    """Split the probability of each context between what was seen after it and the rest."""
    of_counts = np.bincount(np.minimum(counts, 5), minlength=5)[1:5]
    taken = np.array([0.0, *rule(of_counts)])[np.minimum(counts, 3)]
    total = np.bincount(contexts, weights=counts, minlength=num_contexts)
    total_taken = np.bincount(contexts, weights=taken, minlength=num_contexts)
    passed_on = np.divide(total_taken, total, out=np.ones(num_contexts), where=total > 0)
    return _Shared((counts - taken) / total[contexts], passed_on)


def _logs(parts: list[Numbers]) -> torch.Tensor:
    """Return the logarithms of all parts, of 0 as −inf."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate(parts))
    # A certainty that rounding has lifted above 1 is still no more than certain.
    return torch.from_numpy(np.minimum(logs, 0.0))
