"""The last fit of a run: on training and validation data together, for as long as was best."""

import json
import os
import signal

import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from widemax.cli.app import app
from widemax.runs.folder.kept_data import refit_summary
from widemax.runs.training.preparing import prepare
from widemax.training.checkpoints import CheckpointStore

CONFIG = wm.Config(
    epochs=6, dimension=8, batch_size=16, learning_rate=0.05, num_samples=5, max_history=2,
    sampler="unigram", checkpoint_every=4, metric="ndcg@5", patience=0, split="files",
    kind="lists", model="next-item", schedule="linear", warmup_steps=3,
)  # fmt: skip


def write_files(folder, *, joined):
    """Write lists of users; ``joined`` puts what validates behind what is trained on."""
    generator = torch.Generator().manual_seed(0)
    parts = {"train": [], "valid": [], "test": []}
    for user in range(60):
        # Popular items first, and by far: what validates does not change the order of the counts.
        start = int(torch.randint(0, 9, (1,), generator=generator))
        ring = [(start + step) % 9 for step in range(7)]
        parts["train"].append([user, *ring[:5]])
        parts["valid"].append([user, ring[5]])
        parts["test"].append([user, ring[6]])
    # So that the ids of both are the same, whatever is counted.
    parts["train"] += [[60 + item] + [item] * (90 - 9 * item) for item in range(9)]
    if joined:
        trained = {row[0]: row for row in parts["train"]}
        for user, item in parts.pop("valid"):
            trained[user].append(item)
    folder.mkdir()
    for name, rows in parts.items():
        (folder / f"{name}.txt").write_text("\n".join(" ".join(map(str, row)) for row in rows))
    return folder


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path / "files", joined=False)


def model_of(run):
    return dict(run.model.state_dict())


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def chosen_epochs(run):
    """The latest validation that no earlier one was better than by more than their error."""
    rows = run.metrics
    as_good = [row for row in rows if row.get("behind_best", 0) <= row.get("behind_best_error", 0)]
    return round(as_good[-1]["step"] / rows[0]["step"])


@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_it_is_a_training_on_both_parts_for_as_long_as_was_best(schedule, files, tmp_path):
    config = CONFIG.changed(schedule=schedule)
    run = wm.train(files, config.changed(refit=True), folder=tmp_path / "run")
    epochs = chosen_epochs(run)
    both = write_files(tmp_path / "both", joined=True)
    unvalidated = {**config.given, "epochs": epochs, "validation_size": 0}
    del unvalidated["metric"], unvalidated["patience"]
    expected = wm.train(both, wm.Config(**unvalidated), folder=tmp_path / "alone")
    assert run.vocabulary.numbering == expected.vocabulary.numbering
    assert not torch.equal(run.vocabulary.counts, expected.vocabulary.counts)
    assert same(model_of(run), model_of(expected))
    assert run.step == expected.step
    asked = run.evaluate_recommendations(ks=(5,)), expected.evaluate_recommendations(ks=(5,))
    assert asked[0].metrics()["ndcg@5"] == asked[1].metrics()["ndcg@5"]


def stop_at(training, refit, step):
    """Stop a training after a step of its first or its last fit."""
    began = []
    training.on_refit = lambda training, done: began.append(done)

    def stop(progress):
        if bool(began) == refit and progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    training.loop.on_step = stop
    with pytest.raises(wm.training.Interrupted):
        training.run()


@pytest.mark.parametrize(("refit", "step"), [(False, 10), (True, 6), (True, 1)])
def test_it_resumes_bit_for_bit_in_either_phase(refit, step, files, tmp_path):
    config = CONFIG.changed(refit=True, averaging=0.9)
    whole = wm.train(files, config, folder=tmp_path / "whole")
    stop_at(prepare(files, config, tmp_path / "parts"), refit, step)
    before = wm.load(tmp_path / "parts")
    assert "best by ndcg@5" in before.chosen if refit else before.chosen != whole.chosen
    resumed = wm.train(files, None, folder=tmp_path / "parts", resume=True)
    assert same(model_of(whole), model_of(resumed))
    assert (whole.step, whole.chosen) == (resumed.step, resumed.chosen)


def test_a_finished_run_is_refitted_later_and_again_when_it_has_gone_on(files, tmp_path):
    short = CONFIG.changed(epochs=1, schedule="constant", learning_rate=0.001)
    at_once = wm.train(files, short.changed(refit=True), folder=tmp_path / "at-once")
    folder = tmp_path / "later"
    assert wm.train(files, short, folder=folder).chosen == "best by ndcg@5"
    later = wm.train(files, wm.Config(refit=True), folder=folder, resume=True)
    assert same(model_of(at_once), model_of(later))
    first = sorted(path.name for path in folder.glob("refit-*"))
    wm.train(files, wm.Config(epochs=6), folder=folder, resume=True)
    again = sorted(path.name for path in folder.glob("refit-*"))
    assert len(first) == len(again) == 1
    assert first != again
    assert wm.load(folder).chosen.startswith("refitted")


