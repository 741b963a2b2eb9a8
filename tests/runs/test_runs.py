"""Runs from end to end: trained, killed, resumed, asked and exported."""

import json
import os
import signal

import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from tests.runs.run_metrics import check_stored_metrics
from tests.runs.settings import config_with
from widemax.cli.app import app
from widemax.config import read_config
from widemax.config.toml import to_toml
from widemax.runs.training.preparing import prepare
from widemax.training.checkpoints import CheckpointStore
from widemax.training.tracking import JsonLines


@pytest.fixture
def log(tmp_path):
    """A log in which every user walks a ring of 30 items: what comes next is known."""
    generator = torch.Generator().manual_seed(0)
    lines = ["user,item,time"]
    for user in range(120):
        start = int(torch.randint(30, (1,), generator=generator))
        lines += [f"u{user},i{(start + step) % 30},{step}" for step in range(8)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text("the cat sat on the mat\nthe dog lay on the rug\n" * 40)
    return path


CONFIG = wm.Config(
    epochs=3, dimension=8, batch_size=32, learning_rate=0.05, num_samples=10, max_history=1,
    validation_size=50, checkpoint_every=4, validate_every=7, patience=0,
)  # fmt: skip


def weights(folder):
    return CheckpointStore(folder).load().model_tensors()


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_ring_is_learned(log, tmp_path):
    config = wm.Config(epochs=30, dimension=16, batch_size=64, learning_rate=0.05, max_history=1,
                       # One table could not tell what comes next from what came before.
                       tied=False, head="full", validation_size=100)  # fmt: skip
    run = wm.train(log, config, folder=tmp_path / "run")
    assert run.evaluate().mrr > 0.9
    assert run.recommend(["i7"], k=1)[0].key == "i8"
    check_stored_metrics(run)


@pytest.mark.parametrize(
    "options",
    [
        {"head": "hierarchical"},
        {"head": "adaptive"},
        {"head": "importance", "sampler": "unigram"},
        {"head": "top-k-softmax"},
        {"sampler": "in-batch"},
        {"sampler": "learned-unigram", "objective": "nce"},
        {"optimizer": "rowwise-adagrad", "clip_norm": 1.0, "schedule": "cosine", "warmup_steps": 3},
        {"optimizer": "sgd", "bias": True, "similarity": "cosine", "temperature": 0.1},
    ],
)
def test_resuming_is_bit_identical(options, log, tmp_path):
    config = config_with("next-item", **CONFIG.given | options)
    assert options.items() <= config.values.items()
    whole = wm.train(log, config, folder=tmp_path / "whole")
    training = prepare(log, config, tmp_path / "parts")

    def stop(progress):
        if progress.step == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    training.loop.on_step = stop
    with pytest.raises(wm.training.Interrupted):
        training.run()
    resumed = wm.train(log, None, folder=tmp_path / "parts", resume=True)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    dropped = [{**line, "seconds": 0} for line in whole.metrics]
    assert [{**line, "seconds": 0} for line in resumed.metrics] == dropped


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_verbs(text, tmp_path):
    folder = tmp_path / "runs" / "words"
    invoke("train", text, "--folder", folder, "--epochs", 2, "--dimension", 8,
           "--num-samples", 3, "--validation-size", 20)  # fmt: skip
    assert len(json.loads(invoke("similar", folder, "cat", "--k", 2, "--json"))) == 2
    assert json.loads(invoke("evaluate", folder, "--json"))["examples"] > 0
    scored = json.loads(invoke("score", folder, "the cat sat", "--json"))
    assert [row["word"] for row in scored["words"]] == ["the", "cat", "sat"]
    assert all(row["log_prob"] < 0 for row in scored["words"])
    invoke("export", folder, tmp_path / "vectors.txt")
    assert "cat" in wm.vectors.read_word2vec_text(tmp_path / "vectors.txt")
    listed = json.loads(invoke("runs", tmp_path / "runs", "--json"))
    assert listed[0]["run"] == "words"
    assert listed[0]["kind"] == "text"


def test_recommend_for_a_user_and_for_a_history(log, tmp_path):
    folder = tmp_path / "run"
    wm.train(log, CONFIG, folder=folder)
    by_user = json.loads(invoke("recommend", folder, "--user", "u3", "--k", 3, "--json"))
    assert len(by_user) == 3
    by_history = json.loads(invoke("recommend", folder, "--history", "i3", "--k", 3, "--json"))
    assert "i3" not in [row["key"] for row in by_history]


@pytest.mark.parametrize("gone", ["another", "config", "version"])
def test_what_cannot_be_resumed_says_why(gone, log, tmp_path):
    wm.train(log, CONFIG, folder=tmp_path / "run")
    source = log
    if gone == "another":
        source = tmp_path / "other.csv"
        source.write_text(log.read_text().replace("u1,", "v1,").replace("i3,", "i4,"))
    elif gone == "config":
        (tmp_path / "run" / "config.toml").write_text("learning_rat = 1\n")
    else:
        (tmp_path / "run" / "run.json").write_text('{"format": 99}')
    wanted = {
        "another": "content differs",
        "config": "config.toml was changed",
        "version": "newer",
    }[gone]
    with pytest.raises(ValueError, match=wanted):
        wm.train(source, None, folder=tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="already"):
        wm.train(log, CONFIG, folder=tmp_path / "run")


def test_training_leaves_torch_as_it_was(log, tmp_path):
    threads = torch.get_num_threads()
    config = wm.Config(epochs=1, dimension=4, threads=threads + 1, model="sasrec", dropout=0.5)
    wm.train(log, config, folder=tmp_path / "once")
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    # What is drawn between preparing and training changes nothing.
    training = prepare(log, config, tmp_path / "again")
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
    before = torch.get_rng_state()
    training.run()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert same(weights(tmp_path / "once"), weights(tmp_path / "again"))


def test_a_tracker_that_cannot_be_opened_leaves_nothing_open(log, tmp_path, monkeypatch):
    opened = []

    class Noted(JsonLines):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            opened.append(self)

    def refuse(*given, **options):
        raise ValueError("no tensorboard today")

    monkeypatch.setattr("widemax.runs.training.opening.JsonLines", Noted)
    monkeypatch.setattr("widemax.runs.training.opening.TensorBoard", refuse)
    monkeypatch.setattr("widemax.runs.training.preparing.check_tracking", lambda name: None)
    config = wm.Config(epochs=1, dimension=4, tracking="tensorboard")
    with pytest.raises(ValueError, match="no tensorboard today"):
        wm.train(log, config, folder=tmp_path / "run")
    (lines,) = opened
    assert lines._file.closed
    monkeypatch.undo()
    # Nor is the folder locked: the run can be trained once it works.
    wm.train(log, folder=tmp_path / "run", resume=True)


def test_fault_42_one_command_line_starts_and_resumes(log, tmp_path):
    folder = tmp_path / "new" / "run"
    command = ["train", str(log), "--folder", str(folder), "--resume", "--model", "mind"]
    command += ["--steps", "4", "--dimension", "4", "--num-interests", "2"]
    begun = CliRunner().invoke(app, command)
    assert begun.exit_code == 0, begun.output
    # The flags of a model that is not the default one, and again after the first write.
    resumed = CliRunner().invoke(app, command)
    assert resumed.exit_code == 0, resumed.output
    assert "resumed at step 4" in resumed.output
    other = CliRunner().invoke(app, [*command[:-1], "3"])
    assert "--num-interests is 3, and" in str(other.exception)
    foreign = CliRunner().invoke(app, [*command, "--window", "3"])
    assert "--window is not a setting of" in str(foreign.exception)


def test_fault_42_a_folder_that_was_left_before_its_first_write_is_started(log, tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    assert wm.train(log, CONFIG, folder=tmp_path / "run", resume=True).step


def test_python_may_not_resume_with_other_settings_either(log, tmp_path):
    wm.train(log, CONFIG, folder=tmp_path / "run")
    wm.train(log, CONFIG, folder=tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match=r"^dimension is 4, and .*run was started with 8"):
        wm.train(log, CONFIG.changed(dimension=4), folder=tmp_path / "run", resume=True)


def test_what_the_source_is_can_be_said(tmp_path):
    (tmp_path / "baskets").write_text("ann tea rum milk\nbob rum gin tea\n" * 5)
    config = wm.Config(model="popularity", validation_size=0, test_size=0)
    run = wm.train(tmp_path / "baskets", config.changed(kind="lists"), folder=tmp_path / "run")
    assert "ann" not in run.vocabulary
    assert run.description["kind"] == "lists"
    with pytest.raises(ValueError, match=r"kind must be one of .*did you mean 'lists'"):
        wm.train(tmp_path / "baskets", config.changed(kind="list"), folder=tmp_path / "other")


def test_a_written_configuration_trains_where_there_are_no_features(log, tmp_path):
    (tmp_path / "config.toml").write_text(to_toml(wm.Config(source="log", steps=1)))
    config = read_config(tmp_path / "config.toml", {}).config
    assert "feature_dimension" in config.given
    assert wm.train(log, config, folder=tmp_path / "run").step


def test_settings_of_features_need_features(log, tmp_path):
    for name, value in {"feature_dimension": 9, "id_dropout": 0.5}.items():
        config = wm.Config(model="two-tower", **{name: value})
        with pytest.raises(ValueError, match=f"^{name} has no effect: neither items nor users"):
            wm.train(log, config, folder=tmp_path / name)
        assert not (tmp_path / name).exists()


def test_a_batch_holds_at_least_one_sequence(log, tmp_path):
    config = wm.Config(model="sasrec", max_history=5, batch_size=3)
    with pytest.raises(ValueError, match="batch_size must be at least 4, what is predicted in one"):
        wm.train(log, config, folder=tmp_path / "run")


def test_a_history_is_a_list(log, tmp_path):
    run = wm.train(log, CONFIG, folder=tmp_path / "run")
    with pytest.raises(ValueError, match="keys must be a list, got the text 'i3'; a user is named"):
        run.recommend("i3")


@pytest.mark.parametrize("arguments", [["train", "LOG", "--folder", ""], ["export", "RUN", ""]])
def test_an_unset_variable_names_no_path(arguments, log):
    said = CliRunner().invoke(app, [each.replace("LOG", str(log)) for each in arguments])
    assert said.exit_code == 2
    assert "a path must not be empty" in said.output


def test_fault_38_the_best_model_is_kept_whenever_it_is_validated(log, tmp_path):
    """Checkpoints are due at other steps than validations: the best is saved all the same."""
    config = wm.Config(
        steps=20, dimension=8, validate_every=3, checkpoint_every=20, metric="loss", patience=0
    )
    training = prepare(log, config, tmp_path / "run")
    losses = iter([3.0, 1.0, 2.0, 2.5, 2.5, 2.5, 2.5])
    training.loop.validate = lambda: {"loss": next(losses)}
    training.run()
    run = wm.load(tmp_path / "run")
    assert (run.step, run.chosen) == (6, "best by loss")
    last = wm.load(tmp_path / "run", checkpoint="last")
    assert (last.step, last.chosen) == (20, "last")
    assert not same(run.model.state_dict(), last.model.state_dict())
    assert wm.load(tmp_path / "run", checkpoint=6).step == 6
    for wrong, named in ((7, "no checkpoint of step 7; saved steps: 6, 20"), ("bets", "got the")):
        with pytest.raises(ValueError, match=named):
            wm.load(tmp_path / "run", checkpoint=wrong)
    said = CliRunner().invoke(app, ["recommend", str(tmp_path / "run"), "--history", "i3"])
    assert "step 6, best by" in said.stderr
    flags = ["--checkpoint", "last", "--json"]
    said = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), *flags])
    assert json.loads(said.stdout)["step"] == 20
    assert "step 20, last" in said.stderr


