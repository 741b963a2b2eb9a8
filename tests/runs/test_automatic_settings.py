"""Settings that the data decide, from end to end: decided once, said, kept, and used everywhere."""

import contextlib
import json
import os
import random
import signal

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from tests import forked
from tests.distributed.processes import free_port
from tests.runs.test_serving_export import answer
from widemax.cli.app import app
from widemax.config import Config
from widemax.config.toml import read_toml, to_toml
from widemax.models.automatic import chosen_temperature
from widemax.models.options import LENGTHS
from widemax.runs.answering.table_answers import TableAnswers
from widemax.runs.folder.settings import stored_config
from widemax.runs.source.splitting import split_source
from widemax.runs.training.deciding import decided
from widemax.runs.training.preparing import prepare
from widemax.training.checkpoints import CheckpointStore
from widemax.training.together import Together

ITEMS = 40
SMALL = {"dimension": 16, "validate_every": 20}
NOTE = "what follows an item is another thing than what comes before it"


def pairs(users):
    """Each user takes items of a ring by twos, none twice: any one, and the next of the ring."""
    drawn = random.Random(0)
    for user in range(users):
        items = []
        for first in drawn.sample(range(ITEMS), drawn.randint(3, 8)):
            two = [first, (first + 1) % ITEMS]
            items += [] if {*two} & {*items} else two
        yield f"u{user}", items


def written(path, sequences):
    rows = [f"{user},i{item},{t}" for user, items in sequences for t, item in enumerate(items)]
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return written(tmp_path_factory.mktemp("log") / "log.csv", pairs(300))


@pytest.fixture(scope="module")
def run(log, tmp_path_factory):
    return wm.train(log, wm.Config(epochs=30), folder=tmp_path_factory.mktemp("runs") / "run")


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_what_follows_an_item_is_learned_by_the_usual_settings(run):
    found = run.evaluate_recommendations().metrics()
    assert found["mrr@20"] > 0.9
    assert run.config.model == "youtube-dnn"
    assert not run.config.tied


def test_what_was_decided_is_part_of_the_run(run, log):
    words = sum(len(items) for _, items in pairs(300))
    decided = run.description["automatic"]
    assert set(decided) == {"max_history", "temperature", "tied"}
    assert decided == {name: run.config.values[name] for name in decided}
    assert decided["max_history"] in LENGTHS
    # Of each user an item is held out for the test, of some one for validation.
    assert chosen_temperature(words) <= decided["temperature"] <= chosen_temperature(words - 600)
    model = prepare(log, run.config, run.folder.parent / "again").model
    for each in (model, wm.load(run.folder).model):
        assert each.head.scorer.temperature == decided["temperature"]


def test_what_is_exported_has_the_temperature_of_the_run(run, tmp_path):
    history = ["i3", "i4"]
    wanted = run.recommend(history, k=5)
    tables = TableAnswers.open(run.folder)
    found = tables.recommend(history, k=5)
    assert [each.key for each in found] == [each.key for each in wanted]
    np.testing.assert_allclose(
        [each.score for each in found], [each.score for each in wanted], rtol=1e-5
    )
    run.export(tmp_path / "serving", to="serving")
    (served,) = answer(tmp_path / "serving", [history], {}, k=5)
    wanted = run.recommend(history, k=5, include_seen=True, exact=True)
    assert [key for key, _ in served] == [each.key for each in wanted]
    assert [score for _, score in served] == pytest.approx([each.score for each in wanted], 1e-4)


@pytest.mark.parametrize("given", [{}, {"max_history": "auto", "temperature": "auto"}])
def test_a_run_that_is_resumed_keeps_what_was_decided_to_the_bit(log, tmp_path, given):
    config = wm.Config(epochs=4, checkpoint_every=5, **SMALL)
    wm.train(log, config, folder=tmp_path / "whole")
    training = prepare(log, config, tmp_path / "parts")

    def stop(progress):
        if progress.step == 6:
            os.kill(os.getpid(), signal.SIGTERM)

    training.loop.on_step = stop
    with pytest.raises(wm.training.Interrupted):
        training.run()
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    invoke("train", log, "--folder", tmp_path / "parts", "--resume", *flags)
    whole, parts = (
        CheckpointStore(tmp_path / name).load().model_tensors() for name in ("whole", "parts")
    )
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    kept = [stored_config(tmp_path / name) for name in ("whole", "parts")]
    assert kept[0] == kept[1]
    assert wm.load(tmp_path / "parts").description["automatic"] == training.description["automatic"]


