"""What one client may ask of a server that others use too."""

from __future__ import annotations

from dataclasses import dataclass

from widemax.limits import check_positive, check_whole

MOST_ANSWERS = 1000
"""The largest k."""
MOST_QUERIES = 100
"""Queries of one batch."""
MOST_HISTORY = 1000
"""Items of a history, and of a list to be scored."""
MOST_LEFT_OUT = 10_000
"""Items to leave out of an answer."""
MOST_VALUES = 100
"""Features of a filter or of somebody new, and values of each."""
LONGEST_TEXT = 1000
"""Characters of a key, a title or a search."""
MOST_RUNS = 16
"""Runs that are served side by side."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits that a server can be started with.

    >>> Limits(seconds=2).concurrent
    64
    """

    body: int = 2**20
    """Bytes of the body of a request; one of more is answered by 413."""
    seconds: float = 10.0
    """Seconds that an answer may take; one that takes longer is given up with 503."""
    read_seconds: float = 10.0
    """Seconds in which the head of a request must be there, and again its body; else 408."""
    concurrent: int = 64
    """Answers that may be under way or wait for a thread; a further one is refused with 429."""
    connections: int = 512
    """Open connections; a request on a further one is refused with 503."""

    def __post_init__(self) -> None:
        check_whole("body", self.body, 1, 2**30)
        check_positive("seconds", self.seconds)
        check_positive("read_seconds", self.read_seconds)
        check_whole("concurrent", self.concurrent, 1, 10_000)
        check_whole("connections", self.connections, 1, 100_000)
