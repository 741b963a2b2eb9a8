"""The defects of well-known libraries are found by ``widemax audit`` on a trained run."""

import json
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from widemax.cli.app import app
from widemax.config.toml import read_toml
from widemax.declarations import table
from widemax.declarations.table import load_plugin

PLUGIN = Path(__file__).with_name("wrong_objectives.py")
USERS, LENGTH, ITEMS = 200, 10, 60


def widemax(*arguments, code=0):
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == code, (arguments, found.output, found.exception)
    return found.output


@pytest.fixture(scope="module", autouse=True)
def plugin():
    """Make the objectives known while these tests run, as --plugin does before the verb."""
    load_plugin(str(PLUGIN))
    yield
    for key, (declaration, _) in list(table._live.items()):
        if PLUGIN.stem in declaration.lives:
            del table._live[key]


def write_log(path, items):
    """Write a log in which users chose these items, one after the other, [users, length]."""
    users, length = items.shape
    pl.DataFrame(
        {
            "user": np.repeat(np.arange(users), length),
            "item": items.reshape(-1),
            "time": np.tile(np.arange(length), users),
        }
    ).write_csv(path)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log of few items, some of which are chosen much more often than others."""
    path = tmp_path_factory.mktemp("logs") / "log.csv"
    share = 1 / np.arange(1, ITEMS + 1)
    drawn = np.random.default_rng(0)
    write_log(path, drawn.choice(ITEMS, size=(USERS, LENGTH), p=share / share.sum()))
    return path


@pytest.fixture(scope="module")
def wide_log(tmp_path_factory):
    """A log of 200,005 items: five have half of all choices, the others one each."""
    path = tmp_path_factory.mktemp("logs") / "wide.csv"
    many = 200_000
    items = np.concatenate([np.arange(many) + 5, np.arange(many) % 5])
    np.random.default_rng(0).shuffle(items)
    write_log(path, items.reshape(-1, 20))
    return path


def audited(log, folder, objective, *flags, draws=100):
    """Train a run of one step with an objective, audit it, and return what was found."""
    widemax(
        *("train", log, "--folder", folder, "--model=next-item", f"--objective={objective}"),
        *("--sampler=unigram", "--no-unique", "--steps=1", "--dimension=4", *flags),
    )
    widemax("audit", folder, f"--draws={draws}", "--examples=48", "--json", folder / "found.json")
    return json.loads((folder / "found.json").read_text())


# Biases start at the frequencies of the classes: a run knows them without long training.
KNOWN = ("--bias", "--bias-start=1", "--extra-count=0")
SMALL = (*KNOWN, "--num-samples=600", "--distortion=1.0")
COSINE = (*SMALL, "--similarity=cosine", "--temperature=0.2")
# Rare items are drawn less often than a millionth each, and together a tenth of the time.
WIDE = (*KNOWN, "--num-samples=2000", "--distortion=1.2", "--batch-size=64")
WRONG = {"dropped": SMALL, "divided": COSINE, "masked-once": SMALL, "floored": WIDE}


def source_of(flags, request):
    return request.getfixturevalue("wide_log" if flags is WIDE else "log")


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_objective_is_flagged(name, request, tmp_path):
    found = audited(source_of(WRONG[name], request), tmp_path / "run", name, *WRONG[name])
    assert found["verdict"] == "biased", found["sentence"]
    # More samples were tried, and do not help; the right objectives do, and the sentence says so.
    more = [each for each in found["remedies"] if "num_samples" in each["settings"]]
    assert more
    assert "the number of samples is not what is wrong" in found["sentence"]
    assert "corrected-log-q" in found["sentence"]
    (best, *_) = found["commands"]
    assert "--objective" in shlex.split(best)


@pytest.mark.parametrize("flags", [SMALL, COSINE, WIDE], ids=["small", "cosine", "wide"])
def test_the_right_objective_with_enough_samples_is_not_flagged(flags, request, tmp_path):
    found = audited(source_of(flags, request), tmp_path / "run", "right", *flags)
    assert found["verdict"] == "faithful", found["sentence"]
    assert found["remedies"] == []
    assert found["commands"] == []


def test_few_samples_are_told_from_a_wrong_objective_and_the_command_can_be_typed(
    log, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    found = audited(log, tmp_path / "run", "sampled-softmax", *KNOWN, "--num-samples=3")
    assert found["verdict"] == "too few samples", found["sentence"]
    for command in found["commands"]:
        program, *arguments = shlex.split(command)
        assert program == "widemax"
        widemax(*arguments)
    trained = read_toml(Path(shlex.split(found["commands"][0])[4]) / "config.toml")
    tried = [each["settings"].items() <= trained.items() for each in found["remedies"]]
    assert sum(tried) == 1, "the run differs from the audited one by one remedy"
