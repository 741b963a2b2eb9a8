"""``auto``: all rows of a table are passed over at each step where it is small, and not beyond."""

import pytest

import widemax as wm
import widemax.training.gradients.steps as steps
from widemax.optim import DenseAdam, RowAdam
from widemax.runs.training.preparing import prepare


def kind(training):
    """Return the optimiser, and whether weights are averaged."""
    steps = training.loop.steps
    steps.publish()
    return type(steps.optimizer), "trained" in steps.state()


@pytest.mark.parametrize(("most", "expected"), [(20, (DenseAdam, True)), (19, (RowAdam, False))])
def test_the_number_of_classes_chooses(most, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "MOST_DENSE_CLASSES", most)
    log = tmp_path / "log.csv"
    rows = [f"{user},{(user + step) % 20}" for user in range(40) for step in range(6)]
    log.write_text("\n".join(["user,item", *rows]) + "\n")
    config = wm.Config(model="next-item", dimension=4)
    assert (
        kind(prepare(log, config.changed(optimizer="auto", averaging="auto"), tmp_path / "auto"))
        == expected
    )
    named = config.changed(optimizer="adam", averaging=0.9)
    assert kind(prepare(log, named, tmp_path / "named")) == (RowAdam, True)
