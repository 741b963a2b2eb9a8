"""The program as a user meets it."""

import gc
import json
import logging
import os
import shlex
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import forked
from widemax.cli import main
from widemax.cli.answers import print_neighbours
from widemax.cli.app import app
from widemax.cli.errors import notes_in_one_line
from widemax.cli.progress import starting, waiting
from widemax.config.run_options import SLOTS
from widemax.config.settings import all_options
from widemax.declarations import names
from widemax.runs.folder.catalogue import Neighbour
from widemax.training.checkpoints import CheckpointStore

BIN = str(Path(sys.executable).parent)
PROGRAM = shutil.which("widemax", path=BIN)
# Typer looks at the parent process for the name of the shell, unless told not to.
NAMED_SHELL = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}


def run_program(*arguments, command=(PROGRAM,), **environment):
    """Run the installed program as a shell would."""
    if PROGRAM is None:
        pytest.skip("the program widemax is not installed beside this Python")
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "COLUMNS": "200", **environment},
    )


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


MISTAKE = ["train", "log.csv", "--folder", "run", "--epochs", "0"]
LINE = "widemax: --epochs must be a whole number between 1 and 1,000,000, or auto, got 0"


def test_a_mistake_shows_its_traceback_only_with_debug():
    plain = run_program(*MISTAKE)
    assert (plain.returncode, plain.stdout, plain.stderr) == (2, "", f"{LINE}\n")
    for asked in (run_program("--debug", *MISTAKE), run_program(*MISTAKE, WIDEMAX_DEBUG="1")):
        assert asked.returncode == 2
        assert asked.stderr.startswith("Traceback (most recent call last):")
        assert "in _check_flag" in asked.stderr
        assert asked.stderr.endswith(f"\n{LINE}\n")
    assert "Traceback" not in run_program(*MISTAKE, WIDEMAX_DEBUG="0").stderr


def test_a_defect_names_its_kind_and_how_to_see_more():
    """Exit code 1: a script can tell it from a mistake in what it asked for."""
    program = (
        "import sys, widemax.cli\n"
        "import widemax.cli.export\n"
        "def broken(*names, **_): raise RuntimeError('no such\\nthing')\n"
        "sys.modules['widemax.cli.export'].find = broken\n"
        "sys.argv[0] = 'widemax'\n"
        "widemax.cli.main()\n"
    )
    command = [sys.executable, "-c", program]
    plain = run_program("export", "run", "file", command=command)
    assert plain.returncode == 1
    assert plain.stderr == (
        "widemax: unexpected RuntimeError: no such (widemax --debug ... shows the traceback)\n"
    )
    asked = run_program("--debug", "export", "run", "file", command=command)
    assert asked.returncode == 1
    assert "in broken" in asked.stderr
    assert asked.stderr.endswith("\nwidemax: unexpected RuntimeError: no such\n")


