"""``widemax compare`` from a log to a table, and after kills."""

import json
import os
import random
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from tests import forked
from widemax.cli.app import app
from widemax.comparison import trial
from widemax.comparison.budgeting import Terms
from widemax.comparison.contenders import Contender
from widemax.comparison.race import Race, stored_race
from widemax.storage.files import make_folder
from widemax.storage.manifest import write_manifest

FLAGS = (
    "--heads=full,sampled",
    "--objectives=sampled-softmax",
    "--rates=2",
    "--seeds=1",
    "--equal=steps",
    "--dimension=8",
    "--split=last",
    "--workers=1",
)
# Of the machine, and no result of the race.
MEASURED = ("seconds", "memory", "leads", "curve", "front")
KILLS = int(os.environ.get("WIDEMAX_KILLS", "2"))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder, drawn = tmp_path_factory.mktemp("data"), random.Random(0)
    rows = ["user,item,time"]
    for user in range(60):
        start = drawn.randrange(30)
        rows += [f"u{user},i{(start + step) % 30},{step}" for step in range(9)]
    path = folder / "log.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def compared(log, folder, *flags):
    return [
        *("-m", "widemax", "compare", str(log), "--folder", str(folder)),
        *(*FLAGS, "--budget=10m", "--json", *flags),
    ]


def table(text):
    """What of the standings the machine has no part in."""
    rows = json.loads(text)
    for row in rows:
        row["curve"] = [[point[0], *point[2:]] for point in row["curve"]]
    return [{name: row[name] for name in row if name not in MEASURED[:3]} for row in rows]


@pytest.fixture(scope="module")
def race(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("race") / "comparison"
    said = forked.run(compared(log, folder), check=True)
    return folder, said.stdout


def test_contenders_are_trained_judged_and_tested(race):
    folder, printed = race
    rows = json.loads(printed)
    assert {row["name"] for row in rows} == {"full", "sampled-softmax, unigram"}
    for row in rows:
        assert row["seeds"] == 1
        assert row["test"]["ndcg@20"] > 0.3
        assert len(row["curve"]) >= 9
        assert not row["failed"]
    assert rows[0]["value"] >= rows[1]["value"]
    assert (folder / "winner.toml").exists()


def test_the_winner_can_be_trained_by_its_configuration(race, log, tmp_path):
    folder, printed = race
    best = json.loads(printed)[0]
    config = wm.Config(**_settings(folder / "winner.toml"), source="csv")
    assert config.learning_rate == best["learning_rate"]
    flags = ["--config", str(folder / "winner.toml"), "--epochs", "1"]
    called = CliRunner().invoke(app, ["train", str(log), *flags, "--folder", str(tmp_path / "run")])
    assert called.exit_code == 0, called.output


def _settings(path):
    from widemax.config.toml import read_toml

    return read_toml(path)


def test_a_comparison_that_was_killed_ends_with_the_same_table(race, log, tmp_path):
    folder, drawn = tmp_path / "killed", random.Random(1)
    # The same lengths, as if they had been measured on the same machine at the same moment.
    folder.mkdir()
    plan = json.loads((race[0] / "comparison.json").read_text())
    (folder / "comparison.json").write_text(json.dumps(plan))
    for _ in range(KILLS):
        process = forked.Program(compared(log, folder, "--resume"))
        time.sleep(drawn.uniform(1.0, 8.0))
        process.close()
    said = forked.run(compared(log, folder, "--resume"), check=True)
    assert table(said.stdout) == table(race[1])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--heads", "ful"], "heads must be one of"),
        (["--head", "full"], "--head is not for compare: --heads names them"),
        (["--steps", "5"], "--steps is not for compare: all output layers have the"),
        (["--budget", "soon"], "--budget must be a time such as 90s, 10m or 2h, got 'soon'"),
        (["--heads", "full"], "a comparison needs two output layers"),
        (["--equal", "luck"], "equal must be one of time, steps, got 'luck'"),
    ],
)
def test_mistakes_are_said_before_anything_is_trained(log, tmp_path, flags, message):
    folder = tmp_path / "comparison"
    called = CliRunner().invoke(app, ["compare", str(log), "--folder", str(folder), *flags])
    assert called.exit_code != 0
    assert message in f"{called.output} {called.exception}"
    assert not folder.exists()


