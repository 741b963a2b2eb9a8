"""When a training ends, what it is judged by, and what it says about going on."""

import math
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from widemax.cli.app import app
from widemax.data import Holdout, Sequences
from widemax.evaluation import evaluate_recommendations
from widemax.models.baselines import Popularity
from widemax.runs.judging.validation import floor_of
from widemax.runs.training.preparing import prepare
from widemax.training.stopping import Difference, Validation, rise


@pytest.fixture
def log(tmp_path):
    rows = [f"{user},{(user + step) % 20}" for user in range(40) for step in range(6)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["user,item", *rows]) + "\n")
    return path


CONFIG = wm.Config(
    model="next-item", epochs=40, dimension=4, batch_size=200, metric="ndcg@5", patience=2,
    patience_examples=0,
)  # fmt: skip


def trained(log, folder, validations, **settings):
    """Train with validations that are given; return when it ended, and why."""
    training = prepare(log, CONFIG.changed(**settings), folder)
    training.loop.plan = replace(training.loop.plan, floor=None)
    given = iter(validations)

    def validate():
        values = torch.as_tensor(next(given), dtype=torch.float64)
        return Validation({"ndcg@5": float(values.mean())}, values)

    training.loop.validate = validate
    progress = training.run()
    assert training.loop.steps.per_epoch == 1
    return progress.step, progress.finished


WORSE = [[0.4, 0.5, 0.6, 0.3]] + [[0.3, 0.4, 0.5, 0.21]] * 39
NOISE = [[0.4, 0.5, 0.6, 0.3]] + [[0.9, 0.1, 0.5, 0.2]] * 39


def test_what_is_worse_by_more_than_its_error_ends_sooner_than_noise(log, tmp_path):
    # Paired, the first is below the best in every question; the second may be as good.
    assert trained(log, tmp_path / "worse", WORSE) == (3, "patience")
    assert trained(log, tmp_path / "noise", NOISE) == (5, "patience")
    assert trained(log, tmp_path / "never", NOISE[:-1] + NOISE[1:], patience=0)[0] == 40


def test_the_latest_that_may_be_as_good_is_chosen(log, tmp_path):
    as_good, worse = NOISE[1], WORSE[1]
    better = [0.5, 0.6, 0.7, 0.4]
    best = WORSE[0]
    cases = {
        "worse": ([best, worse, worse], 1, "best by ndcg@5"),
        "as good": ([best, as_good, worse], 2, "as good as the best by ndcg@5 (step 1), within"),
        "twice": ([best, as_good, worse, as_good], 4, "as good as the best by ndcg@5 (step 1)"),
        "better": ([best, as_good, better, worse], 3, "best by ndcg@5"),
        # By how much one question varies cannot be known.
        "one question": ([[0.5], [0.4], [0.4]], 1, "best by ndcg@5"),
    }
    for name, (validations, step, why) in cases.items():
        folder = tmp_path / name
        trained(log, folder, validations, epochs=len(validations), patience=0)
        run = wm.load(folder)
        assert run.step == step, name
        assert run.chosen.startswith(why), name
        assert wm.load(folder, checkpoint="last").step == len(validations)


def test_small_data_are_waited_for_longer(log, tmp_path):
    training = prepare(log, CONFIG.changed(patience_examples=1000), tmp_path / "plan")
    trained_on = len(training.split.sequences.values)
    training.loop.store.close()
    steps, why = trained(log, tmp_path / "run", WORSE, patience_examples=1000)
    assert (steps, why) == (1 + math.ceil(1000 / trained_on), "patience")


def test_what_has_not_beaten_popularity_is_not_stopped(log, tmp_path):
    training = prepare(log, CONFIG, tmp_path / "run")
    assert 0 < training.loop.plan.floor < 1
    validations = iter([[0.0] * 4] * 40)
    training.loop.validate = lambda: Validation({"ndcg@5": 0.0}, torch.tensor(next(validations)))
    assert training.run().finished == "steps"
    # Where it is a loss that decides, or patience does not end it, there is no such floor.
    for name, settings in (("loss", {"metric": "loss"}), ("all", {"patience": 0})):
        other = prepare(log, CONFIG.changed(**settings), tmp_path / name)
        assert other.loop.plan.floor is None
        other.loop.store.close()


@pytest.mark.parametrize("metric", ["ndcg@5", "recall@3", "hit_rate@30", "mrr"])
@pytest.mark.parametrize("with_seen", [False, True])
def test_the_floor_is_the_figure_of_popularity(metric, with_seen):
    generator = torch.Generator().manual_seed(0)
    lists = [
        torch.randperm(30, generator=generator)[: 2 + user % 27].tolist() for user in range(50)
    ]
    train, asked = Holdout.of_last(Sequences.from_lists(lists))
    model = Popularity(30)
    model.fit(train)
    k = {"ndcg@5": 5, "recall@3": 3, "hit_rate@30": 30, "mrr": 20}[metric]
    expected = evaluate_recommendations(model.topk, asked, ks=(k,), exclude_seen=not with_seen)
    found = floor_of(asked, torch.bincount(train.values), metric, with_seen=with_seen)
    assert found == pytest.approx(expected.metrics()[f"{metric.partition('@')[0]}@{k}"], abs=1e-12)


