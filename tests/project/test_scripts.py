"""Benchmarks and experiments are commands: --json, --check, and bars that can be missed."""

import json
from pathlib import Path

import pytest

from tests import forked

ROOT = Path(__file__).parents[2]
BENCHMARKS, EXPERIMENTS = ROOT / "benchmarks", ROOT / "experiments"
SCRIPTS = [path for folder in (BENCHMARKS, EXPERIMENTS) for path in folder.glob("[!_]*.py")]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_takes_json_and_check(script):
    shown = forked.run([script, "--help"], check=True).stdout
    assert "--json" in shown
    assert "--check" in shown


@pytest.mark.parametrize(("value", "code"), [(3.0, 0), (1.0, 1), (float("nan"), 1)])
def test_check_exits_non_zero_where_a_bar_is_missed(value, code, tmp_path):
    figures = tmp_path / "figures.json"
    program = (
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from _harness import Report, command_line\n"
        "report = Report(command_line('').parse_args())\n"
        f"report.add('speed', float({str(value)!r}), 2)\n"
        "report.add('only told', 7)\n"
        "report.finish()\n"
    )
    done = forked.run(["-c", program, "--check", "--json", figures])
    assert done.returncode == code
    assert "speed" in done.stdout.splitlines()[-2]
    written = json.loads(figures.read_text())["figures"]
    assert [figure["holds"] for figure in written] == [code == 0, True]
