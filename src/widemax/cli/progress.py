"""What is shown while something takes its time."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

import typer

from widemax.cli.printable import printable
from widemax.kernels.compiling import ignore_compiling, watch_compiling

PATIENCE = 10.0
"""Seconds after which a log, unlike a terminal, is told what is going on."""


@contextmanager
def waiting(doing: str, *, in_logs: bool = True) -> Iterator[Callable[[str], None]]:
    """Show on stderr what is being done: a clock on a terminal, elsewhere a line if it takes long.

    On a terminal it vanishes when it is over, so that only results stay. What is yielded says that
    something else is being done by now.
    """
    # What rich takes for one, without loading it.
    if sys.stderr.isatty() or os.environ.get("FORCE_COLOR"):
        with _clock(printable(doing)) as change:
            yield change
        return
    now = [doing]
    timer = Timer(PATIENCE, lambda: typer.echo(f"{printable(now[0])} ...", err=True))
    timer.daemon = True
    if in_logs:
        timer.start()

    def change_line(other: str) -> None:
        now[0] = other

    try:
        yield change_line
    finally:
        timer.cancel()


@contextmanager
def _clock(doing: str) -> Iterator[Callable[[str], None]]:
    # Here and not above: what answers at once, or into a file, shows nothing.
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task, now = progress.add_task(escape(doing), total=None), [doing]

        def change(other: str) -> None:
            now[0] = printable(other)
            progress.update(task, description=escape(now[0]))

        with compiling_shown(
            lambda what: progress.update(task, description=escape(what or now[0]))
        ):
            yield change


@contextmanager
def compiling_shown(show: Callable[[str], object]) -> Iterator[None]:
    """Have a line shown while a kernel is compiled, which happens once; "" when it is over."""

    def tell(kernel: str) -> None:
        show(f"compiling {kernel}, for this and all later runs" if kernel else "")

    watch_compiling(tell)
    try:
        yield
    finally:
        ignore_compiling(tell)


@contextmanager
def starting() -> Iterator[None]:
    """Show that the program starts: torch takes seconds to load."""
    # All that is loaded stays: to look for garbage among it, again and again, takes a fifth as long
    # as to load it.
    collects = gc.isenabled()
    gc.disable()
    try:
        with waiting("starting", in_logs=False):
            yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