def test_the_error_of_a_difference_is_that_of_pairs():
    generator = torch.Generator().manual_seed(0)
    base = torch.rand(4000, generator=generator, dtype=torch.float64)
    other = base + 0.01 * torch.randn(4000, generator=generator, dtype=torch.float64)
    paired = Difference.of(other - base)
    assert paired.error == pytest.approx(0.01 / 4000**0.5, rel=0.05)
    assert Difference.of(base).error > 20 * paired.error
    assert Difference.of(torch.tensor([1.0])).error == math.inf


def test_validations_are_kept_with_their_errors_and_resume(log, tmp_path):
    config = CONFIG.changed(epochs=6, patience=0, learning_rate=0.05)
    whole = wm.train(log, config, folder=tmp_path / "whole")
    first, second = whole.metrics[:2]
    assert first["standard_error"] > 0
    assert "behind_best" not in first
    best = first["ndcg@5"]
    assert second["behind_best"] == pytest.approx(best - second["ndcg@5"], abs=1e-12)
    wm.train(log, config.changed(epochs=3), folder=tmp_path / "parts")
    resumed = wm.train(log, wm.Config(epochs=6), folder=tmp_path / "parts", resume=True)
    rows = [[{**line, "seconds": 0} for line in run.metrics] for run in (whole, resumed)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("curve", "rises"),
    [
        ([0.1 * step for step in range(1, 10)], True),
        ([0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3], False),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.5, 0.4, 0.3], False),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.5, 0.66, 0.56], False),  # noise
        ([0.1, 0.2, 0.3], False),  # too few to say
        ([], False),
    ],
)
def test_a_curve_that_still_rises(curve, rises):
    found = rise(list(enumerate(curve, 1)))
    assert (found is not None) == rises


def test_what_more_time_would_bring_is_said(log, tmp_path):
    flags = "--model next-item --head full --epochs 12 --dimension 8 --batch-size 32"
    arguments = ["train", str(log), "--folder", str(tmp_path / "run"), *flags.split()]
    said = CliRunner().invoke(app, [*arguments, "--learning-rate", "0.002", "--metric", "loss"])
    assert said.exit_code == 0, said.output
    assert "loss still fell, by " in said.stderr
    assert "over the last third: --resume --epochs 24 would go on" in said.stderr
    assert " ± " in said.stderr
    assert "to beat" not in said.stderr


def test_what_is_to_beat_is_the_model_popularity(tmp_path):
    # One user in two chooses item 0 thrice: by interactions it would stand first, by users it
    # does not.
    rows = [
        f"{user},{item}"
        for user in range(40)
        for item in ([0, 0, 0] if user % 2 else []) + [1 + user % 3, 4 + user % 2, 6 + user % 7, 1]
    ]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["user,item", *rows]) + "\n")
    training = prepare(log, CONFIG.changed(metric="ndcg@2"), tmp_path / "run")
    training.loop.store.close()
    fitted = wm.train(log, wm.Config(model="popularity", metric="ndcg@2"), folder=tmp_path / "fit")
    assert training.loop.plan.floor == pytest.approx(fitted.metrics[-1]["ndcg@2"])


def test_a_run_behind_popularity_is_called_so(tmp_path):
    # Everybody chooses item 0, half of them last; a step of no length learns nothing of that.
    rows = [
        f"{user},{item}"
        for user in range(60)
        for item in [1 + user % 29, *([0, 30 + user % 31] if user % 2 else [30 + user % 31, 0])]
    ]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["user,item", *rows]) + "\n")
    flags = "--model next-item --head full --dimension 8 --metric ndcg@2 --batch-size 32"
    flags += " --temperature 0.1"  # at that of such a log, biases alone are popularity itself
    arguments = ["train", str(log), "--folder", str(tmp_path / "run"), *flags.split()]
    short = CliRunner().invoke(app, [*arguments, "--steps", "1", "--learning-rate", "1e-6"])
    assert short.exit_code == 0, short.output
    found = wm.load(tmp_path / "run").metrics[-1]["ndcg@2"]
    floor = next(
        line.split()[4] for line in short.stderr.splitlines() if line.startswith("to beat")
    )
    assert found < float(floor)
    assert f"popularity is ahead: ndcg@2 {floor} in validation, and this run {found:.4f}" in (
        short.stderr
    )


def test_how_sure_the_choice_is_is_said(log, tmp_path):
    flags = (
        "--model next-item --head full --epochs 12 --dimension 8 --max-history 10 --metric ndcg@5"
    )
    arguments = ["train", str(log), "--folder", str(tmp_path / "run"), *flags.split()]
    # So fast that it goes on past the best.
    said = CliRunner().invoke(
        app, [*arguments, "--learning-rate", "1", "--similarity", "dot", "--temperature", "1"]
    )
    assert said.exit_code == 0, said.output
    training = prepare(log, CONFIG, tmp_path / "other")
    training.loop.store.close()
    floor = training.loop.plan.floor
    assert f"to beat: popularity, ndcg@5 {floor:.4f} in validation" in said.stderr
    rows = wm.load(tmp_path / "run").metrics
    best, last = max(rows, key=lambda row: row["ndcg@5"]), rows[-1]
    assert best["step"] != last["step"]
    assert best["ndcg@5"] > floor
    assert "popularity is ahead" not in said.stderr
    assert (
        f"best ndcg@5 {best['ndcg@5']:.4f} at step {best['step']:,}, the last is "
        f"{last['behind_best']:.4f} ± {last['behind_best_error']:.4f} behind"
    ) in said.stderr
