"""What the program says beside its answers: once, in one line, and safe to print."""

import random

import pytest

from widemax.cli import main
from widemax.cli.train import _Display
from widemax.training.loop import Progress


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log with an item so popular that a batch holds it more than once."""
    draw = random.Random(0)
    rows = [
        f"u{user},i{int(30 * draw.random() ** 4)},{time}" for user in range(60) for time in range(9)
    ]
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    return path


def train(capfd, log, folder, *flags):
    """Train a small run; return what was said on stderr."""
    given = ("--epochs", "3", "--dimension", "4", "--validation-size", "20", *flags)
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(log), "--folder", str(folder), *given])
    said = capfd.readouterr().err
    assert not stopped.value.code, said
    return said


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--epochs", "2"), ", all 2 epochs: "),
        (("--steps", "4"), ", as --steps 4 says: "),
        (("--model", "popularity"), "finished after 1 step: "),
    ],
)
def test_a_training_says_why_it_ended_and_which_optimiser_was_chosen(
    flags, why, log, tmp_path, capfd
):
    given = () if "popularity" in flags else ("--optimizer", "auto", "--dimension", "4")
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(log), "--folder", str(tmp_path / "run"), *flags, *given])
    said = capfd.readouterr().err
    assert not stopped.value.code, said
    (ended,) = [line for line in said.splitlines() if line.startswith("finished after ")]
    assert ended.endswith(f"{why}{tmp_path / 'run'}")
    (parts,) = [line for line in said.splitlines() if line.startswith("model ")]
    assert (", optimizer dense-adam (auto)" in parts) == bool(given)


def test_training_on_says_that_the_index_is_of_before(log, tmp_path, capfd):
    folder, note = tmp_path / "run", "the index is of a checkpoint before: widemax index "
    flags = ("--validation-size", "0", "--resume")
    assert note not in train(capfd, log, folder, *flags)
    with pytest.raises(SystemExit) as stopped:
        main(["index", str(folder)])
    assert not stopped.value.code
    assert note not in train(capfd, log, folder, *flags)
    assert f"{note}{folder} builds it anew" in train(capfd, log, folder, *flags, "--epochs", "4")


def test_a_folder_does_not_drive_the_terminal(log, tmp_path, capfd):
    said = train(capfd, log, tmp_path / "a\x1b[31m[bold]b")
    assert "\x1b" not in said
    assert r"a\x1b[31m[bold]b" in said


def test_a_source_that_is_warned_of_does_not_either(log, tmp_path, capfd):
    rows = log.read_text().splitlines()
    unsorted = tmp_path / "log\x1b[31m.csv"
    unsorted.write_text("\n".join([rows[0], *reversed(rows[1:])]) + "\n")
    said = train(capfd, unsorted, tmp_path / "run")
    assert "not in time order" in said
    assert "\x1b" not in said


@pytest.mark.filterwarnings("default:sampled_softmax:UserWarning")
def test_a_warning_comes_once_and_can_be_followed(log, tmp_path, capfd):
    said = train(capfd, log, tmp_path / "run", "--sampler", "in-batch", "--batch-size", "64")
    warned = [line for line in said.splitlines() if "expected more than once" in line]
    assert len(warned) == 1
    assert warned[0].startswith("note: ")
    assert "--objective corrected-log-q" in warned[0]
    calm = train(
        capfd, log, tmp_path / "calm", "--sampler", "in-batch", "--objective", "corrected-log-q"
    )
    assert "expected more than once" not in calm
    # What a model is usually trained with was measured so: nobody is advised against it.
    usual = train(capfd, log, tmp_path / "usual", "--model", "two-tower")
    assert "expected more than once" not in usual


@pytest.mark.filterwarnings("default:sampled_softmax:UserWarning")
def test_an_audit_has_its_own_note_of_it(log, tmp_path, capfd):
    train(capfd, log, tmp_path / "run", "--sampler", "in-batch", "--batch-size", "64")
    with pytest.raises(SystemExit) as stopped:
        main(["audit", str(tmp_path / "run"), "--draws", "20"])
    printed = capfd.readouterr()
    assert not stopped.value.code, printed.err
    assert "note: A target is expected" in printed.out
    assert "expected more than once" not in printed.err


def test_the_speed_is_that_since_the_last_line():
    display = _Display(quiet=True)
    said = []
    display.say = said.append
    for step, seconds in ((10, 10.0), (110, 11.0)):  # the first step compiles
        display.validation(Progress(step=step, seconds=seconds), {})
    assert [line.split()[-2] for line in said] == ["1.0", "100"]


@pytest.mark.parametrize("head", ["sparsemax", "entmax-1.5", "top-k-softmax"])
def test_a_sparse_head_is_validated_by_what_is_finite(head, log, tmp_path, capfd):
    few = ("--top-k", "2") if head == "top-k-softmax" else ()
    said = train(capfd, log, tmp_path / "run", "--head", head, *few)
    assert "is infinite" not in said
    said = train(capfd, log, tmp_path / "by-loss", "--head", head, "--metric", "loss", *few)
    if "loss inf" in said:
        assert said.count("loss is infinite, so that no checkpoint is the best one") == 1


def test_an_infinite_validation_is_said(log, tmp_path, capfd):
    flags = ("--head", "top-k-softmax", "--top-k", "1", "--metric", "loss")
    said = train(capfd, log, tmp_path / "run", *flags)
    assert "loss inf" in said
    assert said.count("note: validation: loss is infinite") == 1


def test_fewer_draws_than_asked_for_are_said(log, tmp_path, capfd):
    said = train(capfd, log, tmp_path / "run", "--num-samples", "1024")
    assert "classes are drawn in place of num_samples = 1,024: " in said
    assert "distinct ones (--unique) are half of all at most" in said
