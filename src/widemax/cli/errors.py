"""How an error is shown: one line, and the traceback for whoever asks for it."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer

from widemax.cli.printable import printable

MISTAKE = 2
"""Exit code for what the user can put right; that of a wrong option too."""

DEFECT = 1
"""Exit code for what should not have happened."""


@dataclass
class ErrorDisplay:
    """Shows errors; ``--debug`` turns its tracebacks on before a verb runs."""

    tracebacks: bool = False

    def show(self, error: Exception) -> int:
        """Print an error on stderr; return the exit code that it deserves."""
        if self.tracebacks:
            typer.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        expected = isinstance(error, ValueError | OSError)
        line = one_line(error) if expected else self._describe_defect(error)
        typer.echo(f"widemax: {line}", err=True)
        return MISTAKE if expected else DEFECT

    def _describe_defect(self, error: Exception) -> str:
        # Only the first line: libraries write whole pages.
        first = str(error).strip().partition("\n")[0]
        about = f"{type(error).__name__}: {printable(first)}" if first else type(error).__name__
        hint = "" if self.tracebacks else " (widemax --debug ... shows the traceback)"
        return f"unexpected {about}{hint}"


def _print_note(text: str) -> None:
    # Not by typer.echo, which writes past rich: behind a clock or a bar instead of above it.
    print(printable(text), file=sys.stderr, flush=True)


class _PrintedLog(logging.Handler):
    """Prints what the library logs, with control characters of file names shown as escapes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record on stderr."""
        _print_note(record.getMessage())


@contextmanager
def notes_in_one_line() -> Iterator[None]:
    """Show warnings and log records as one line each, without the line of code they come from."""
    log, handler = logging.getLogger("widemax"), _PrintedLog(logging.WARNING)

    def show(message: Warning | str, *_: object) -> None:
        _print_note(f"note: {' '.join(str(message).split())}")

    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show  # type: ignore[assignment]
            yield
    finally:
        log.removeHandler(handler)


def one_line(error: Exception) -> str:
    """Return a mistake in one line; that of the system begins with the file it is about.

    >>> one_line(FileNotFoundError(2, "No such file or directory", "log.csv"))
    'log.csv: No such file or directory'
    >>> one_line(ValueError("k must be at least 1, got 0"))
    'k must be at least 1, got 0'
    """
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error) or type(error).__name__
    return printable(" ".join(text.splitlines()))
