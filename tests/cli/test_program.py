"""How the program ends: at once, with what it printed, its exit code, and what was to be done."""

import subprocess
import sys

import pytest

# A module stands in for torch, whose unloading is what is not waited for.
PROGRAM = """
import atexit, sys, threading, types
import widemax.cli
from widemax.cli.program import program

class Loud:
    def __del__(self):
        print("unloaded")

sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].loud = Loud()
atexit.register(lambda: print("last"))

def main():
    print("done")
    {body}

widemax.cli.main = main
program()
"""


@pytest.mark.parametrize(
    ("body", "code", "printed"),
    [
        ("pass", 0, ["done", "last"]),
        ("sys.exit(0)", 0, ["done", "last"]),
        ("sys.exit(130)", 130, ["done", "last"]),
        # Whatever is not plain ends as Python ends it.
        ("sys.exit('a message')", 1, ["done", "last", "unloaded"]),
        ("del sys.modules['torch']", 0, ["done", "unloaded", "last"]),
        (
            "threading.Timer(0.2, print, ['thread']).start()",
            0,
            ["done", "thread", "last", "unloaded"],
        ),
    ],
)
def test_it_ends_at_once_with_what_was_to_be_done(body, code, printed):
    program = PROGRAM.replace("{body}", body)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split()) == (code, printed)
    assert ("a message" in ended.stderr) == ("a message" in body)


def test_an_error_is_still_a_traceback():
    program = PROGRAM.replace("{body}", "raise ZeroDivisionError")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr
    assert ended.stdout.split()[:2] == ["done", "last"]


def test_a_reader_that_has_gone_is_no_success():
    program = PROGRAM.replace("{body}", "print('x' * 10**6)")
    reader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    reader.stdout.close()
    assert reader.wait() != 0
