"""What is shown while something takes its time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Timer

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from widemax.cli.printable import printable

PATIENCE = 10.0
"""Seconds after which a log, unlike a terminal, is told what is going on."""


@contextmanager
def waiting(doing: str, *, in_logs: bool = True) -> Iterator[None]:
    """Show on stderr what is being done: a clock on a terminal, elsewhere a line if it takes long.

    On a terminal it vanishes when it is over, so that only results stay.
    """
    console, doing = Console(stderr=True), printable(doing)
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            progress.add_task(escape(doing), total=None)
            yield
        return
    if not in_logs:
        yield
        return
    timer = Timer(PATIENCE, console.print, [f"{doing} ..."], {"markup": False, "soft_wrap": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def starting() -> AbstractContextManager[None]:
    """Show that the program starts: torch takes seconds to load."""
    return waiting("starting", in_logs=False)
