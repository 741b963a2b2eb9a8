"""The tour is a transcript: its commands run, and print what it says they print.

In what a command prints, words are compared as they stand, a number may be a quarter or 0.1 away
from the one in the tour, and ``...`` stands for any word, for any words at the end of a line, and
for any lines alone on one.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import widemax as wm
from widemax.cli import main

TOUR = Path(__file__).parents[2] / "docs" / "tour.md"
NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?")
# The least difference that counts: a loss of 0.001 is as good as one of 0.
SMALL = 0.1


def transcript(text):
    """Return the commands of a page, each with the lines that it prints."""
    steps = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            elif line.startswith("> "):
                steps[-1] = (f"{steps[-1][0]}\n{line[2:]}", [])
            else:
                steps[-1][1].append(line)
    return steps


def execute(command, capsys, monkeypatch):
    """Return the lines that a command prints; the program itself runs in this process."""
    if command.startswith("widemax "):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as stopped:
            main()
        code, printed = stopped.value.code, capsys.readouterr()
        output, errors = printed.out, printed.err
    else:
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        code, output, errors = done.returncode, done.stdout, done.stderr
    assert not code, f"{command}: {errors}"
    return (errors + output).splitlines()


def agree(word, wanted):
    if wanted == "...":
        return True
    if NUMBER.fullmatch(word) and NUMBER.fullmatch(wanted):
        found, expected = (float(number.replace(",", "")) for number in (word, wanted))
        return abs(found - expected) <= max(abs(expected) / 4, SMALL)
    return word == wanted


def same_line(line, wanted):
    words, expected = line.split(), wanted.split()
    if expected[-1:] == ["..."]:
        words = words[: len(expected)]
    return len(words) == len(expected) and all(map(agree, words, expected))


def same_lines(lines, wanted):
    if "..." in wanted:
        place = wanted.index("...")
        rest = wanted[place + 1 :]
        if len(lines) < place + len(rest):
            return False
        lines, wanted = [*lines[:place], *lines[len(lines) - len(rest) :]], wanted[:place] + rest
    return len(lines) == len(wanted) and all(map(same_line, lines, wanted))


def test_the_commands_of_the_tour_print_what_it_says(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    # On a busy machine a log is told that something takes long.
    monkeypatch.setattr("widemax.cli.progress.PATIENCE", 3600.0)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    steps = transcript(TOUR.read_text())
    for command, wanted in steps:
        lines = execute(command, capsys, monkeypatch)
        shown = "\n".join(lines)
        assert same_lines(lines, wanted), f"$ {command}\nprinted, unlike the tour:\n{shown}"
    verbs = {command.split()[1] for command, _ in steps if command.startswith("widemax ")}
    assert verbs == {
        "train", "evaluate", "similar", "score", "generate", "recommend", "export", "runs"
    }  # fmt: skip
    assert "dictionary" in wm.vectors.read_word2vec_text("vectors.txt")


@pytest.mark.parametrize(
    ("lines", "wanted", "same"),
    [
        (["loss 4.5  12 steps/s"], ["loss 4.0 ... steps/s"], True),
        (["loss 5.1"], ["loss 4.0"], False),
        (["1,500 classes"], ["1,412 classes"], True),
        (["once there was a king"], ["once there ..."], True),
        (["once"], ["once ..."], False),
        (["never there was"], ["once there ..."], False),
        (["mapping"], ["dictionary"], False),
        (["one", "two", "three"], ["one", "...", "three"], True),
        (["one", "two", "four"], ["one", "...", "three"], False),
        (["one"], ["one", "...", "one"], False),
        (["one", "two"], ["one"], False),
        ([], ["one"], False),
    ],
)
def test_what_is_taken_for_the_same(lines, wanted, same):
    assert same_lines(lines, wanted) == same


def test_a_command_goes_on_over_lines():
    page = "text\n```console\n$ cat <<END\n> hello\n> END\nhello\n$ true\n```\n"
    assert transcript(page) == [("cat <<END\nhello\nEND", ["hello"]), ("true", [])]
