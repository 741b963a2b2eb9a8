"""The learning rate as a function of where training stands: nothing to save, nothing to lose."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def learning_rate_at(
    schedule: Schedule, base: float, *, total_steps: int, warmup_steps: int = 0
) -> Callable[..., float]:
    """Return the learning rate of each step, counted from 0, and of a share of the time.

    It rises from base/w to base over the w warm-up steps; then, with p the part of the rest that is
    done, it is base, base·(1 − p) or base·(1 + cos πp)/2 (Loshchilov & Hutter 2017). Where the time
    is limited, p is at least the share of it that has passed.

    >>> rate = learning_rate_at("linear", 1.0, total_steps=4, warmup_steps=2)
    >>> [rate(step) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    >>> rate(2, 0.75)
    0.25
    """
    falling: dict[str, Callable[[float], float]] = {
        "constant": lambda part: 1.0,
        "linear": lambda part: 1.0 - part,
        "cosine": lambda part: (1 + math.cos(math.pi * part)) / 2,
    }
    if schedule not in falling:
        raise ValueError(f"schedule must be one of {', '.join(falling)}, got {schedule!r}")

    def rate(step: int, passed: float = 0.0) -> float:
        if step < warmup_steps:
            return base * (step + 1) / warmup_steps
        part = max(passed, (step - warmup_steps) / max(1, total_steps - warmup_steps))
        return base * falling[schedule](min(1.0, part))

    return rate
