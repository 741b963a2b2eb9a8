"""Python programs in processes of their own, forked from one that has imported what they need.

To import torch and the package takes two seconds of a processor, to fork a few milliseconds. A test
of what a program imports, or of what it does before its imports, starts a Python of its own.
"""

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

# A server that has imported all and computed nothing, so that no thread is lost by its forks.
FORKS = multiprocessing.get_context("forkserver")
PRELOADED = (
    "tests.forked",
    "tests.runs.run_processes",
    "widemax.cli.app",
    "widemax.runs.training.preparing",
    "widemax.runs.run",
    "torch",
    "polars",
    "numba",
)
FORKS.set_forkserver_preload(list(PRELOADED))


class Program:
    """A running program: what ``subprocess.Popen`` is to a command.

    What it prints and what it complains of are read from ``stdout`` and ``stderr``.
    """

    def __init__(self, words, *, cwd=None, env=None):
        self.args = [str(word) for word in words]
        place = str(cwd) if cwd is not None else str(Path.cwd())
        given = dict(os.environ if env is None else env)
        (out, out_end), (err, err_end) = FORKS.Pipe(duplex=False), FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=_run, args=(self.args, out_end, err_end, place, given))
        self._process.start()
        out_end.close()
        err_end.close()
        self.stdout, self.stderr = (os.fdopen(os.dup(each.fileno())) for each in (out, err))

    @property
    def pid(self):
        return self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def kill(self):
        self._process.kill()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout=None):
        """Wait until the program has ended; return its exit code."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self._process.exitcode

    def communicate(self, timeout=None):
        """Wait until the program has ended; return what it printed, and what it complained of."""
        with ThreadPoolExecutor(2) as threads:
            texts = [threads.submit(each.read) for each in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()  # so that there is an end to read to
                raise
            out, err = (each.result() for each in texts)
        self.close()
        return out, err

    def close(self):
        """End the program, if it has not ended, and read nothing more."""
        self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()


def run(words, *, cwd=None, env=None, check=False, timeout=None):
    """Run Python with these words to its end: as ``subprocess.run`` does, with text captured.

    The words are those after ``python``: ``-m widemax ...``, ``-c PROGRAM ...``, or a file and its
    arguments.
    """
    program = Program(words, cwd=cwd, env=env)
    out, err = program.communicate(timeout)
    done = subprocess.CompletedProcess(program.args, program.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _run(words, out, err, place, environment):
    for number, end in ((1, out), (2, err)):
        os.dup2(end.fileno(), number)
        end.close()
    # The server ignores what the terminal sends.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    if "OMP_NUM_THREADS" in environment:
        # Read when torch is imported, which has been.
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    try:
        with contextlib.suppress(BrokenPipeError):
            _execute(words)
    except SystemExit as stopped:
        # A text is printed and 1 returned, as a Python that ends does.
        if isinstance(stopped.code, str):
            print(stopped.code, file=sys.stderr)
            sys.exit(1)
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def _execute(words):
    kind, *rest = words
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        program, *arguments = rest
        sys.argv = ["-c", *arguments]
        sys.path.insert(0, "")
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(kind).parent))
        runpy.run_path(kind, run_name="__main__")