def test_fault_36_figures_of_another_numbering_are_refused(log, tmp_path):
    run = wm.train(log, CONFIG, folder=tmp_path / "run")
    rows = log.read_text().splitlines()[1:]
    # Of each user's eight items: six, the next, and the last, in other counts than the whole log.
    train = [row for place, row in enumerate(rows) if place % 8 < 6 and place > 99]
    parts = {"train": train, "valid": rows[6::8], "test": rows[7::8]}
    for name, part in parts.items():
        (tmp_path / name).write_text("\n".join(["user,item,time", *part]) + "\n")
    files = [tmp_path / name for name in parts]
    other, vocabulary = wm.data.read_split(*files)
    assert vocabulary.keys.to_list() != run.vocabulary.keys.to_list()
    with pytest.raises(ValueError, match="numbered by another vocabulary than those of the model"):
        wm.evaluation.evaluate_recommendations(run.model.topk, other.test)
    with pytest.raises(ValueError, match="numbered by another vocabulary"):
        run.model.log_prob(other.test.batch(torch.arange(3), max_history=1))
    same_split, same_vocabulary = wm.data.read_split(*files, vocabulary=run.vocabulary)
    assert same_vocabulary is run.vocabulary
    keys = [
        vocabulary.decode(other.test.targets.values),
        run.vocabulary.decode(same_split.test.targets.values),
    ]
    assert keys[0] == keys[1]
    report = wm.evaluation.evaluate_recommendations(run.model.topk, same_split.test, ks=(5,))
    assert report.users == len(other.test)


