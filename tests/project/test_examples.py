"""The examples run as they stand, and learn."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# The 20 most popular items alone give 0.31; whoever knew the truth would reach 0.46.
LEAST_RECALL = 0.38


def run(name):
    """Return what an example prints, on one thread."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def recall(printed):
    return float(re.search(r"^recall@20 (0\.\d+)$", printed, re.MULTILINE)[1])


def test_a_head_in_a_plain_loop():
    printed = run("plain_torch.py")
    assert printed.count("loss") == 3
    assert recall(printed) > LEAST_RECALL


def test_a_head_in_a_lightning_module():
    pytest.importorskip("lightning")
    assert recall(run("lightning_module.py")) > LEAST_RECALL


def test_every_example_is_run_here():
    tested = Path(__file__).read_text()
    assert all(f'run("{path.name}")' in tested for path in EXAMPLES.glob("*.py"))
