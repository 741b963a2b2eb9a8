"""What the training loop does with its steps."""

import widemax as wm
from widemax.runs.training.preparing import prepare


def test_a_step_that_is_validated_and_saved_is_published_once(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be that is the question\n" * 400)
    settings = {"model": "cbow", "dimension": 8, "min_count": 1, "epochs": 3, "threads": 1}
    config = wm.Config(source="text", **settings, validation_size=50, test_size=50)
    training = prepare(text, config, tmp_path / "run")
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