@pytest.mark.parametrize(("name", "value"), [("max_history", 11), ("temperature", 0.123)])
def test_another_number_is_refused(run, log, name, value):
    was = run.config.values[name]
    with pytest.raises(ValueError, match=f"{name} is {value}, and .* was started with {was}"):
        wm.train(log, wm.Config(**{name: value}), folder=run.folder, resume=True)


def test_a_word_where_a_number_was_typed_is_refused(log, tmp_path):
    wm.train(log, wm.Config(steps=1, temperature=0.5, **SMALL), folder=tmp_path / "run")
    with pytest.raises(ValueError, match=r"temperature is 'auto', and .* was started with 0\.5"):
        wm.train(log, wm.Config(temperature="auto"), folder=tmp_path / "run", resume=True)


def test_the_command_says_what_was_decided(log, tmp_path, caplog):
    said = invoke("train", log, "--folder", tmp_path / "run", "--epochs", 1, "--dimension", 8)
    kept = stored_config(tmp_path / "run")
    shown = f"max_history {kept.max_history} (auto), temperature {kept.temperature} (auto)"
    assert said.count(f"{shown}, tied false (auto)\n") == 1
    assert (said + caplog.text).count(NOTE) == 1


@pytest.fixture(scope="module")
def tomorrow(tmp_path_factory):
    """Few data that decide otherwise: any item may follow any other."""
    drawn = random.Random(1)
    sequences = ((f"t{user}", drawn.sample(range(ITEMS), 6)) for user in range(20))
    return written(tmp_path_factory.mktemp("tomorrow") / "log.csv", sequences)


OF_THE_MODEL = ("max_history", "temperature", "tied")


def test_a_run_that_goes_on_from_another_keeps_what_that_was_learned_with(run, tomorrow, tmp_path):
    alone = prepare(tomorrow, wm.Config(), tmp_path / "alone").config
    assert (alone.tied, run.config.tied) == (True, False)
    training = prepare(tomorrow, wm.Config(), tmp_path / "next", vectors=run.folder)
    for name in OF_THE_MODEL:
        assert training.config.values[name] == run.config.values[name]
    # How long the new data are learned goes by them.
    assert training.config.epochs == alone.epochs != run.config.epochs
    assert {*OF_THE_MODEL, "epochs"} == {*training.description["automatic"]}


def test_what_is_typed_is_taken_whatever_the_other_run_has(run, tomorrow, tmp_path):
    config = wm.Config(temperature=0.2, tied=True, max_history=7)
    training = prepare(tomorrow, config, tmp_path / "next", vectors=run.folder)
    assert [training.config.values[name] for name in OF_THE_MODEL] == [7, 0.2, True]


def test_the_log_decides_where_another_model_or_vectors_alone_are_given(run, tomorrow, tmp_path):
    alone = prepare(tomorrow, wm.Config(model="next-item"), tmp_path / "alone").config
    for name, vectors in (("run", run.folder), ("vectors", run.vectors())):
        config = wm.Config(model="next-item")
        found = prepare(tomorrow, config, tmp_path / name, vectors=vectors).config
        assert found.temperature == alone.temperature
        assert found.max_history == alone.max_history


def test_a_length_that_is_typed_leaves_the_tables_to_the_log(log, tmp_path):
    invoke("train", log, "--folder", tmp_path / "run", "--steps", 1, "--max-history", 7)
    assert stored_config(tmp_path / "run").max_history == 7
    assert not stored_config(tmp_path / "run").tied


@pytest.mark.parametrize("flag", ["--tied", "--no-tied"])
def test_tables_that_are_asked_for_are_not_decided(log, tmp_path, caplog, flag):
    said = invoke("train", log, "--folder", tmp_path / "run", "--steps", 1, flag)
    assert stored_config(tmp_path / "run").tied == (flag == "--tied")
    assert NOTE not in said + caplog.text


