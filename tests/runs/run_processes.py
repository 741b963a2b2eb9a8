"""The command line in processes of their own, to be killed: they start in milliseconds."""

import contextlib
import importlib
import io
import os
import signal
import subprocess
import sys

from tests.forked import FORKS, PRELOADED
from widemax.cli import main
from widemax.cli.interruption import STOPPED


def warm_up():
    """Have the server load what the verbs load, once, so that a process works at once.

    To be called before the first process is started. It takes some seconds, and a minute where no
    kernel has been compiled yet; a process then takes a fifth to a tenth of the time.
    """
    # A pool of threads in the server would hang in its forks.
    os.environ.update(OMP_NUM_THREADS="1", WIDEMAX_WARM_UP="1")
    FORKS.set_forkserver_preload([*PRELOADED, "tests.runs.warm_up"])
    # The server ignores what it cannot import, and would be as slow as without.
    asked = FORKS.Process(target=_end_if_cold)
    asked.start()
    asked.join()
    if asked.exitcode:
        raise RuntimeError("the server of processes has not loaded tests.runs.warm_up")


def _end_if_cold():
    sys.exit(not getattr(sys.modules.get("tests.runs.warm_up"), "is_warm", False))


class Fresh:
    """A process of an interpreter of its own, with what a forked one is asked."""

    def __init__(self, arguments, output):
        command = [sys.executable, "-m", "widemax", *map(str, arguments)]
        with output.open("wb") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        self.pid, self.kill = self._process.pid, self._process.kill

    def join(self, timeout=None):
        """Wait for its end, or some seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    @property
    def exitcode(self):
        """Its exit code, None while it is running."""
        return self._process.poll()


def start(arguments, output, *, interrupt=None, limit=None, memory=None):
    """Start ``widemax`` with its output in a file; return the process.

    ``interrupt`` names a module, an attribute and the call of it in which Ctrl-C is pressed;
    ``limit`` is the longest file in bytes, ``memory`` what it may take beside what it starts with.
    """
    given = [str(argument) for argument in arguments]
    process = FORKS.Process(target=_run, args=(given, str(output), interrupt, limit, memory))
    process.start()
    return process


def finish(arguments, output, **options):
    """Run ``widemax`` to its end; return its exit code and what it said."""
    process = start(arguments, output, **options)
    process.join()
    return process.exitcode, output.read_text()


def run_here(arguments):
    """Run ``widemax`` in this process, which takes a fraction of the time; return the same."""
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code or 0
    if code == STOPPED:
        raise KeyboardInterrupt
    return code, said.getvalue()


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
