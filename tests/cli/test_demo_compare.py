"""``widemax demo --compare``: six output layers beside the known truth."""

import json
import math

import pytest
from typer.testing import CliRunner

from widemax.cli.app import app
from widemax.cli.demo.output_layers import OUTPUT_LAYERS


def compare(*arguments):
    """Run the comparison; return what it printed."""
    result = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["demo", "--compare", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_one_row_is_printed_for_each_output_layer_and_its_figures_are_written(tmp_path):
    figures = tmp_path / "demo.json"
    output = compare("--num-classes", "300", "--steps", "5", "--json", str(figures))
    rows = json.loads(figures.read_text())
    assert [row["method"] for row in rows] == list(OUTPUT_LAYERS)
    for row in rows:
        assert row["method"] in output
        assert row["kl_to_truth"] > 0
        assert row["test_log_likelihood"] < 0
        assert all(math.isfinite(value) for key, value in row.items() if key != "method")


def test_same_seed_same_figures(tmp_path):
    rows = []
    for name in ("one.json", "two.json"):
        path = tmp_path / name
        compare("--num-classes", "50", "--steps", "3", "--json", str(path))
        rows.append(json.loads(path.read_text()))
    for one, other in zip(*rows, strict=True):
        assert one | {"milliseconds_per_step": 0} == other | {"milliseconds_per_step": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-classes", "19"], "num_classes must be at least 20 for recall@20, got 19"),
        (["--steps", "0"], "steps must be at least 1, got 0"),
        (["--folder", "shop"], "--folder has no effect with --compare"),
        (["--json", "no/such/folder/figures.json"], "json must lie in an existing folder"),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(arguments, message):
    result = CliRunner().invoke(app, ["demo", "--compare", *arguments])
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)