def test_lists_without_order_have_one_table(tmp_path):
    lines = [" ".join([user, *(f"i{item}" for item in items)]) for user, items in pairs(300)]
    (tmp_path / "lists").write_text("\n".join(lines) + "\n")
    settings = {"kind": "lists", "max_history": "auto", "steps": 1, **SMALL}
    for how in ("auto", "kept"):  # kept as the file has them
        folder = tmp_path / how
        config = wm.Config(**settings, item_order=how, targets_per_row=1)
        wm.train(tmp_path / "lists", config, folder=folder)
        assert stored_config(folder).tied == (how == "auto")


def test_a_configuration_is_shown_and_read_back_undecided(log, tmp_path):
    """Printed or written, and all of it named: the log decides as it would without."""
    shown = invoke("train", log, "--epochs", 1, "--print-config")
    for name, text in (("a", shown), ("b", to_toml(wm.Config(source="csv", epochs=1)))):
        file = tmp_path / f"{name}.toml"
        file.write_text(text)
        assert {read_toml(file)[each] for each in ("max_history", "temperature", "tied")} == {
            "auto"
        }
        invoke("train", log, "--config", file, "--folder", tmp_path / name)
        decided = wm.load(tmp_path / name).description["automatic"]
        assert set(decided) == {"max_history", "temperature", "tied"}
        assert not decided["tied"]


def test_what_is_advised_trains_and_is_decided_then(log, tmp_path):
    out, folder = tmp_path / "a.toml", tmp_path / "run"
    invoke("advise", log, "--model", "youtube-dnn", "--out", out)
    assert read_toml(out)["max_history"] == "auto"
    invoke("train", log, "--config", out, "--folder", folder, "--epochs", 1)
    decided = wm.load(folder).description["automatic"]
    assert "max_history" in decided
    assert not decided["tied"]


def test_contenders_decide_alike(log, tmp_path):
    folder = tmp_path / "comparison"
    said = forked.run(
        ["-m", "widemax", "compare", log, "--folder", folder, "--heads=full,sampled",
         "--objectives=sampled-softmax", "--rates=1", "--seeds=1", "--dimension=8",
         "--split=last", "--workers=1", "--budget=60s", "--json"],
        check=True,
    )  # fmt: skip
    assert not any(row["failed"] for row in json.loads(said.stdout))
    winner = read_toml(folder / "winner.toml")
    wm.train(log, wm.Config(**{**winner, "epochs": 1}), folder=tmp_path / "run")
    assert set(wm.load(tmp_path / "run").description["automatic"]) >= {"temperature"}


def test_two_processes_decide_the_same(log, tmp_path):
    flags = ["--steps", "4", "--dimension", "8", "--threads", "1", "--batch-size", "64"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    environment |= {"WORLD_SIZE": "2", "MASTER_PORT": str(free_port())}
    words = ["-m", "widemax", "train", log, "--folder", tmp_path / "two", *flags]
    started = [forked.Program(words, env={**environment, "RANK": str(rank)}) for rank in range(2)]
    with contextlib.ExitStack() as stack:
        for each in started:
            stack.callback(each.close)
        said = [each.communicate(timeout=300)[1] for each in started]
    assert [each.returncode for each in started] == [0, 0], said
    invoke("train", log, "--folder", tmp_path / "one", *flags)
    two, one = (wm.load(tmp_path / name) for name in ("two", "one"))
    assert two.config == one.config
    assert two.description["automatic"] == one.description["automatic"]
    assert not two.config.tied
    # As one process does: each of the two has decided as the other.
    for name, tensor in one.model.state_dict().items():
        torch.testing.assert_close(two.model.state_dict()[name], tensor, rtol=0, atol=1e-5)


class _NotFirst(Together):
    """A process that does not write, told by the first that 3 items are read and one table does."""

    writes = False

    def total(self, value):
        return value + 3.0

    def decided(self, value):
        return False


def test_processes_go_by_what_the_first_one_found(run):
    config = Config(source="csv", model="youtube-dnn")
    source = run.read_source()
    split = split_source(config, source)
    found = decided(config, source, split, with_seen=False, together=_NotFirst())
    assert (found.max_history, found.tied) == (3, True)
    assert run.config.tied is False
