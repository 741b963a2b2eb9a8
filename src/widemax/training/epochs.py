"""How often a text is passed over where its length decides: the shorter, the more often."""

from __future__ import annotations

import math
from dataclasses import replace

from widemax.training.steps import EPOCHS

AUTO_EPOCHS = "auto"
"""Has the length of the data choose how often it is passed over."""
_OF_A_MILLION = 20
"""Epochs of a million words; of others by the root of their number, which fits what was measured
from 0.2 to 5 million, experiments/short_texts.py."""
_FEWEST, _MOST = 5, 40
"""The usual five of a long text, and before a short one is learned by heart."""

EPOCHS_BY_LENGTH = replace(
    EPOCHS,
    help=f"Passes over the data; auto makes {_OF_A_MILLION} of a million words or interactions, "
    f"half as many of four times the words, at least {_FEWEST} and at most {_MOST}.",
    word=AUTO_EPOCHS,
)


def chosen_epochs(epochs: int | str, num_words: int) -> int:
    """Return how many epochs a configuration means, with so many words to train on.

    >>> [chosen_epochs("auto", words) for words in (200_000, 1_000_000, 4_000_000, 17_000_000)]
    [40, 20, 10, 5]
    >>> chosen_epochs(3, 200_000)
    3
    """
    if isinstance(epochs, str):
        by_length = _OF_A_MILLION * math.sqrt(1e6 / max(num_words, 1))
        return min(max(round(by_length), _FEWEST), _MOST)
    return epochs
