"""The command line in processes of their own, to be killed: they start in milliseconds."""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys

from widemax.cli import main

# A server that has imported all and computed nothing, so that no thread is lost by its forks.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["tests.runs.run_processes", "widemax.cli.app", "widemax.runs.preparing", "torch", "polars"]
)


def start(arguments, output, *, interrupt=None, limit=None, memory=None):
    """Start ``widemax`` with its output in a file; return the process.

    ``interrupt`` names a module, an attribute and the call of it in which Ctrl-C is pressed;
    ``limit`` is the longest file in bytes, ``memory`` what it may take beside what it starts with.
    """
    given = [str(argument) for argument in arguments]
    process = _FORKS.Process(target=_run, args=(given, str(output), interrupt, limit, memory))
    process.start()
    return process


def finish(arguments, output, **options):
    """Run ``widemax`` to its end; return its exit code and what it said."""
    process = start(arguments, output, **options)
    process.join()
    return process.exitcode, output.read_text()


def _run(arguments, output, interrupt, limit, memory):
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    # The server ignores what the terminal sends.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["widemax", *arguments]
    if interrupt is not None:
        _press_ctrl_c_in(*interrupt)
    if limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if memory is not None:
        import resource

        with open("/proc/self/statm") as file:  # noqa: PTH123
            most = int(file.read().split()[0]) * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with contextlib.suppress(BrokenPipeError):
        main()


def _press_ctrl_c_in(module, path, call):
    """Press Ctrl-C in the middle of one call of a function."""
    owner = importlib.import_module(module)
    *owners, name = path.split(".")
    for each in owners:
        owner = getattr(owner, each)
    real, calls = getattr(owner, name), 0

    def pressed(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments, **options)

    setattr(owner, name, pressed)
