"""Kernels where their compiled code cannot be kept: slower at most, never an error."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import widemax
from widemax.kernels.compiling import njit

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
    unset = ("HOME", "NUMBA_CACHE_DIR")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return {**kept, "PYTHONPATH": str(source), "HOME": str(taken), "XDG_CACHE_HOME": str(taken)}


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
