"""The program ``widemax``, which ends as soon as it is done."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def program() -> NoReturn:
    """Run ``widemax`` in a process of its own, and end that at once.

    Python takes torch apart when it ends, for most of a second in which whoever waits sees
    nothing: all that it would do is left to the system.
    """
    from widemax.cli import main

    try:
        main()
    except SystemExit as ended:
        _end(ended)
    _end(SystemExit(0))


def _end(ended: SystemExit) -> NoReturn:
    # What exits by a message, or has work left in a thread, ends as any program does.
    others = [each for each in threading.enumerate() if not each.daemon]
    quickly = "torch" in sys.modules and others == [threading.main_thread()]
    if not quickly or not isinstance(ended.code, int | None):
        raise ended
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads it any more, which Python reports in its own way
        raise ended from None
    os._exit(ended.code or 0)
