"""What all tests run on: files in memory, a program whose flags are made once, less garbage."""

import functools
import gc
import os
from unittest.mock import patch

import typer.testing

from tests.memory import folder_in_memory

# What is imported stays: there is nothing to find in it.
gc.disable()

_make_command = functools.lru_cache(typer.testing._get_command)
_invoke = typer.testing.CliRunner.invoke


def _invoke_made(self, app, args=None, *others, **options):
    """Run a program as Typer's runner does, whose hundreds of flags it makes anew for each call."""
    if "--help" in (args or ()):  # which shows some of the flags, and hides the others for good
        return _invoke(self, app, args, *others, **options)
    with patch("typer.testing._get_command", _make_command):
        return _invoke(self, app, args, *others, **options)


def pytest_configure():
    """Keep the flags of a program, and temporary files in memory where there is room."""
    typer.testing.CliRunner.invoke = _invoke_made
    if folder := folder_in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))


def pytest_collection_finish():
    """Leave the modules and tests, which stay to the end, out of every later collection."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000)


def pytest_unconfigure():
    """Let the end of Python find them again: libraries complain of what is left."""
    gc.unfreeze()