def test_the_model_that_answers_is_named(files, tmp_path):
    wm.train(files, CONFIG.changed(refit=True), folder=tmp_path / "runs" / "one")
    run = wm.load(tmp_path / "runs" / "one")
    best = CheckpointStore(run.folder).chosen().step
    assert run.chosen == (
        "refitted on training and validation data together, for as long as was best by ndcg@5 "
        f"(step {best:,})"
    )
    for verb in ("evaluate", "recommend"):
        extra = ["--user", "1"] if verb == "recommend" else []
        said = CliRunner().invoke(app, [verb, str(run.folder), *extra])
        assert "refitted on training and validation data" in said.stderr
    assert wm.load(run.folder, checkpoint="last").chosen == "last"
    listed = CliRunner().invoke(app, ["runs", str(tmp_path / "runs"), "--json"])
    row = json.loads(listed.stdout)[0]
    assert (row["model"], row["refit"]) == (run.config.model, True)
    listed = CliRunner().invoke(app, ["runs", str(tmp_path / "runs")])
    assert f"{run.config.model}, refit" in listed.stdout


def test_the_phase_is_shown(files, tmp_path):
    flags = ["--split", "files", "--kind", "lists", "--refit", "--epochs", "2", "--dimension", "4"]
    said = CliRunner().invoke(app, ["train", str(files), "--folder", str(tmp_path / "r"), *flags])
    assert said.exit_code == 0, said.output
    lines = [line for line in said.stderr.splitlines() if line.startswith("refit")]
    assert lines[0].startswith("refit on training and validation data, 846 in all, for ")
    assert len(lines) > 1
    assert "finished after" in said.stderr.split("\nrefit on")[0]


def test_what_is_fitted_is_fitted_on_all(files, tmp_path):
    config = wm.Config(model="popularity", split="files", kind="lists")
    # 3 is chosen more often than 2 once what validates counts.
    (files / "valid.txt").write_text("\n".join(f"{user} 3" for user in range(60)))
    ranks = {}
    for refit in (False, True):
        run = wm.train(files, config.changed(refit=refit), folder=tmp_path / f"run-{refit}")
        ranks[refit] = [found.key for found in run.recommend(user=0, k=4, include_seen=True)]
    assert ranks[False].index(2) < ranks[False].index(3)
    assert ranks[True].index(3) < ranks[True].index(2)


def test_ids_stay_in_falling_count(files, tmp_path):
    (files / "valid.txt").write_text("\n".join(f"{user} 8" for user in range(60)))
    config = CONFIG.changed(refit=True, sampler="log-uniform", epochs=1)
    run = wm.train(files, config, folder=tmp_path / "run")
    assert run.chosen.startswith("refitted")
    data = refit_summary(run.folder, run.data)
    assert data.vocabulary.ordered
    assert (data.vocabulary.counts >= run.vocabulary.counts).all()
    last = data.vocabulary.id_of(8)
    assert data.vocabulary.counts[last] == run.vocabulary.counts[last] + 60


def test_a_text_is_refitted_too(tmp_path):
    (tmp_path / "text").write_text("the cat sat on the mat\nthe dog lay on the rug\n" * 40)
    config = wm.Config(model="n-gram", order=2, validation_size=20, test_size=20)
    run = wm.train(tmp_path / "text", config.changed(refit=True), folder=tmp_path / "run")
    best = wm.load(run.folder, checkpoint="last")
    assert not same(model_of(run), model_of(best))
    assert run.evaluate().examples == best.evaluate().examples


@pytest.mark.parametrize(
    ("lines", "settings", "named"),
    [
        ("a,b\n" * 9, {"validation_size": 0}, "refit has no effect with validation_size = 0"),
        ("a,x\nb,y\n", {}, "refit has no effect: the data are too few"),
    ],
)
def test_it_is_refused_where_nothing_validates(lines, settings, named, tmp_path):
    (tmp_path / "log.csv").write_text(f"user,item\n{lines}")
    with pytest.raises(ValueError, match=named):
        wm.train(tmp_path / "log.csv", wm.Config(refit=True, **settings), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_time_is_for_both_fits(files, tmp_path):
    training = prepare(files, CONFIG.changed(refit=True, time_budget=100), tmp_path / "run")
    # 786 interactions are trained on, 846 with what validates.
    assert training.loop.plan.time_budget == pytest.approx(100 * 786 / (786 + 846))
    training.loop.store.close()


def test_a_last_fit_begins_from_the_same_vectors(files, tmp_path):
    config = CONFIG.changed(refit=True)
    vectors = wm.train(files, CONFIG.changed(epochs=1, seed=5), folder=tmp_path / "v").vectors()
    whole = wm.train(files, config, folder=tmp_path / "whole", vectors=vectors)
    training = prepare(files, config, tmp_path / "parts", vectors=vectors)
    stop_at(training, refit=False, step=10)
    with pytest.raises(ValueError, match="resume it with the same vectors"):
        wm.train(files, None, folder=tmp_path / "parts", resume=True)
    resumed = wm.train(files, None, folder=tmp_path / "parts", resume=True, vectors=vectors)
    assert same(model_of(whole), model_of(resumed))
