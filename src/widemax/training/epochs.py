"""How often a text is passed over where its length decides: the shorter, the more often."""

from __future__ import annotations

from dataclasses import replace

from widemax.training.steps import EPOCHS

AUTO_EPOCHS = "auto"
"""Has the length of the data choose how often it is passed over."""
_WORDS = 25_000_000
"""To how many words, repeated ones included, all epochs together come where a text has fewer."""
_FEWEST, _MOST = 5, 40
"""More than 40 learn a short text by heart: similarities of words get worse."""

EPOCHS_BY_LENGTH = replace(
    EPOCHS,
    help=f"Passes over the data; auto makes as many as come to {_WORDS // 10**6} million words or "
    f"interactions, at least {_FEWEST} and at most {_MOST}.",
    word=AUTO_EPOCHS,
)


def chosen_epochs(epochs: int | str, num_words: int) -> int:
    """Return how many epochs a configuration means, with so many words to train on.

    >>> [chosen_epochs("auto", words) for words in (200_000, 1_000_000, 17_000_000)]
    [40, 25, 5]
    >>> chosen_epochs(3, 200_000)
    3
    """
    if isinstance(epochs, str):
        return min(max(round(_WORDS / max(num_words, 1)), _FEWEST), _MOST)
    return epochs