@pytest.mark.parametrize("ended_by", ["steps", "time", "patience"])
def test_fault_42_a_finished_run_is_continued_when_it_may_take_longer(ended_by, log, tmp_path):
    length = {"steps": {"epochs": 2}, "time": {"epochs": 6, "time_budget": 1e-9}}
    start = {**length.get(ended_by, {"epochs": 6, "patience": 1, "patience_examples": 0})}
    start["metric"] = "loss"
    base = {
        name: CONFIG.values[name] for name in CONFIG.given if name not in ("epochs", "patience")
    }
    folder = tmp_path / "run"
    training = prepare(log, wm.Config(**base, **start), folder)
    if ended_by == "patience":
        training.loop.validate = lambda: {"loss": 1.0}
    begun = training.run()
    assert begun.finished == ended_by
    # A length that is no longer than what is done changes nothing.
    assert wm.train(log, None, folder=folder, resume=True).config.epochs == start["epochs"]
    longer = {"epochs": 6, "time_budget": 0.0, "patience": 0}
    given = {name: longer[name] for name in longer if name in start}
    wm.train(log, wm.Config(**{**base, **start, **given}), folder=folder, resume=True)
    straight = wm.train(
        log, wm.Config(**base, metric="loss", epochs=6, patience=0), folder=tmp_path / "straight"
    )
    last = wm.load(folder, checkpoint="last")
    assert last.config.epochs == 6
    other = wm.load(straight.folder, checkpoint="last")
    assert last.step == other.step > begun.step
    assert same(last.model.state_dict(), other.model.state_dict())
    with pytest.raises(ValueError, match=r"^dimension is 9, and .* was started with 8"):
        wm.train(log, wm.Config(**{**base, "dimension": 9}), folder=folder, resume=True)


