"""The program as a user meets it."""

import json
import math
import sys

import pytest
from typer.testing import CliRunner

from widemax.cli import app, main
from widemax.cli.demo import OUTPUT_LAYERS


def test_demo_prints_one_row_per_output_layer_and_writes_its_figures(tmp_path):
    figures = tmp_path / "demo.json"
    arguments = ["demo", "--num-classes", "300", "--steps", "5", "--json", str(figures)]
    result = CliRunner(env={"COLUMNS": "120"}).invoke(app, arguments)
    assert result.exit_code == 0, result.output
    rows = json.loads(figures.read_text())
    assert [row["method"] for row in rows] == list(OUTPUT_LAYERS)
    for row in rows:
        assert row["method"] in result.output
        assert row["kl_to_truth"] > 0
        assert row["test_log_likelihood"] < 0
        assert all(math.isfinite(value) for key, value in row.items() if key != "method")


def test_same_seed_same_figures(tmp_path):
    rows = []
    for name in ("one.json", "two.json"):
        path = tmp_path / name
        arguments = ["demo", "--num-classes", "50", "--steps", "3", "--json", str(path)]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        rows.append(json.loads(path.read_text()))
    for one, other in zip(*rows, strict=True):
        assert one | {"milliseconds_per_step": 0} == other | {"milliseconds_per_step": 0}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--steps", "0"], "steps"),
        (["--num-classes", "0"], "num_classes"),
        # Refused before the minute of training, not after it.
        (["--json", "no/such/folder/figures.json"], "json must lie in an existing folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, named, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["widemax", "demo", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    message = capsys.readouterr().err.strip()
    assert message.startswith("widemax: ")
    assert named in message
    assert "\n" not in message
