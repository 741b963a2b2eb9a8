"""Pearson's chi-square: do counts follow the probabilities they should?"""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.contracts.requirements import require

_LEAST_P_VALUE = 1e-6


def check_distribution(counts: Tensor, probability: Tensor) -> float:
    """Return the chi-square p-value of counts [V] of candidates with their probability [V].

    Raises AssertionError where it is below 1e-6, or a class of probability 0 was drawn.
    """
    expected = counts.sum() * probability
    impossible = ((counts > 0) & (probability == 0)).nonzero().flatten().tolist()
    require(not impossible, f"classes {impossible[:5]} have p = 0 and were drawn")
    p_value = chi_square_p_value(counts, expected)
    worst = int(((counts - expected).abs() / expected.clamp(min=1).sqrt()).argmax())
    require(
        p_value >= _LEAST_P_VALUE,
        f"draws do not follow log_prob: chi-square p-value {p_value:.3g} over "
        f"{int(counts.sum()):,} draws; class {worst} was drawn {int(counts[worst]):,} times, "
        f"expected {expected[worst]:,.1f}",
    )
    return p_value


def chi_square_p_value(counts: Tensor, expected: Tensor) -> float:
    """Return Pearson's p-value of counts [V] given what was expected, small bins pooled."""
    large = expected >= 5
    observed = torch.cat([counts[large], counts[~large].sum().view(1)]).double()
    expected = torch.cat([expected[large], expected[~large].sum().view(1)])
    if float(expected[-1]) < 5:
        largest = int(expected.argmax())
        if largest == len(expected) - 1:
            return 1.0
        observed[largest] += observed[-1]
        expected[largest] += expected[-1]
        observed, expected = observed[:-1], expected[:-1]
    freedom = len(expected) - 1
    if freedom == 0:
        return 1.0
    statistic = ((observed - expected).square() / expected).sum()
    half = torch.tensor(freedom / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, statistic / 2))
