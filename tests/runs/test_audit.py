"""Every method of a run can be audited, or is refused in a line; what was found is kept."""

import json
import random

import pytest
from typer.testing import CliRunner

import widemax as wm
from widemax.cli.app import app
from widemax.config import Config
from widemax.config.flags import as_flags, minimal_settings, revised
from widemax.declarations import declared
from widemax.storage.manifest import DamagedFileError

SMALL = {
    "steps": 2,
    "batch_size": 40,
    "dimension": 8,
    "validation_size": 20,
    "test_size": 20,
    "num_samples": 8,
    "min_count": 1,
}
USERS, ITEMS = 40, 30


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A log with a feature of its items, and a text."""
    folder, drawn = tmp_path_factory.mktemp("data"), random.Random(0)
    rows = ["user,item,time"]
    for user in range(USERS):
        start = drawn.randrange(ITEMS)
        rows += [f"u{user},i{(start + step) % ITEMS},{60 * step}" for step in range(9)]
    (folder / "log.csv").write_text("\n".join(rows) + "\n")
    kinds = ["id,kind", *(f"i{item},k{item % 3}" for item in range(ITEMS))]
    (folder / "items.csv").write_text("\n".join(kinds) + "\n")
    words = [f"w{min(drawn.randrange(25), drawn.randrange(25))}" for _ in range(1500)]
    lines = [" ".join(words[start : start + 10]) for start in range(0, len(words), 10)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    return folder


def trained(data, folder, source="log.csv", **settings):
    kind = "text" if source == "text.txt" else "log"
    usual = Config(source=kind, **settings)
    small = {name: value for name, value in SMALL.items() if usual.has(name)}
    if kind == "log" and usual.has("item_features"):
        small["item_features"] = str(data / "items.csv")
    config = Config(**{**small, **settings})
    return wm.train(data / source, config, folder=folder)


def audited(run, **options):
    return run.audit(**{"draws": 20, "examples": 16, **options})


EXACT = ("full", "hierarchical", "adaptive")
OTHER = ("self-normalised", "infrequent", "top-k-softmax", "sparsemax", "entmax-1.5")


@pytest.mark.parametrize("head", declared("head"))
def test_every_head_is_audited_and_what_its_figures_mean_is_said(head, data, tmp_path):
    found = audited(trained(data, tmp_path / "run", model="next-item", head=head))
    if head in EXACT:
        assert found.verdict == "exact"
        assert "0 by construction" in found.sentence
        assert found.report.bias_high < 1e-4
    elif head in OTHER:
        assert found.verdict == "other aim"
        assert found.sentence
    else:
        assert found.verdict in ("faithful", "too few samples", "biased")
        assert {*found.report.overall.gradients} == {"scores", "hidden", "class vectors"}
    assert found.cost.seconds > 0
    assert 0 < found.cost.outputs <= ITEMS + 1


@pytest.mark.parametrize("sampler", declared("sampler"))
def test_every_sampler_is_audited(sampler, data, tmp_path):
    settings = {"mixture": "uniform=1, unigram=1"} if sampler == "mixture" else {}
    ways = ({"objective": "sampled-softmax"}, {"objective": "info-nce"}, {"head": "importance"})
    for way in ways:
        given = {"model": "next-item", "sampler": sampler, **way, **settings}
        try:
            Config(source="log", **given)
        except ValueError:
            continue
        found = audited(trained(data, tmp_path / "run", **given))
        assert found.report.num_candidates >= 1
        assert (found.verdict == "other aim") == ("info-nce" in way.values())
        return
    raise AssertionError(f"{sampler} goes with none of {ways}")


MODELS = [
    (name, source)
    for name, each in declared("model").items()
    for source in ("log.csv", "text.txt")
    if name != "auto"
]


@pytest.mark.parametrize(("model", "source"), MODELS)
def test_every_model_is_audited_or_says_why_not(model, source, data, tmp_path):
    try:
        Config(source="text" if source == "text.txt" else "log", model=model)
    except ValueError:
        return
    run = trained(data, tmp_path / "run", source, model=model)
    if "gradients" not in declared("model")[model].traits or model == "airbnb-types":
        with pytest.raises(ValueError, match="there is nothing to audit"):
            audited(run)
        return
    found = audited(run)
    assert found.objects == ("words" if source == "text.txt" else "items")
    assert found.report.num_examples <= max(16, 4 * SMALL["batch_size"])
    assert sum(each.num_examples for each in found.report.groups.values()) == (
        found.report.num_examples
    )


def test_units_before_the_output_layer_are_looked_through(data, tmp_path):
    run = trained(data, tmp_path / "run", "text.txt", model="nnlm", head="sampled", head_units=6)
    found = audited(run)
    assert {*found.report.overall.gradients} == {"scores", "hidden", "class vectors"}


def test_what_was_found_is_kept_whole_or_refused(data, tmp_path):
    run = trained(data, tmp_path / "run", model="next-item")
    assert run.stored_audit() is None
    audited(run, keep=False)
    assert run.stored_audit() is None
    found = audited(run)
    kept = wm.load(tmp_path / "run").stored_audit()
    assert kept["verdict"] == found.verdict
    assert kept["report"]["overall"]["gradients"]["scores"]["bias"] == found.report.bias
    assert audited(run).report == found.report, "same seed, same figures"
    assert audited(run, seed=1).report != found.report
    path = tmp_path / "run" / "audit.json"
    assert '"seed": 1' in path.read_text()
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(DamagedFileError, match=r"audit\.json was changed"):
        run.stored_audit()


@pytest.mark.parametrize("num_samples", [14, 15, 800])
def test_no_remedy_is_what_is_in_use_and_a_cap_is_said(num_samples, data, tmp_path):
    """Of 30 items 15 are drawn at most, also where 800 are the usual number."""
    given = {} if num_samples == 800 else {"num_samples": num_samples}
    config = Config(source="log", model="next-item", unique=True, steps=2, dimension=8, **given)
    assert config.num_samples == num_samples
    run = wm.train(data / "log.csv", config, folder=tmp_path / "run")
    found = audited(run, draws=200, tolerance=1e-4)
    assert found.worst is not None
    assert found.remedies, "other samplers are tried beside a cap, too"
    assert all("num_samples" not in each.settings for each in found.remedies)
    assert "more samples cannot be tried, at most 15 are drawn" in found.sentence
    assert "number of samples is not what is wrong" not in found.sentence
    assert "--head full" in found.sentence
    assert "evaluates 30 outputs" in found.sentence
    # A command with a remedy can be typed: no more are asked for than can be drawn.
    for remedy in found.remedies:
        assert remedy.minimal.get("num_samples", 0) <= 15


def test_a_remedy_of_more_samples_is_tried_where_there_is_room(data, tmp_path):
    run = trained(data, tmp_path / "run", model="next-item", unique=True, num_samples=3)
    found = audited(run, draws=200, tolerance=1e-4)
    assert {"num_samples": 12} in [each.settings for each in found.remedies]
    assert "cannot be tried" not in found.sentence


def widemax(*arguments, code=0):
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == code, (arguments, found.output, found.exception)
    return found


def test_the_verb_prints_a_table_and_the_figures_against_the_number_of_samples(data, tmp_path):
    trained(data, tmp_path / "run", model="next-item", unique=False)
    shown = widemax(
        *("audit", tmp_path / "run", "--draws=60", "--examples=24", "--samples=4,8,16,32,64"),
        *("--json", tmp_path / "found.json"),
    ).stdout
    for text in ("bias by scores", "bias by class vectors", "tail", "KL(P‖Q)", "falls like S^"):
        assert text in shown
    # A command is never wrapped: it is there to be copied.
    assert all(len(line) <= 100 or "widemax train" in line for line in shown.splitlines())
    kept = json.loads((tmp_path / "found.json").read_text())
    assert kept == wm.load(tmp_path / "run").stored_audit()
    assert kept["by_samples"]["num_samples"] == [4, 8, 16, 32, 64]
    slope = kept["by_samples"]["slopes"]["variance"]
    assert slope["low"] < slope["value"] < slope["high"]
    assert slope["value"] == pytest.approx(-1.0, abs=0.5)


REFUSED = {
    "--samples=4,x": "--samples must be whole numbers such as 16,64,256",
    "--samples=64,16": "samples must rise",
    "--samples=0": "samples must be between 1 and",
    "--draws=3": "Invalid value for '--draws'",
    "--examples=0": "Invalid value for '--examples'",
    "--tolerance=2": "tolerance must be",
}


@pytest.mark.parametrize("flag", REFUSED)
def test_a_wrong_flag_is_named(flag, data, tmp_path):
    trained(data, tmp_path / "run", model="next-item")
    found = CliRunner().invoke(app, ["audit", str(tmp_path / "run"), flag])
    said = f"{found.output} {found.exception}"
    assert found.exit_code
    assert REFUSED[flag] in said.replace("\n", " "), said


def test_more_samples_than_can_be_drawn_are_refused_before_anything_is_measured(data, tmp_path):
    run = trained(data, tmp_path / "run", model="next-item", unique=True)
    with pytest.raises(ValueError, match="samples cannot be 64: at most 15 are drawn"):
        audited(run, num_samples=[4, 64])
    exact = trained(data, tmp_path / "full", model="next-item", head="full")
    with pytest.raises(ValueError, match="the output layer draws none"):
        audited(exact, num_samples=[4])


# --- the flags of a command that is printed


@pytest.mark.parametrize(
    "given",
    [
        {"model": "next-item", "num_samples": 7, "unique": False, "steps": 3},
        {"model": "skip-gram", "objective": "sampled-softmax", "label_smoothing": 0.1},
        {"model": "mind", "num_interests": 2, "sampler": "mixture", "mixture": "uniform, unigram"},
        {"model": "sasrec", "head": "full", "epochs": 2},
    ],
)
def test_minimal_settings_lead_to_the_same_configuration(given):
    config = Config(source="log", **given)
    stored = Config(source="log", **minimal_settings(config, "log"))
    assert stored == config
    assert len(minimal_settings(config, "log")) <= len(given)
    assert len(as_flags(minimal_settings(config, "log"))) <= 2 * len(given)


def test_a_revised_configuration_differs_in_what_was_asked_for():
    config = Config(source="log", model="item2vec")
    other = revised(config, "log", {"objective": "corrected-log-q"})
    assert (other.objective, other.trainer) == ("corrected-log-q", "torch")
    assert (other.num_samples, other.dimension, other.window) == (5, 64, 20)
    with pytest.raises(ValueError, match="objective must be one of"):
        revised(config, "log", {"objective": "none"})
