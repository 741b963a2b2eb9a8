"""The candidate-sampling table, verified by brute force; and a wrong row of it is found."""

import importlib.util
import sys
from pathlib import Path

import pytest

from widemax import objectives

SCRIPT = Path(__file__).parents[2] / "experiments" / "table_truth.py"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])  # the script adds the folder of benchmarks
    spec = importlib.util.spec_from_file_location("table_truth", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["table_truth.py", "--check"])
    return module


def test_every_row_is_verified(script, capsys):
    script.main()
    shown = capsys.readouterr().out
    assert shown.count("verified") == len(script.ROWS) == 7
    assert "MISSED" not in shown


@pytest.mark.parametrize(
    "change",
    [
        {"objective": objectives.info_nce},  # no correction by log Q
        {"truth": lambda world: (world.prob / world.count).log()},
        {"up_to_a_constant": False},
    ],
    ids=["objective", "claim", "constant"],
)
def test_a_wrong_row_is_found(script, monkeypatch, capsys, change):
    row = script.ROWS["sampled_softmax"]._replace(**change)
    monkeypatch.setattr(script, "NUM_CONTEXTS", 1)
    monkeypatch.setattr(script, "ROWS", {"sampled_softmax": row})
    with pytest.raises(SystemExit) as stopped:
        script.main()
    assert stopped.value.code == "missed: sampled_softmax: largest error of F"
    assert "WRONG" in capsys.readouterr().out
