"""``--vocabulary-parallel``: the run of one process, and what any number goes on from."""

import pytest

from tests.distributed.test_torchrun import (
    SETTINGS,
    STEPS,
    all_finished,
    alone,  # noqa: F401
    assert_same,
    command,
    log,  # noqa: F401
    ranks,
)
from widemax.config import Config
from widemax.runs.api import load, train


def test_three_processes_then_two_then_one_end_as_one_process_does(log, alone, tmp_path):  # noqa: F811
    folder = tmp_path / "run"
    codes, text = all_finished(ranks(3, [*command(log, folder, 15), "--vocabulary-parallel"]))
    assert codes == [0, 0, 0], text
    words = [*command(log, folder, 30), "--vocabulary-parallel", "--resume"]
    codes, text = all_finished(ranks(2, words))
    assert codes == [0, 0], text
    assert "resumed at step 15" in text
    train(log, Config(steps=STEPS, **SETTINGS), folder=folder, resume=True)
    assert_same(folder, alone)
    asked = ["i1", "i2"]
    assert [each.key for each in load(folder).recommend(asked, k=5)] == [
        each.key for each in load(alone).recommend(asked, k=5)
    ]
    assert not [path for path in (folder / "checkpoints").iterdir() if path.name.endswith(".part")]


def test_one_process_cannot_divide_anything(log, tmp_path):  # noqa: F811
    from typer.testing import CliRunner

    from widemax.cli.app import app

    words = [*command(log, tmp_path / "run", 5), "--vocabulary-parallel"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code != 0
    with pytest.raises(ValueError, match="this is one: start several by torchrun"):
        raise found.exception
