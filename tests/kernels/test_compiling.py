"""Kernels where their code cannot be kept: slower at most, never an error and never other bits."""

import hashlib
import os
import random
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


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a log."""
    folder, draw = tmp_path_factory.mktemp("place"), random.Random(0)
    rows = (f"u{draw.randrange(100)},i{int(150 * draw.random() ** 3)},{n}\n" for n in range(2000))
    (folder / "log.csv").write_text("user,item,time\n" + "".join(rows))
    return folder


@pytest.fixture(scope="module")
def homeless(place):
    """The environment of a process that finds no folder to cache in, whoever runs it."""
    source = place / "source"
    shutil.copytree(PACKAGE, source / "widemax", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [path for path in source.rglob("*") if path.is_dir()]:
        (folder / "__pycache__").touch()  # no folder, so that not even root can write into it
    taken = place / "taken"
    taken.touch()
    (place / "temporary").mkdir()
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return {
        **kept,
        "PYTHONPATH": str(source),
        "HOME": str(taken),
        "XDG_CACHE_HOME": str(taken),
        "TMPDIR": str(place / "temporary"),
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


def train(folder, *, cwd, env):
    """Train; return the digest of the model, and when each piece of kept code was written."""
    arguments = ("train", "log.csv", "--folder", folder, "--steps", "3", "--threads", "1")
    trained = run_widemax(arguments, cwd=cwd, env=env)
    assert trained.returncode == 0, trained.stderr
    (model,) = (cwd / folder).rglob("model.safetensors")
    # Among the temporary files, where nobody else can write.
    (kept,) = (cwd / "temporary").glob("widemax-kernels-*")
    assert kept.stat().st_mode & 0o777 == 0o700
    code = {path: path.stat().st_mtime_ns for path in kept.rglob("*.nbc")}
    return hashlib.sha256(model.read_bytes()).hexdigest(), code


@pytest.fixture(scope="module")
def compiled(place, homeless):
    """What the first training of an installation gives, which compiles all it calls."""
    return train("compiled", cwd=place, env=homeless)


def test_fault_31_every_verb_runs_without_a_folder_to_cache_in(compiled, place, homeless):
    _, code = compiled
    assert code
    answer = run_widemax(
        ("recommend", "compiled", "--history", "i3", "--json"), cwd=place, env=homeless
    )
    assert answer.returncode == 0, answer.stderr
    assert '"i' in answer.stdout


def test_a_run_that_compiles_its_kernels_has_the_same_bits_as_one_that_does_not(
    compiled, place, homeless
):
    model, code = train("kept", cwd=place, env=homeless)
    # What an answer compiled since may have come in; what a training calls was there.
    assert compiled[1].items() <= code.items()
    assert model == compiled[0]


LOG_SUMS = """
import hashlib, sys
import numpy as np, torch
from widemax.kernels.objectives import log_sum

random = np.random.default_rng(0)
scores = random.normal(size=(700, 203)).astype(np.float32)
log_count = random.normal(size=(1, 203)).astype(np.float32)
if sys.argv[1] == "alone":
    one = np.float32(1)
    log_sum._raise(scores[0].copy(), log_count[0], scores[0].max(), one, one)
for threads in (1, 2):
    torch.set_num_threads(threads)
    found = scores.copy()
    results = log_sum.row_log_sums(found, log_count, log_count > 9, 1.0)
    print(hashlib.sha256(b"".join(each.tobytes() for each in (found, *results))).hexdigest())
"""


def test_the_bits_of_a_kernel_do_not_depend_on_what_was_compiled_or_called_before(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def digests(case):
        command = [sys.executable, "-c", LOG_SUMS, case]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=300, check=True
        )
        return done.stdout.split()

    compiled = digests("compiled")
    assert len(compiled) == 2
    assert digests("kept") == compiled
    # Of what the kernel calls, a copy of its own is in the cache: neither serves the other.
    assert digests("alone") == compiled


def test_code_of_another_compiler_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def five(x):
        return 5 * x

    compiled = []
    watch_compiling(compiled.append)
    try:
        njit(cache=True)(five)(2)
        njit(cache=True)(five)(2)
        assert compiled == ["five", ""]
        other = type("Other", (), {})
        monkeypatch.setattr("widemax.kernels.keeping.SelfContainedCompiler", other)
        njit(cache=True)(five)(2)
        assert compiled == ["five", ""] * 2
    finally:
        compiling.ignore_compiling(compiled.append)


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


def test_fault_31_nowhere_to_keep_code(monkeypatch):
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


def test_the_algebra_of_scipy_is_loaded_only_by_kernels_that_multiply_matrices():
    pytest.importorskip("scipy")
    program = """
import sys
import numpy as np
from widemax.kernels.compiling import njit
njit()(lambda x: x + 1)(1)
print("scipy.linalg" in sys.modules)
print(njit()(lambda x: np.dot(x, x))(np.ones(3)), "scipy.linalg" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "3.0", "True"], done.stderr


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
