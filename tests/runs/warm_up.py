"""What a server of processes imports so that its forks are at work within milliseconds.

Each verb is run once in a fork, which tells what modules it imported and which kernels it compiled;
these are then loaded here, and nothing else: no tensor, table or loop is computed in the server,
because a pool of threads that has run once hangs in every fork that uses it. That holds for OpenMP
under torch, for Numba's parallel kernels and for polars, whose pool starts with its first query.
The threads that polars has from its import on only give memory back, and forks do without them.
"""

import gc
import importlib
import os
import pickle
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import polars  # noqa: F401  # before the threads are counted

import tests.kills  # noqa: F401  # a fork imports the main program, which takes this
from widemax.cli import main
from widemax.kernels.compiling import Kernel

FLAGS = ("--epochs", "1", "--dimension", "4", "--validation-size", "5")
EXPORTS = ("word2vec", "word2vec-binary", "numpy", "safetensors", "projector", "serving", "faiss")


def commands(folder):
    """Yield what the server is to be ready for, in an order in which each can run."""
    log, text, run, words = (folder / name for name in ("log.csv", "text", "run", "words"))
    rows = [f"u{k // 8},i{k * k % 23},{k}" for k in range(160)]
    log.write_text("\n".join(["user,item,time", *rows]) + "\n")
    text.write_text("the cat sat on the mat\nthe dog lay on the rug\n" * 20)
    yield ["train", log, "--folder", run, *FLAGS, "--batch-size", "32", "--checkpoint-every", "1"]
    yield ["train", log, "--folder", run, "--resume", "--epochs", "2"]
    yield ["index", run]
    yield ["recommend", run, "--user", "u3", "--json"]
    yield ["recommend", run, "--history", "i1"]
    yield ["similar", run, "i1"]
    yield ["evaluate", run]
    yield ["audit", run, "--draws", "20", "--examples", "8"]
    yield ["report", run]
    yield ["runs", folder]
    for name in EXPORTS:
        yield ["export", run, folder / name, "--to", name]
    yield ["train", text, "--folder", words, *FLAGS]
    for kind in ("exact", "hnsw", "ivf", "ivf8"):
        yield ["index", words, "--kind", kind]
    yield ["similar", words, "cat"]
    yield ["analogy", words, "cat", "dog", "mat"]
    yield ["export", words, folder / "vectors", "--to", "word2vec"]


def loaded_by(arguments):
    """Run the program in a fork; return the modules and the kernels' signatures that it had."""
    inward, outward = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            with suppress(SystemExit):
                main([str(each) for each in arguments])
            with os.fdopen(outward, "wb") as out:
                pickle.dump((list(sys.modules), _compiled()), out)
        finally:
            os._exit(0)
    os.close(outward)
    with os.fdopen(inward, "rb") as told:
        data = told.read()
    os.waitpid(child, 0)
    return pickle.loads(data)


def _kernels():
    """Yield the kernels of all modules, by name; those that start threads are left to the forks."""
    for each in gc.get_objects():
        if isinstance(each, Kernel) and not each._options.get("parallel"):
            yield (each.__module__, each.__qualname__), each


def _compiled():
    """Return the signatures of the kernels that are compiled, by name."""
    return {name: each._made.signatures for name, each in _kernels() if each._made is not None}


def _threads():
    with suppress(OSError):  # a system that does not list them
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208
    return 0


def warm_up():
    """Load what the verbs load; raise RuntimeError if that has started a thread."""
    before = _threads()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # to look at every object wakes what is deprecated
        for command in commands(Path(folder)):
            modules, compiled = loaded_by(command)
            for module in modules:
                with suppress(Exception):  # the other process had it as a part of something else
                    importlib.import_module(module)
            for name, kernel in _kernels():
                for signature in compiled.get(name, ()):
                    kernel.dispatcher.compile(signature)
    if _threads() != before:
        raise RuntimeError("the server of processes has started a thread: its forks would hang")
    # Forks share these pages for as long as no collection writes to them.
    gc.collect()
    gc.freeze()


# A server only imports, and whoever else imports this does not want to wait.
is_warm = "WIDEMAX_WARM_UP" in os.environ
if is_warm:
    warm_up()
