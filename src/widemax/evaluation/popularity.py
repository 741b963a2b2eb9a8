"""How popular classes are: head, torso and tail, and what recommendations do to them."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.sampling.counts import check_counts
from widemax.validation import as_int64

BUCKETS = ("head", "torso", "tail")


def popularity_buckets(counts: Tensor) -> Tensor:
    """Tell head, torso and tail apart: each holds about a third of all interactions.

    Formula: with the classes in falling count, equal ones by the smaller id, and before(y) the sum
    of the counts ahead of y: bucket(y) = min(2, ⌊3·before(y) / total⌋). A class across a border
    belongs to the more popular side; a class without a count is tail.

    Shapes: counts int64 [V], training counts, in any order → int64 [V]: 0 head, 1 torso, 2 tail.

    Cost: O(V log V).

    Reference: none.

    Use when: asking whether a model finds anything but what is popular. Avoid when: all counts are
    alike: the borders then depend on the ids.

    >>> popularity_buckets(torch.tensor([4, 3, 2, 2, 1, 0])).tolist()
    [0, 1, 1, 2, 2, 2]
    """
    counts = as_int64("counts", counts)
    check_counts(counts)
    order = counts.sort(descending=True, stable=True).indices
    ranked = counts[order]
    before = ranked.cumsum(0) - ranked
    last = len(BUCKETS) - 1
    bucket = (before * len(BUCKETS) // counts.sum()).clamp(max=last)
    return torch.empty_like(bucket).index_copy_(0, order, bucket)


def exposure_figures(exposure: Tensor, counts: Tensor) -> dict[str, float]:
    """Return what lists, taken together, do to the catalogue.

    Formula: with e(y) the lists that class y is in: coverage = share of classes with e > 0;
    gini = Σ_i (2i − V − 1)·e_(i) / (V·Σ e) over e in rising order, 0 when all classes are shown
    alike and 1 − 1/V when one alone is; popularity = Σ e(y)·count(y) / Σ e, the mean training count
    of what is recommended.

    Shapes: exposure and counts int64 [V].

    Cost: O(V log V).

    Reference: Yin et al. 2012 (average popularity); Adomavicius & Kwon 2012 (coverage, Gini).

    Use when: accuracy is known, and its price is asked for. Avoid when: the users are few: lists of
    N users cover at most N·k classes.

    >>> exposure_figures(torch.tensor([3, 1, 0, 0]), torch.tensor([9, 5, 1, 1]))
    {'coverage': 0.5, 'gini': 0.625, 'popularity': 8.0}
    """
    classes, total = len(exposure), int(exposure.sum())
    if not total:
        raise ValueError("exposure must hold a recommendation, got none: all classes left out?")
    rising = exposure.sort().values.double()
    place = torch.arange(1, classes + 1, dtype=torch.float64)
    return {
        "coverage": int((exposure > 0).sum()) / classes,
        "gini": float(((2 * place - classes - 1) * rising).sum()) / (classes * total),
        "popularity": float((exposure.double() * counts.double()).sum()) / total,
    }
