"""Ctrl-C while there is nothing to save: the program ends at once, without a traceback."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

STOPPED = 130
"""Exit code of a program that Ctrl-C ended, as shells have it."""

_SCRIPTS = ("widemax", "widemax.exe", "widemax-script.py")


def _is_program() -> bool:
    """Return whether this process is ``widemax`` or ``python -m widemax``."""
    # While Python looks for the module of -m, that is the name of the program.
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":
        place = sys.orig_argv.index("-m") + 1 if "-m" in sys.orig_argv else 0
        return sys.orig_argv[place : place + 1] == ["widemax"]
    return os.path.basename(program) in _SCRIPTS  # noqa: PTH119 (pathlib takes time to load)


# Asked once: soon the first argument is the path of a file.
_IS_PROGRAM = _is_program()


def guard_start() -> None:
    """Let Ctrl-C stop the program while it starts; in any other process nothing changes.

    An exception within an import would be a traceback of pages, or be lost.
    """
    if _IS_PROGRAM:
        signal.signal(signal.SIGINT, _stop)


def guard_verb() -> None:
    """Let Ctrl-C raise ``KeyboardInterrupt``, after which a verb saves what it has."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def say_stopped() -> None:
    """Say on stderr that the program was stopped."""
    os.write(2, b"widemax: stopped\n")


def _stop(signal_number: int, frame: FrameType | None) -> None:
    say_stopped()
    os._exit(STOPPED)
