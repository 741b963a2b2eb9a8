"""``widemax advise``: the decision table, the cost model, what is kept, and the way to a run."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from widemax.advising import Machine, Popularity, advise
from widemax.advising import machine as machines
from widemax.advising.fitting import fitted_costs
from widemax.advising.machine import steps_of
from widemax.advising.memory import memory_of
from widemax.advising.work import OPERATIONS, work_of
from widemax.cli.app import app, run_app
from widemax.cli.errors import ErrorDisplay
from widemax.config import Config

TABLE = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text(encoding="utf-8")
TYPICAL = Machine.typical()

# A plan, what is taken, and what the row of the decision table that holds says.
CASES = {
    "10k words, probabilities needed": (
        {"classes": 10_000, "data": "text", "needs": ["probabilities"]},
        {"model": "nnlm", "head": "full"},
        ("up to some 10,000 classes", "FullHead"),
    ),
    "1M items, single-label": (
        {"classes": 1e6, "labels": 1},
        {"head": "sampled", "sampler": "unigram", "objective": "sampled-softmax", "unique": True},
        ("10^5 classes or more, one label", "UnigramSampler(unique=True)` + `sampled_softmax"),
    ),
    "1M items, multi-label": (
        {"classes": 1e6, "labels": 20},
        {"model": "item2vec", "head": "sampled", "objective": "negative-sampling"},
        ("many labels per example", "negative_sampling"),
    ),
    "50M items, 8 GB": (
        {"classes": 50e6, "memory": "8GB"},
        {
            "head": "sampled",
            "sampler": "log-uniform",
            "objective": "sampled-softmax",
            "unique": True,
            "optimizer": "rowwise-adagrad",
        },
        ("10^5 classes or more, one label", "LogUniformSampler(unique=True)"),
    ),
    "new items with features": (
        {"classes": 1e5, "needs": ["new-items"]},
        {"model": "two-tower", "scorer": "tower", "sampler": "in-batch"},
        ("class vectors from an item tower", "InBatchSampler"),
    ),
    "2k items": (
        {"classes": 2000},
        {"head": "full"},
        ("up to some 10,000 classes", "FullHead"),
    ),
    "100k words, probabilities needed": (
        {"classes": 1e5, "data": "text", "needs": ["probabilities"]},
        {"head": "adaptive"},
        ("normalised probabilities over skewed classes", "AdaptiveHead"),
    ),
    "3M words, probabilities needed": (
        {"classes": 3e6, "data": "text", "needs": ["probabilities"]},
        {"head": "hierarchical"},
        ("normalised probabilities at the price of log V", "HierarchicalHead"),
    ),
    "1M words, probabilities and an index": (
        {"classes": 1e6, "data": "text", "needs": ["probabilities", "serving"]},
        {"head": "sampled", "objective": "nce", "bias": True},
        ("a score that is a log-probability", "nce"),
    ),
    "new words": (
        {"classes": 1e5, "data": "text", "needs": ["new-items"]},
        {"scorer": "char-cnn"},
        ("classes that training never saw", "CharCNNScorer"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_choice_is_that_of_the_decision_table(case):
    question, expected, (when, what) = CASES[case]
    advice = advise(machine=TYPICAL, **question)
    assert {name: advice.config.values[name] for name in expected} == expected
    (row,) = [line for line in TABLE.splitlines() if line.startswith("| ") and when in line]
    assert what in row
    assert all(each.why.endswith(".") and each.decision for each in advice.reasons)
    decided = {each.about for each in advice.reasons}
    assert {"model", "head", *expected.keys() & {"sampler", "objective"}} <= decided
    limit = advice.situation.memory
    assert not limit or sum(advice.memory.values()) <= limit


def test_what_is_given_is_kept():
    advice = advise(classes=1e6, machine=TYPICAL, head="importance", dimension=16, batch_size=32)
    assert (advice.config.head, advice.config.dimension, advice.config.batch_size) == (
        "importance",
        16,
        32,
    )
    why = {each.about: each.why for each in advice.reasons}
    assert why["head"] == why["batch_size"] == "You have decided it."


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({}, "give a source, or classes"),
        ({"classes": 0}, "classes must be between 1 and"),
        ({"classes": 1e300}, "classes must be between 1 and"),
        ({"classes": float("nan")}, "classes must be a whole number"),
        ({"classes": float("inf")}, "classes must be a whole number"),
        ({"classes": 10, "labels": 0.5}, "labels must be at least 1, got 0.5"),
        ({"classes": 10, "needs": ["speed"]}, "needs must be some of .* got 'speed'"),
        ({"classes": 10, "memory": "lots"}, "memory must be a size such as 8GB .* got 'lots'"),
        ({"classes": 10, "data": "graph"}, "data must be one of log, text, got 'graph'"),
        ({"classes": 1e12, "memory": "8GB"}, "memory = 8.0 GB is too little"),
        ({"classes": 1e7, "memory": "2GB", "dimension": 512}, "too little for vectors of 512"),
        ({"classes": 10, "model": "ease"}, "model = 'ease' has no output layer to choose"),
        ({"classes": 10, "num_interests": 3}, "num_interests has no effect"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line(question, message):
    with pytest.raises(ValueError, match=message) as error:
        advise(machine=TYPICAL, **question)
    assert "\n" not in str(error.value)


def test_a_curve_in_groups_says_what_all_ranks_say():
    shares = 1 / np.arange(1, 50_001)
    shares /= shares.sum()
    for curve in (Popularity.zipf(50_000), Popularity.from_counts(shares)):
        assert curve.num_classes == 50_000
        assert curve.entropy_bits == pytest.approx(-(shares * np.log2(shares)).sum(), rel=1e-3)
        assert curve.top_share(0.1) == pytest.approx(shares[:5000].sum(), rel=1e-3)
        assert curve.distinct(1000) == pytest.approx(1000 - _repeats(shares, 1000), rel=0.02)


def _repeats(shares, draws):
    return draws - (1 - (1 - shares) ** draws).sum()


@pytest.mark.parametrize("distinct", [True, False])
def test_the_error_of_the_sum_is_that_of_draws(distinct):
    curve = Popularity.zipf(500)
    shares, proposal = curve.shares, curve.by_power(0.5)
    sampler = wm.UnigramSampler(500, shares, distortion=0.5, unique=distinct)
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(1500):
        drawn = sampler.sample(60, torch.tensor([0]), generator=generator)
        weights = torch.from_numpy(shares)[drawn.ids].log() - drawn.log_expected_count
        found.append(float(weights.exp().sum()))
    error = float(np.sqrt(np.mean((np.array(found) - 1) ** 2)))
    expected = curve.sum_error(proposal, 60, distinct=distinct)
    # Distinct draws are a little better: that they are so many is one uncertainty less.
    assert error / 1.1 < expected < 1.5 * error if distinct else 1.1 * error


def test_memory_of_the_tables_is_that_of_the_model_built():
    for settings in (
        {"model": "next-item"},
        {"model": "youtube-dnn"},
        {"model": "next-item", "head": "adaptive"},
        {"model": "sasrec", "optimizer": "adam", "averaging": 0.0},
        {"model": "nnlm", "head": "hierarchical"},
        {"model": "item2vec"},
    ):
        config = Config(source="log", **settings)
        steps = steps_of(config, 20_000, 3000)
        tables = {each.data_ptr(): each.numel() for each in steps.model.parameters()}
        large = 4 * sum(numel for numel in tables.values() if numel >= 1000)
        parts = memory_of(config, Popularity.zipf(20_000), 3000)
        assert parts["model"] == pytest.approx(large, rel=0.2), settings


def test_the_costs_of_operations_are_found_again():
    """Steps whose times are made of known costs give these costs, with a little noise too."""
    drawn = np.random.default_rng(0)
    known = {name: cost * drawn.uniform(0.5, 2) for name, cost in machines._TYPICAL.items()}
    rows = []
    for classes, settings in machines._STEPS:
        rows.append(work_of(Config(**settings), Popularity.zipf(classes), 30_000))
    matrix = np.array([[row[name] for name in OPERATIONS] for row in rows])
    seconds = matrix @ np.array([known[name] for name in OPERATIONS])
    seconds *= drawn.uniform(0.95, 1.05, len(seconds))
    typical = np.array([machines._TYPICAL[name] for name in OPERATIONS])
    fitted = fitted_costs(matrix, seconds, typical)
    predicted = matrix @ fitted
    assert predicted == pytest.approx(seconds, rel=0.2)
    for name, cost in zip(OPERATIONS, fitted, strict=True):
        assert 0.4 < cost / known[name] < 2.5, name


@pytest.fixture
def quick(monkeypatch):
    """A quiet machine that is measured at once, and how often it was."""
    calls = []
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)

    def measure(*, progress=None):
        calls.append(1)
        return dict(TYPICAL.costs)

    monkeypatch.setattr(machines, "measure", measure)
    return calls


def test_a_machine_is_measured_once_and_kept(quick, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, second = Machine.this(), Machine.this()
    assert (len(quick), first.kept, second.kept) == (1, False, True)
    assert second.costs == first.costs
    (path,) = (tmp_path / "cache" / "widemax").iterdir()
    Machine.this(again=True)
    assert len(quick) == 2
    for torn in ('{"costs": {"steps": 1e-3}}', "{", '{"costs": null}', "[]", ""):
        path.write_text(torn)
        assert not Machine.this().kept
    costs = {**TYPICAL.costs, "products": -1.0}
    path.write_text(json.dumps({"costs": costs}))
    assert not Machine.this().kept


def test_a_machine_that_is_busy_is_measured_again(quick, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "getloadavg", lambda: (64.0, 64.0, 64.0), raising=False)
    assert Machine.this().busy
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 64.0, 64.0), raising=False)
    quiet = Machine.this()
    assert (len(quick), quiet.kept, quiet.busy) == (2, False, False)
    assert Machine.this().kept


def test_fault_31_it_works_without_a_home_to_write_to(quick, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert not Machine.this().kept
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", _no_home)
    assert not Machine.this().kept
    assert len(quick) == 2


def _no_home():
    raise RuntimeError("Could not determine home directory.")


def test_what_is_measured_is_above_nothing_and_predicts_a_step():
    """The real measurement, cut short: every cost is there, and a step is of the right order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(machines, "_STEPS", machines._STEPS[:4])
            patch.setattr(machines, "_SECONDS_EACH", 0.05)
            costs = machines.measure()
            config = Config(source="log", model="next-item", num_samples=400)
            work = work_of(config, Popularity.from_counts(machines.zipf_counts(20_000)), 30_000)
            ratio = Machine(name="", costs=costs).seconds(work) / machines.fastest(
                steps_of(config, 20_000, 30_000), 0.05
            )
    finally:
        torch.set_num_threads(threads)
    assert costs.keys() == OPERATIONS.keys()
    assert all(cost > 0 for cost in costs.values())
    # Wide: other programs may share the core. benchmarks/advice.py has the narrow bar.
    assert 0.2 < ratio < 5


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder, drawn = tmp_path_factory.mktemp("data"), random.Random(0)
    rows = ["user,item,time"]
    for user in range(60):
        start = drawn.randrange(30)
        rows += [f"u{user},i{(start + step) % 30},{step}" for step in range(9)]
    path = folder / "log.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def run(quick, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return lambda *arguments: CliRunner().invoke(app, [str(each) for each in arguments])


