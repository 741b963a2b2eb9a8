"""Ctrl-C while the program starts: exit code 130 and one line, whatever is being imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import widemax

SOURCE = Path(widemax.__file__).parents[1]

# Python runs it before anything of the program.
PRESSES = """
import os, signal, sys

class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["PRESSED_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

# What a shell runs in the background ignores Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Pressed())
"""
SCRIPT = "import sys\nfrom widemax.cli import main\nsys.exit(main())\n"


def interrupted(program, module, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(PRESSES)
    path = os.pathsep.join([str(tmp_path), str(SOURCE)])
    return subprocess.run(
        [sys.executable, *program, "runs", str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "PRESSED_AT": module},
        timeout=120,
    )


@pytest.mark.parametrize(
    "module", ["lazy_loader", "widemax.declarations", "typer", "widemax.cli.app"]
)
@pytest.mark.parametrize("way", ["module", "script"])
def test_fault_30_ctrl_c_in_an_import_leaves_one_line(way, module, tmp_path):
    script = tmp_path / "widemax"
    script.write_text(SCRIPT)
    done = interrupted(["-m", "widemax"] if way == "module" else [str(script)], module, tmp_path)
    assert (done.returncode, done.stderr) == (130, "widemax: stopped\n")


def test_fault_30_ctrl_c_in_an_import_of_a_verb_leaves_no_traceback(tmp_path):
    done = interrupted(["-m", "widemax"], "widemax.runs.folder.description", tmp_path)
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_stays_an_exception_in_other_programs(tmp_path):
    program = "try:\n    import widemax\nexcept KeyboardInterrupt:\n    print('caught')"
    done = interrupted(["-c", program], "lazy_loader", tmp_path)
    assert (done.returncode, done.stdout) == (0, "caught\n")
