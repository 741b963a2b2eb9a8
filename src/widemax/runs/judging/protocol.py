"""By what rule a run is judged: what is asked, among which items, and when that says little."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from widemax.data import Holdout, Windows

_MOSTLY = 0.5
_ENOUGH_USERS = 100

PROTOCOLS = {
    "last": "leave-one-out: the last item of every user",
    "last-of-some": "the last item of some users",
    "time": "all that users chose in the last tenth of the time",
    "user": "the last item of users of whom nothing was trained on",
    "files": "all items of the test file",
}
"""What is asked in the test, by the setting ``split``."""


def looks_ahead(questions: float, events: float) -> str:
    """Return a warning that users are asked for what lies before some of what is trained on.

    >>> print(looks_ahead(0.5, 0.25))
    leave-one-out looks ahead: 50.0 % of the test items lie before some of the training data, on \
average before 25.0 % of it; --split time trains on the past alone
    """
    return (
        f"leave-one-out looks ahead: {questions:.1%} of the test items lie before some of the "
        f"training data, on average before {events:.1%} of it; --split time trains on the "
        "past alone"
    ).replace("%", " %")


def asks_few(asked: Sequence[tuple[int, int]], users: int) -> str:
    """Return a warning that a split by time asks too few users to judge by; "" if it does not.

    ``asked`` says of validation and of the test how many are asked, and how many would be at most.

    >>> asks_few([(50, 50), (1000, 9000)], 9_500)
    ''
    >>> print(asks_few([(900, 1000), (2, 1000)], 5_000))
    --split time can ask 2 of 5,000 users, too few to judge by: the others have items on one side \
of its moments alone; --split last asks every user
    """
    few = [number for number, most in asked if number < min(_ENOUGH_USERS, most, users / 10)]
    if not few:
        return ""
    return (
        f"--split time can ask {min(few):,} of {users:,} users, too few to judge by: the others "
        "have items on one side of its moments alone; --split last asks every user"
    )


def asks_new(share: float) -> str:
    """Return a note on the share of the test's targets that nobody chose in training.

    >>> print(asks_new(0.25))
    25.0 % of the targets of the test are items that nobody chose in training: a model finds them \
by features alone (--item-features)
    """
    return (
        f"{share:.1%} of the targets of the test are items that nobody chose in training: a model "
        "finds them by features alone (--item-features)"
    ).replace("%", " %")


def ranks_seen(setting: str, asked: Windows | Holdout | None) -> bool:
    """Return whether what users had before is ranked too: where most of what they choose is that.

    >>> from widemax.data import Sequences
    >>> train, held = Holdout.of_last(Sequences.from_lists([[4, 0, 4], [1, 2, 1], [3, 5]]))
    >>> ranks_seen("auto", held), ranks_seen("left-out", held)
    (True, False)
    """
    if setting != "auto" or not isinstance(asked, Holdout) or not len(asked):
        return setting == "ranked"
    width = 1 + max(int(part.values.max()) for part in (asked.histories, asked.targets))
    known, wanted = (
        torch.arange(len(part)).repeat_interleave(part.lengths) * width + part.values
        for part in (asked.histories, asked.targets)
    )
    return bool(torch.isin(wanted, known).double().mean() > _MOSTLY)
