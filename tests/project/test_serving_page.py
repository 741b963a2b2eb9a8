"""docs/serving.md is a transcript: its commands run in one shell, and print what it says."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.project.test_tour import same_lines, transcript

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
PORT = "8765"
MARK = "=== end of a command ==="


def test_the_commands_of_the_page_print_what_it_says(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The port of the page may be taken here.
    steps = transcript(PAGE.read_text().replace(PORT, str(port)))
    # One shell for all: the server runs in its background, and ends with it.
    script = "\n".join(f"{command}\necho '{MARK}'" for command, _ in steps)
    # A program and not a function, which would be a shell around it: kill must reach the server.
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "widemax"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m widemax "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join(
        [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=300,
    )
    printed = done.stdout.split(f"{MARK}\n")[:-1]
    assert len(printed) == len(steps)
    for (command, wanted), shown in zip(steps, printed, strict=True):
        assert same_lines(shown.splitlines(), wanted), f"$ {command}\nprinted:\n{shown}"
