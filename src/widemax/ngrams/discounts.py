"""How much is taken from the count of each seen n-gram, to be given to those unseen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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
