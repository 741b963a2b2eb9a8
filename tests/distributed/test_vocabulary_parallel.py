"""``--vocabulary-parallel``: the run of one process, and what any number goes on from."""

import pytest

from tests.distributed.test_torchrun import (
    SETTINGS,
    STEPS,
    all_finished,
    assert_same,
    command,
    log,  # noqa: F401
    ranks,
)
from widemax.config import Config
from widemax.runs.api import load, train

DIVIDED = {**SETTINGS, "model": "next-item"}


@pytest.fixture(scope="module")
def alone(log, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("alone") / "run"
    train(log, Config(steps=STEPS, **DIVIDED), folder=folder)
    return folder


def divided(log, folder, steps, **more):  # noqa: F811
    return [*command(log, folder, steps, **{"model": "next-item", **more}), "--vocabulary-parallel"]


def test_three_processes_then_two_then_one_end_as_one_process_does(log, alone, tmp_path):  # noqa: F811
    folder = tmp_path / "run"
    codes, text = all_finished(ranks(3, divided(log, folder, 15)))
    assert codes == [0, 0, 0], text
    codes, text = all_finished(ranks(2, [*divided(log, folder, 30), "--resume"]))
    assert codes == [0, 0], text
    assert "resumed at step 15" in text
    train(log, Config(steps=STEPS, **DIVIDED), folder=folder, resume=True)
    assert_same(folder, alone)
    asked = ["i1", "i2"]
    assert [each.key for each in load(folder).recommend(asked, k=5)] == [
        each.key for each in load(alone).recommend(asked, k=5)
    ]
    assert not [path for path in (folder / "checkpoints").iterdir() if path.name.endswith(".part")]


def test_what_cannot_be_divided_says_which_model_can(log, tmp_path):  # noqa: F811
    words = divided(log, tmp_path / "run", 5, model="youtube-dnn")
    for more in ([], ["--no-tied"]):
        codes, text = all_finished(ranks(2, [*words, *more]))
        assert 0 not in codes
        assert "--model next-item" in text


def test_one_process_cannot_divide_anything(log, tmp_path):  # noqa: F811
    from typer.testing import CliRunner

    from widemax.cli.app import app

    found = CliRunner().invoke(app, divided(log, tmp_path / "run", 5))
    assert found.exit_code != 0
    with pytest.raises(ValueError, match="this is one: start several by torchrun"):
        raise found.exception