def test_what_ails_the_data_is_said_once_and_the_folder_is_free_again(log, tmp_path):
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(log.read_text().replace("user,item", "who,what"))
    folder = tmp_path / "comparison"
    said = forked.run(compared(renamed, folder))
    assert said.returncode == 2
    assert said.stderr.count("has no column that looks like the user") == 1
    assert not any(folder.iterdir())


def test_a_budget_that_does_not_do_for_measuring_is_refused_before_that(log, tmp_path):
    folder = tmp_path / "comparison"
    said = forked.run([*compared(log, folder), "--budget=4s"])
    assert said.returncode == 2
    assert "budget = 4 s is too short: 2 output layers take 5 s at the least" in said.stderr
    assert not any(folder.iterdir())


def test_a_contender_that_diverges_is_reported_and_ends_nothing(log, tmp_path):
    plugin = tmp_path / "broken.py"
    plugin.write_text(BROKEN)
    command = compared(log, tmp_path / "comparison", "--rates=1")
    command[2:2] = ["--plugin", str(plugin)]
    command = [each.replace("=sampled-softmax", "=sampled-softmax,broken") for each in command]
    command = [each for each in command if each != "--heads=full,sampled"]
    said = forked.run(command, check=True)
    rows = {row["name"]: row for row in json.loads(said.stdout)}
    assert rows["sampled-softmax, unigram"]["value"] > 0
    assert "step" in rows["broken, unigram"]["failed"]


BROKEN = '''
import widemax as wm


@wm.declare.objective("broken")
def broken(target_scores, candidate_scores, **draws):
    """Return a loss that is not a number."""
    return wm.sampled_softmax(target_scores, candidate_scores, **draws) * float("nan")
'''


def _measured_by_two_threads(job):
    torch.set_num_threads(2)
    trial._measure = lambda job: {"threads": torch.get_num_threads()}
    trial.work(job)


def test_a_contender_is_measured_with_the_threads_that_it_trains_with(log, tmp_path):
    job = trial.Job(
        source=str(log), kind="csv", settings={"threads": 1}, folder=str(tmp_path / "run"),
        result=str(tmp_path / "measured.json"),
    )  # fmt: skip
    measuring = forked.FORKS.Process(target=_measured_by_two_threads, args=(job,))
    measuring.start()
    measuring.join()
    assert trial.result_of(tmp_path / "measured.json")["threads"] == 1


def test_slow_validations_are_made_shorter_and_only_where_nobody_said_how_long(log, tmp_path):
    # As many users as would be asked by default, a minute for a validation.
    slow = {"prepared": 0.1, "step": 0.001, "validation": 60.0, "questions": 9_000}
    slow |= {"test": 90.0, "test_questions": 9_000, "usual_steps": 9}

    def planned(name, **typed):
        settings = {"model": "next-item", "dimension": 8, **typed}
        race = Race(
            folder=tmp_path / name,
            source=str(log),
            kind="csv",
            contenders=[Contender("full", {**settings, "head": "full"})],
            terms=Terms(budget=600),
        )
        for job in race._measurements():
            make_folder(Path(job.result).parent)
            write_manifest(job.result, 1, slow)
        race._plan()
        return stored_race(race.folder)

    race = planned("usual")
    assert race.less == {"validation_size": 2_000, "test_size": 5_400}
    (job, *_) = race._trainings()
    assert (job.settings["validation_size"], job.settings["test_size"]) == (2_000, 5_400)
    assert planned("typed", test_size=9_000).less == {"validation_size": 2_000}
    with pytest.raises(ValueError, match="too short"):
        planned("both", validation_size=9_000)
