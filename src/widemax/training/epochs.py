"""How often data are passed over where their length decides: the shorter, the more often."""

from __future__ import annotations

import math
from dataclasses import replace

from widemax.training.steps import EPOCHS

AUTO_EPOCHS = "auto"
"""Has the length of the data choose how often it is passed over."""
_OF_A_MILLION = 20
"""Epochs of a million words or interactions; of others by the root of their number, which fits what
was measured of texts from 0.2 to 5 million words, experiments/short_texts.py."""
_LIMITS = {
    # The usual five of a long text, and before a short one is learned by heart.
    "kernel": (5, 40),
    # At most: patience ends them.
    "torch": (20, 100),
}
"""By trainer, the fewest and the most epochs; a plug-in has those of torch."""


def _by_length(trainer: str) -> str:
    fewest, most = _LIMITS[trainer]
    return (
        f"Passes over the data; auto makes {_OF_A_MILLION} of a million words or interactions, "
        f"half as many of four times as much, at least {fewest} and at most {most}."
    )


EPOCHS_OF_KERNEL = replace(EPOCHS, help=_by_length("kernel"), word=AUTO_EPOCHS)
EPOCHS_OF_TORCH = replace(EPOCHS, help=_by_length("torch"), word=AUTO_EPOCHS)


def chosen_epochs(epochs: int | str, length: int, *, trainer: str = "kernel") -> int:
    """Return how many epochs a configuration means, with so many words or items to train on.

    >>> [chosen_epochs("auto", words) for words in (200_000, 1_000_000, 4_000_000, 17_000_000)]
    [40, 20, 10, 5]
    >>> [chosen_epochs("auto", items, trainer="torch") for items in (4000, 100_000, 17_000_000)]
    [100, 63, 20]
    >>> chosen_epochs(3, 200_000)
    3
    """
    if isinstance(epochs, str):
        fewest, most = _LIMITS.get(trainer, _LIMITS["torch"])
        return min(max(round(_OF_A_MILLION * math.sqrt(1e6 / max(length, 1))), fewest), most)
    return epochs
