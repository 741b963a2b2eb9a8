"""What the training loop does with its steps."""

import threading

import pytest

import widemax as wm
from widemax.runs.training.preparing import prepare


@pytest.fixture
def training(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be that is the question\n" * 400)
    settings = {"model": "cbow", "dimension": 8, "min_count": 1, "epochs": 3, "threads": 1}
    config = wm.Config(source="text", **settings, validation_size=50, test_size=50)
    return prepare(text, config, tmp_path / "run")


def test_a_step_that_is_validated_and_saved_is_published_once(training):
    loop, published = training.loop, []
    publish = loop.steps.publish

    def noted():
        published.append(loop.progress.step)
        publish()

    loop.steps.publish = noted
    training.run()
    per_epoch = loop.steps.per_epoch
    assert published == [per_epoch, 2 * per_epoch, 3 * per_epoch]
    saved = loop.store.load(3 * per_epoch).model_tensors()["encoder.weight"]
    assert saved.numpy().tolist() == loop.steps._tables.inputs[:, :8].tolist()


def test_steps_go_on_while_the_kernel_s_checkpoint_is_written(training):
    loop, has_gone_on = training.loop, threading.Event()
    take, save, saved = loop.steps.take, loop.store.save, {}

    def noted(step, learning_rate):
        take(step, learning_rate)
        if step == loop.steps.per_epoch:
            has_gone_on.set()

    def waiting(step, tensors, *rest, **named):
        assert step < loop.steps.per_epoch or has_gone_on.wait(30)
        saved[step] = tensors["encoder.weight"].tolist()
        save(step, tensors, *rest, **named)

    loop.steps.take, loop.store.save = noted, waiting
    training.run()
    assert len(saved) == 3
    for step in loop.store.steps():
        kept = loop.store.load(step).model_tensors()["encoder.weight"]
        assert kept.tolist() == saved[step]
    first, second, _ = saved.values()
    assert first != second


def test_a_checkpoint_that_cannot_be_written_ends_the_training(training):
    def failing(*_, **__):
        raise OSError(28, "cannot save: No space left on device")

    training.loop.store.save = failing
    with pytest.raises(OSError, match="No space left"):
        training.run()
    assert training.loop.progress.step <= 2 * training.loop.steps.per_epoch
