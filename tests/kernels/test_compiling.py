"""Kernels where their compiled code cannot be kept: slower at most, never an error."""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import widemax
from widemax.kernels import compiling
from widemax.kernels.compiling import njit, prange, temporary_folder, watch_compiling

PACKAGE = Path(widemax.__file__).parent

TRAIN = ("train", "log.csv", "--folder", "run", "--steps", "3")


@pytest.fixture
def homeless(tmp_path):
    """The environment of a process that finds no folder to cache in, whoever runs it."""
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / "widemax", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [path for path in source.rglob("*") if path.is_dir()]:
        (folder / "__pycache__").touch()  # no folder, so that not even root can write into it
    taken = tmp_path / "taken"
    taken.touch()
    (tmp_path / "temporary").mkdir()
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return {
        **kept,
        "PYTHONPATH": str(source),
        "HOME": str(taken),
        "XDG_CACHE_HOME": str(taken),
        "TMPDIR": str(tmp_path / "temporary"),
    }


def run_widemax(arguments, *, cwd, env):
    return subprocess.run(
        [sys.executable, "-m", "widemax", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=env,
        timeout=300,
    )


def test_every_verb_runs_without_a_folder_to_cache_in(homeless, tmp_path):
    rows = "".join(f"u{user},i{item % 7},{item}\n" for user in range(6) for item in range(user + 4))
    (tmp_path / "log.csv").write_text("user,item,time\n" + rows)
    trained = run_widemax(TRAIN, cwd=tmp_path, env=homeless)
    assert trained.returncode == 0, trained.stderr
    answer = run_widemax(
        ("recommend", "run", "--history", "i3", "--json"), cwd=tmp_path, env=homeless
    )
    assert answer.returncode == 0, answer.stderr
    assert '"i' in answer.stdout
    # What was compiled is kept among the temporary files, where nobody else can write.
    (kept,) = (tmp_path / "temporary").glob("widemax-kernels-*")
    assert kept.stat().st_mode & 0o777 == 0o700
    assert list(kept.rglob("*.nbc"))


def test_damaged_code_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def three(x):
        return 3 * x

    assert njit(cache=True)(three)(2) == 6
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(b"torn")
    assert njit(cache=True)(three)(2) == 6


def test_a_full_disk_costs_only_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._save_data", refuse)
    assert njit(cache=True)(lambda x: 5 * x)(2) == 10


def test_nowhere_to_keep_code(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    monkeypatch.setattr("widemax.kernels.keeping.temporary_folder", refuse_folder)
    assert njit(cache=True)(lambda x: 7 * x)(2) == 14


def refuse_folder():
    raise OSError(30, "Read-only file system")


def test_code_is_not_kept_where_others_can_write(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = temporary_folder()
    assert folder.parent == tmp_path
    folder.chmod(0o777)
    with pytest.raises(OSError, match="only this user"):
        temporary_folder()


@njit()
def _twice(x):
    return x + x


@njit(parallel=True)
def _sum_of_doubles(count):
    total = 0
    for number in prange(count):
        total += _twice(number)
    return total


def test_kernels_call_kernels_and_are_announced_when_they_are_compiled():
    named = []
    watch_compiling(named.append)
    assert _sum_of_doubles(4) == 12
    assert {"_sum_of_doubles", "_twice"} <= set(named)
    assert named[-1] == ""
    before = len(named)
    assert _sum_of_doubles(5) == 20
    assert len(named) == before
    assert _sum_of_doubles.py_func.__name__ == "_sum_of_doubles"


def test_numba_is_loaded_by_the_first_call():
    program = """
import sys
import widemax.kernels.data.grouping as kernels
import widemax.kernels.heads.topk
print("numba" in sys.modules)
import numpy as np
from widemax.kernels.compiling import Kernel
some = next(each for each in vars(kernels).values() if isinstance(each, Kernel))
some.dispatcher
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr


@njit()
def _one_more(x):
    return x + 1


@njit()
def _two_more(x):
    return _one_more(x) + 1


def test_threads_that_call_a_kernel_first_at_the_same_time_wait_for_it(monkeypatch):
    """One makes it, names and all; the others must not compile what is half made."""
    import numba  # noqa: F401 -- to load it takes longer than the others wait

    put = compiling._put_numba_in_place

    def put_slowly(function):
        time.sleep(0.5)
        put(function)

    monkeypatch.setattr(compiling, "_put_numba_in_place", put_slowly)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(_two_more, 1)
        time.sleep(0.1)
        second = threads.submit(_two_more, 2)
        assert (first.result(), second.result()) == (3, 4)