def test_the_mean_of_the_weights_is_kept_and_training_resumes_from_the_weights(log, tmp_path):
    config = CONFIG.changed(averaging=0.9)
    whole = wm.train(log, config, folder=tmp_path / "whole")
    plain = wm.train(log, CONFIG.changed(averaging=0.0), folder=tmp_path / "plain")
    assert not same(weights(whole.folder), weights(plain.folder))
    training = prepare(log, config, tmp_path / "parts")
    training.loop.on_step = lambda progress: progress.step == 5 and os.kill(os.getpid(), 15)
    with pytest.raises(wm.training.Interrupted):
        training.run()
    resumed = wm.train(log, config, folder=tmp_path / "parts", resume=True)
    assert same(weights(whole.folder), weights(resumed.folder))
    check_stored_metrics(whole)


def test_a_run_of_epochs_goes_on_for_steps(log, tmp_path):
    folder = tmp_path / "run"
    first = wm.train(log, CONFIG.changed(epochs=1), folder=folder)
    for steps in (first.step + 5, first.step + 9):
        run = wm.train(log, wm.Config(steps=steps), folder=folder, resume=True)
        assert (run.config.steps, wm.load(folder, checkpoint="last").step) == (steps, steps)


def test_of_two_lengths_a_run_goes_on_for_the_later_one(log, tmp_path):
    folder = tmp_path / "run"
    epoch = wm.train(log, CONFIG.changed(epochs=1), folder=folder).step
    lengths = [{"epochs": 2}, {"steps": 2 * epoch + 1}, {"epochs": 3}, {"steps": 4}, {"epochs": 4}]
    reached = [2 * epoch, 2 * epoch + 1, 3 * epoch, 3 * epoch, 4 * epoch]
    for length, step in zip(lengths, reached, strict=True):
        wm.train(log, wm.Config(**length), folder=folder, resume=True)
        again = wm.load(folder, checkpoint="last")
        assert (again.step, length.items() <= dict(again.config.values).items()) == (step, True)
