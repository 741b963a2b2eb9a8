"""The page that compares the figures of benchmarks with those of a commit."""

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The script, looking at a small repository of its own."""
    spec = importlib.util.spec_from_file_location("_page", ROOT / "benchmarks" / "_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def write(folder, *figures, cores=2):
    rows = [
        dict(zip(("name", "value", "limit", "direction", "holds"), each, strict=True))
        for each in figures
    ]
    (folder / "speed.json").write_text(json.dumps({"machine": {"cores": cores}, "figures": rows}))


def git(folder, *words):
    person = ["-c", "user.name=x", "-c", "user.email=x"]
    subprocess.run(["git", *person, *words], cwd=folder, check=True, capture_output=True)


def test_figures_stand_beside_those_of_the_commit(page, tmp_path):
    git(tmp_path, "init", "-q")
    write(tmp_path, ("step", 4.0, None, "at least", True), ("gone", 1.0, None, "at least", True))
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "then")
    write(
        tmp_path,
        ("step", 2.0, 1.0, "at most", False),
        ("new", 3.0, None, "at least", True),
        cores=8,
    )
    text = page.page("HEAD")
    assert "| step | 2 | 4 | 0.50 | **missed: at most 1** |" in text
    assert "| new | 3 | – | – |  |" in text
    assert "| gone | – | 1 | – |  |" in text
    assert "Measured with another cores." in text