def test_the_configuration_that_is_written_trains(run, log, tmp_path):
    out, folder = tmp_path / "advice.toml", tmp_path / "run"
    found = run("advise", log, "--out", out, "--dimension", 8)
    assert found.exit_code == 0, found.output
    assert "30 items, 540 interactions" in found.output
    assert f"--config {out}" in found.output
    assert out.read_text().startswith("# Advised by widemax:\n# model = sasrec: ")
    trained = run("train", log, "--config", out, "--folder", folder, "--steps", 3)
    assert trained.exit_code == 0, trained.output
    config = wm.load(folder).config
    assert (config.model, config.head, config.dimension) == ("sasrec", "full", 8)


def test_json_holds_all_of_it(run, log):
    found = run("advise", log, "--json", "--needs", "serving")
    assert found.exit_code == 0, found.output
    advice = json.loads(found.stdout)
    assert advice["situation"]["classes"] == 30
    assert advice["situation"]["needs"] == ["serving"]
    assert advice["settings"]["model"] == "sasrec"
    assert advice["step_seconds"] > 0
    assert sum(advice["step_parts"].values()) == pytest.approx(1)
    assert {each["head"] for each in advice["alternatives"]} >= {"full", "sampled"}
    assert len(advice["reasons"]) >= 3


def test_a_text_that_needs_probabilities_is_read_as_a_language_model_reads_it(run, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\nthe dog sat on the cat\n" * 30)
    vectors = json.loads(run("advise", text, "--json").stdout)
    words = json.loads(run("advise", text, "--json", "--needs", "probabilities").stdout)
    assert vectors["settings"]["model"] == "cbow"
    assert words["settings"]["model"] in ("nnlm", "lstm")
    assert words["settings"]["head"] == "full"
    # "<eos>" and "<unk>" are classes of a language model.
    assert words["situation"]["classes"] > vectors["situation"]["classes"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--classes", "7"], "classes is for a plan without a source"),
        (["--needs", "new-items"], "no features of the items"),
        (["--needs", "magic"], "got 'magic'"),
        (["--memory", "1MB"], "memory = 1 MB is too little"),
        (["--out", "/no/such/folder/a.toml"], "must lie in an existing folder"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(quick, log, flags, message, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(log.parent))
    with pytest.raises(SystemExit) as stopped:
        run_app(["advise", str(log), *flags], ErrorDisplay(tracebacks=False))
    assert stopped.value.code == 2
    shown = capsys.readouterr()
    assert message in shown.err.strip().splitlines()[-1]
    assert not shown.out
