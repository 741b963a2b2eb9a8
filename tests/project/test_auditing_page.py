"""The page about audits is a transcript: its commands run, and print what it says they print."""

import os
import sys
from pathlib import Path

from tests.project.test_tour import execute, same_lines, transcript

PAGE = Path(__file__).parents[2] / "docs" / "auditing.md"


def test_the_page_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    steps = transcript(PAGE.read_text(encoding="utf-8"))
    assert len(steps) == 4
    for command, wanted in steps:
        printed = execute(command, capsys, monkeypatch)
        # On a slow machine a line says what is being waited for.
        lines = [line.rstrip() for line in printed if not line.endswith(" ...")]
        assert same_lines(lines, wanted), (command, lines)
