"""``epochs = auto``: a short text is passed over more often than a long one."""

import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from widemax.cli.app import app
from widemax.runs.folder.settings import stored_config
from widemax.runs.training.preparing import prepare
from widemax.training.epochs import chosen_epochs
from widemax.training.loop import Interrupted

SMALL = {"dimension": 8, "min_count": 1, "threads": 1, "subsample": 0.0}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat and the dog sat on the log\n" * 200)
    return path


@pytest.mark.parametrize(
    ("words", "epochs"),
    [
        (1, 40),
        (250_000, 40),
        (1_000_000, 20),
        (4_000_000, 10),
        (16_000_000, 5),
        (17_000_000, 5),
        (10**10, 5),
    ],
)
def test_the_fewer_the_words_the_more_the_epochs(words, epochs):
    assert chosen_epochs("auto", words) == epochs
    assert chosen_epochs(7, words) == 7


@pytest.mark.parametrize("model", ["cbow", "skip-gram"])
def test_the_length_chooses_where_the_kernel_trains_words(model):
    assert wm.Config(model=model).epochs == "auto"
    assert wm.Config(model=model, epochs=3).epochs == 3
    assert wm.Config(model=model, trainer="torch").epochs == 5
    assert wm.Config(model="item2vec").epochs == 20


@pytest.mark.parametrize("model", ["youtube-dnn", "next-item", "mind", "two-tower"])
def test_the_length_chooses_where_gradients_train_models_of_users(model):
    assert wm.Config(model=model).epochs == "auto"
    assert wm.Config(model=model, epochs=3).epochs == 3


def test_what_is_not_trained_in_epochs_does_not_take_the_word():
    with pytest.raises(ValueError, match="epochs has no effect with trainer = 'fit'"):
        wm.Config(model="item-knn", epochs="auto")


def stopped_at(step):
    def stop(progress):
        if progress.step == step:
            raise Interrupted

    return stop


@pytest.mark.parametrize("model", ["cbow", "skip-gram"])
def test_the_training_is_that_of_the_epochs_typed_whole_or_resumed(model, text, tmp_path):
    config = wm.Config(model=model, **SMALL)
    found = prepare(text, config, tmp_path / "found")
    assert found.config.epochs == 40
    assert found.loop.plan.total_steps == 40 * found.loop.steps.per_epoch
    found.loop.on_step = stopped_at(found.loop.steps.per_epoch + 2)
    with pytest.raises(Interrupted):
        found.run()
    assert stored_config(tmp_path / "found").epochs == 40
    resumed = prepare(text, config.changed(epochs="auto"), tmp_path / "found", resume=True)
    typed = prepare(text, config.changed(epochs=40), tmp_path / "typed")
    weights = []
    for training in (resumed, typed):
        training.run()
        weights.append(training.model.key_vectors())
    assert resumed.loop.plan.total_steps == typed.loop.plan.total_steps
    assert torch.equal(*weights)
    assert stored_config(tmp_path / "found").epochs == 40


def test_a_length_in_steps_wins(text, tmp_path):
    training = prepare(text, wm.Config(model="cbow", **SMALL, steps=7), tmp_path / "run")
    assert training.loop.plan.total_steps == 7
    assert "automatic" not in training.description


def test_the_command_says_what_was_chosen(text, tmp_path):
    flags = ["--min-count", "1", "--dimension", "8", "--folder", str(tmp_path / "run")]
    result = CliRunner().invoke(app, ["train", str(text), *flags])
    assert result.exit_code == 0, result.output
    assert "objective negative-sampling, epochs 40 (auto)\n" in result.output
    assert "all 40 epochs" in result.output
    shown = CliRunner().invoke(app, ["train", str(text), *flags, "--print-config"])
    line = next(line for line in shown.output.splitlines() if line.startswith("epochs"))
    assert '"auto"' in line


def test_without_a_run_the_length_chooses_too(text):
    sequences, vocabulary = wm.data.read_corpus(text, min_count=1)
    seen = []
    model = wm.models.CBOW.create(vocabulary.counts, dimension=8)
    wm.models.train_word2vec(
        model, sequences, threads=1, on_step=lambda done, total: seen.append(total)
    )
    steps = wm.models.Word2VecSteps(model, sequences, threads=1)
    assert seen[-1] == len(seen) == 40 * steps.per_epoch
