"""What numbers may be and what cores there are, without torch; ``validation`` has other checks."""

from __future__ import annotations

import math
import operator
import os
from typing import SupportsIndex

ABSENT = -1
"""Marks a missing entry in a padded row of ids: no class has this id."""


def check_whole(name: str, value: SupportsIndex, least: int, most: int) -> int:
    """Return ``value`` as an int if it is a whole number, Python's or NumPy's, in these limits."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{name} must be between {least:,} and {most:,}, got {number:,}")
    return number


def check_positive(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number above 0."""
    if not (is_finite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def check_not_negative(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number of at least 0."""
    if not (is_finite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    return float(value)


def check_fraction(name: str, value: float) -> float:
    """Return ``value`` if 0 ≤ value < 1."""
    if not (is_finite(value) and 0 <= value < 1):
        raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}")
    return float(value)


def usable_cores() -> int:
    """Return how many cores this process may use; not every system says which."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_finite(value: float) -> bool:
    """Return whether a value is a finite number."""
    return hasattr(value, "__float__") and math.isfinite(value)