def offered(shell, *words):
    """Return what the program offers a shell for the last word, and that it loads no torch."""
    words = ["widemax", *words]
    environment = {
        "bash": {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": " ".join(words)},
    }[shell]
    command = [sys.executable, "-X", "importtime", PROGRAM]
    done = run_program(command=command, _WIDEMAX_COMPLETE=f"complete_{shell}", **environment)
    assert "typer" in done.stderr
    assert not {"| torch\n", "| polars\n", "| numba\n"} & {
        f"| {line.split('|')[-1].strip()}\n" for line in done.stderr.splitlines()
    }
    return done.stdout


@pytest.mark.parametrize("name", SLOTS)
def test_completion_offers_the_choices_of_a_setting(name):
    found = offered("bash", "train", "log.csv", f"--{name}", "")
    assert found.split() == list(all_options()[name].choices)


def test_completion_offers_what_begins_like_it():
    assert offered("bash", "export", "run", "file", "--to", "w").split() == [
        name for name in names("export") if name.startswith("w")
    ]
    found = offered("zsh", "train", "log.csv", "--sampler", "un")
    assert '"uniform"' in found
    assert '"unigram"' in found
    assert "log-uniform" not in found
    assert '"train"' in offered("zsh", "tr")


def test_the_completion_that_is_shown_for_bash_works_in_bash():
    if shutil.which("bash") is None:
        pytest.skip("bash is not here")
    script = run_program("--show-completion", "bash", **NAMED_SHELL).stdout
    typed = (
        "COMP_WORDS=(widemax train log.csv --head hi); COMP_CWORD=4; _widemax_completion widemax"
    )
    done = run_program(
        command=["bash", "--norc", "-c", f'{script}\n{typed}\necho "${{COMPREPLY[@]}}"']
    )
    assert (done.stdout, done.stderr) == ("hierarchical\n", "")
    assert "compdef" in run_program("--show-completion", "zsh", **NAMED_SHELL).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_installed_at_home(shell, tmp_path):
    done = run_program("--install-completion", shell, HOME=str(tmp_path), **NAMED_SHELL)
    assert done.returncode == 0, done.stderr
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_widemax_completion" in text for text in written)


def call(monkeypatch, capsys, *arguments):
    """Run the program in this process; return its exit code and what it printed."""
    monkeypatch.setattr(sys, "argv", ["widemax", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0, capsys.readouterr()


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """The folder of a small run on text."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "text").write_text("the cat sat on the mat\nthe dog lay on the rug\n" * 20)
    arguments = ["train", str(folder / "text"), "--folder", str(folder / "runs" / "run")]
    arguments += ["--epochs", "1", "--dimension", "4", "--head", "full", "--validation-size", "9"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return folder / "runs" / "run"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["similar", "RUN", "cot"], "widemax: 'cot' is not among the 8 keys of .*; nearest: 'cat'"),
        (["similar", "RUN", "ITEM"], "'ITEM' is not among the 8 keys of .*, such as 'the', '"),
        (["similar", "nowhere", "cat"], "nowhere is not the folder of a run: there is nothing of"),
        (["recommend", "RUN"], "give either --user or --history"),
        (["recommend", "RUN", "--user", "ann"], "has no users: give a history instead"),
        (["export", "RUN", "file", "--to", "word2vek"], "did you mean 'word2vec'"),
        (["runs", "nowhere"], "nowhere is not a folder"),
        (["train", "absent", "--folder", "RUN"], "holds a run already"),
        (["train", "absent", "--folder", "RUN/new"], "absent cannot be read"),
        (["train", "absent", "--folder", "RUN/run.json"], "run.json is a file"),
        (["train", "absent", "--folder", "RUN", "--resume", "--seed", "7"],
         "--seed is 7, and .* was started with 0: a run that is resumed keeps its settings"),
        (["train", "absent", "--folder", "x", "--head", "full", "--num-samples", "9"],
         "--num-samples has no effect with head = 'full'"),
    ],
)  # fmt: skip
def test_the_usual_mistakes(arguments, named, words, monkeypatch, capsys):
    code, printed = call(
        monkeypatch, capsys, *(each.replace("RUN", str(words)) for each in arguments)
    )
    assert (code, printed.out) == (2, "")
    assert printed.err.count("\n") == 1
    with pytest.raises(ValueError, match=named):
        raise ValueError(printed.err)


def test_k_is_refused_before_the_run_is_loaded(monkeypatch, capsys):
    code, printed = call(monkeypatch, capsys, "similar", "nowhere", "cat", "-k", "0")
    assert code == 2
    assert "'--k' / '-k'" in printed.err


def test_the_neighbours_of_several_keys_stand_below_each(words, monkeypatch, capsys):
    code, printed = call(monkeypatch, capsys, "similar", words, "cat", "dog", "-k", "1")
    lines = printed.out.splitlines()
    assert code == 0
    assert (len(lines), lines[0], lines[2]) == (4, "cat:", "dog:")
    # A misspelt last key leaves no half answer.
    assert call(monkeypatch, capsys, "similar", words, "cat", "dgo")[1].out == ""


def test_resuming_takes_the_same_flags_again(words, monkeypatch, capsys):
    source = words.parent.parent / "text"
    flags = ["--folder", words, "--resume", "--epochs", "1", "--dimension", "4", "--head", "full"]
    code, printed = call(monkeypatch, capsys, "train", source, *flags)
    assert code == 0, printed.err
    assert "resumed at step" in printed.err
    assert "nothing was left to do: --resume --epochs 2 would go on" in printed.err


def test_what_a_file_sets_in_vain_is_refused_before_training(words, tmp_path, monkeypatch, capsys):
    path = tmp_path / "run.toml"
    path.write_text('head = "full"\nnum_samples = 7\nepochs = 1\ndimension = 4\n')
    source, folder = words.parent.parent / "text", tmp_path / "run"
    arguments = ["train", source, "--folder", folder, "--config", path]
    code, printed = call(monkeypatch, capsys, *arguments)
    assert (code, printed.out) == (2, "")
    message = f"widemax: {path}: num_samples has no effect with head = 'full', which has no sampler"
    assert printed.err.startswith(message)
    assert printed.err.count("\n") == 1
    assert not folder.exists()
    path.write_text(path.read_text().replace("num_samples = 7\n", ""))
    assert call(monkeypatch, capsys, *arguments)[0] == 0


def test_a_damaged_run_does_not_hide_the_others(words, tmp_path, monkeypatch, capsys):
    shutil.copytree(words, tmp_path / "[good]")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    code, printed = call(monkeypatch, capsys, "runs", tmp_path)
    assert code == 0
    assert "[good]" in printed.out
    shutil.copytree(words, tmp_path / ("long-" * 20))
    lines = call(monkeypatch, capsys, "runs", tmp_path)[1].out.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("long-" * 20 + "  ")
    assert printed.err.startswith("left out: ")
    assert "broken" in printed.err
    (tmp_path / "none").mkdir()
    assert call(monkeypatch, capsys, "runs", tmp_path / "none")[1].err.startswith("no runs in ")
    code, printed = call(monkeypatch, capsys, "runs", tmp_path / "[good]")
    assert code == 2
    assert "is a run itself: name the folder that holds it" in printed.err


def test_runs_are_listed_by_the_checkpoint_that_answers(words, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "words"
    shutil.copytree(words, folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    # Of what answers, whatever is written of others that are better or later.
    step = CheckpointStore(folder).chosen().step
    losses = {step - 1: 0.5, step: 1.25, step + 1: 2.5}
    rows = [json.dumps({**lines[0], "step": at, "loss": loss}) for at, loss in losses.items()]
    (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    _, listed = call(monkeypatch, capsys, "runs", tmp_path)
    assert f" {step:,}  loss 1.2500" in listed.out
    _, listed = call(monkeypatch, capsys, "runs", tmp_path, "--json")
    (row,) = json.loads(listed.out)
    assert (row["step"], row["loss"], row["metric"]) == (step, 1.25, "loss")


def test_a_sentence_needs_no_quotes(words, tmp_path, monkeypatch, capsys):
    flags = ["--model", "n-gram", "--folder", tmp_path / "run"]
    assert call(monkeypatch, capsys, "train", words.parent.parent / "text", *flags)[0] == 0
    code, quoted = call(monkeypatch, capsys, "score", tmp_path / "run", "the cat")
    assert code == 0
    assert len(quoted.out.splitlines()) >= 3
    assert call(monkeypatch, capsys, "score", tmp_path / "run", "the", "cat")[1].out == quoted.out


def test_titles_stand_below_one_another(capsys):
    found = [
        Neighbour(key="7", score=0.5, title="Tea"),
        Neighbour(key="31415", score=0.25, title="Rum"),
        Neighbour(key="k" * 30, score=0.125, title="Gin"),
    ]
    print_neighbours(found, as_json=False)
    tea, rum, gin = capsys.readouterr().out.splitlines()
    assert tea.index("Tea") == rum.index("Rum") == len("   0.2500  ") + 20 + 2
    assert gin.endswith(f"{'k' * 30}  Gin")
    print_neighbours([Neighbour(key="tea", score=0.5)], as_json=False)
    assert capsys.readouterr().out == "   0.5000  tea\n"


def test_a_note_stands_above_the_clock_and_not_behind_it(monkeypatch, capsys):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    with notes_in_one_line(), waiting("reading log.csv"):
        warnings.warn("too few [rows]", stacklevel=1)
        logging.getLogger("widemax").warning("too many [columns]")
    shown = capsys.readouterr().err
    for note in ("note: too few [rows]", "too many [columns]"):
        # What the line was before is erased.
        assert f"\r\x1b[2K{note}\n" in shown


def test_evaluate_reads_nothing_where_nothing_is_named(words, monkeypatch, capsys):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    code, printed = call(monkeypatch, capsys, "evaluate", words)
    assert code == 0
    assert "evaluating" in printed.err
    assert "reading" not in printed.err


def test_what_continues_a_run_names_its_plugins(words, tmp_path):
    plugin = tmp_path / "stops.py"
    plugin.write_text(
        "import os, signal\n"
        "import widemax as wm\n"
        "@wm.declare.objective('stops')\n"
        "def stops(target_scores, candidate_scores, **draws):\n"
        "    'Ctrl-C in the first step.'\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return wm.sampled_softmax(target_scores, candidate_scores, **draws)\n"
    )
    source, folder = words.parent.parent / "text", tmp_path / "run"
    flags = ["--model", "next-item", "--objective", "stops"]
    command = ["train", str(source), "--folder", str(folder)]
    done = forked.run(["-m", "widemax", "--plugin", str(plugin), *command, *flags], timeout=300)
    assert done.returncode == 130, done.stderr
    assert f"continue with: widemax --plugin {plugin} {shlex.join(command)} --resume" in done.stderr
    forgotten = forked.run(["-m", "widemax", *command, "--resume"], timeout=300)
    assert forgotten.returncode == 2
    assert (
        "got the text 'stops'; a method of your own is made known by --plugin" in forgotten.stderr
    )


def test_a_log_is_told_what_takes_long_and_nothing_else(monkeypatch, capsys):
    monkeypatch.setattr("widemax.cli.progress.PATIENCE", 0.01)
    with waiting("reading [clicks].csv"):
        deadline = time.monotonic() + 10
        while not (said := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert said == "reading [clicks].csv ...\n"
    monkeypatch.setattr("widemax.cli.progress.PATIENCE", 60)
    with waiting("reading"):
        pass
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_clock_that_vanishes(monkeypatch, capsys):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    with waiting("reading [clicks].csv"):
        pass
    shown = capsys.readouterr().err
    assert "reading [clicks].csv" in shown
    assert "0:00:00" in shown
    assert shown.endswith("\x1b[2K")


def test_no_garbage_is_looked_for_while_the_program_starts():
    assert gc.isenabled()
    before = gc.get_freeze_count()
    try:
        with starting():
            loaded = [[] for _ in range(1000)]
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(loaded)
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "next-item", "--num-samples", "900"], True),
        # Also where it is the default.
        (["--model", "next-item"], True),
        # Draws that need not be distinct can be as many as one likes.
        (["--model", "next-item", "--num-samples", "900", "--no-unique"], False),
        (["--num-samples", "900"], False),
    ],
)
def test_fewer_samples_than_asked_for_are_said(
    flags, said, words, tmp_path, monkeypatch, capsys, caplog
):
    source, folder = words.parent.parent / "text", tmp_path / "run"
    code, _ = call(monkeypatch, capsys, "train", source, "--folder", folder, "--steps", "1", *flags)
    assert code == 0
    assert ("4 classes are drawn in place of num_samples = " in caplog.text) == said


def test_a_plugin_cannot_claim_a_setting_of_every_run(tmp_path):
    """In a process of its own, where nothing of the configuration was imported before."""
    plugin = tmp_path / "claims.py"
    plugin.write_text(
        "import widemax as wm\n"
        "@wm.declare.objective('mine', options=[wm.Option('seed', 'a', 'A text.')])\n"
        "def mine(): 'Mine.'\n"
    )
    command = [sys.executable, "-m", "widemax", "--plugin", str(plugin), "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "declares 'seed' otherwise than run" in done.stderr
    assert "Traceback" not in done.stderr
    shown = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "WIDEMAX_DEBUG": "1"}
    )
    assert "Traceback" in shown.stderr


def test_neighbours_of_several_keys_are_one_json_document(words, monkeypatch, capsys):
    keys = json.loads(call(monkeypatch, capsys, "similar", words, "the", "--json")[1].out)
    first, second = keys[0]["key"], keys[1]["key"]
    _, printed = call(monkeypatch, capsys, "similar", words, first, second, "--json")
    found = json.loads(printed.out)
    assert list(found) == [first, second]
    assert all(row["key"] != key for key, rows in found.items() for row in rows)
