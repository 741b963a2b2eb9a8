"""A run is judged on data that it was not trained on."""

import json

import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from widemax.cli.app import app
from widemax.runs.folder.kept_data import kept_test


def evaluated(*arguments):
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def ring(users, start, length):
    return [
        f"{user},{(user + start + step) % 12},{start + step}"
        for user in users
        for step in range(length)
    ]


def write_log(path, rows):
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ring")
    log = write_log(folder / "log.csv", ring(range(40), 0, 6))
    config = wm.Config(
        model="next-item", head="full", epochs=40, dimension=12, batch_size=32, learning_rate=0.05,
        max_history=1, split="last", patience=0,
    )  # fmt: skip
    return wm.train(log, config, folder=folder / "run")


def test_users_of_the_run_are_asked_from_what_they_had_there(run, tmp_path):
    # What comes next after all six items, the last of which was the test.
    later = write_log(tmp_path / "later.csv", [*ring(range(10), 6, 2), "3,999,9", "777,5,9"])
    other = run.read_other(later)
    assert (other.histories, other.values, other.unknown, other.skipped) == ("run", 22, 1, 1)
    assert other.holdout.histories.lengths.tolist() == [6] * 10
    assert other.holdout.targets.lengths.tolist() == [2] * 10
    first = run.vocabulary.decode(other.holdout.targets.values[::2])
    assert first == [(user + 6) % 12 for user in range(10)]
    assert run.evaluate_on(other, ks=(1,)).metrics()["hit_rate@1"] > 0.8
    said = evaluated(run.folder, "--data", later, "-k", 1)
    assert "asked from what users had in the run's log" in said.stdout
    assert "1 of 22 are unknown to the run; 1 user skipped" in said.stdout


def test_a_log_whose_users_had_all_of_it_before_is_said_to_be_so(run, tmp_path):
    own = write_log(tmp_path / "own.csv", ring(range(40), 0, 6))
    assert (
        "is this the log that the run was trained on?"
        in evaluated(run.folder, "--data", own, "-k", 1).stderr
    )
    later = write_log(tmp_path / "later.csv", ring(range(10), 5, 2))
    assert "had every target before" not in evaluated(run.folder, "--data", later, "-k", 1).stderr


@pytest.mark.parametrize("histories", ["auto", "file"])
def test_others_are_asked_for_their_last_item(histories, run, tmp_path):
    users = range(100, 120) if histories == "auto" else range(20)
    others = write_log(tmp_path / "others.csv", ring(users, 3, 4))
    other = run.read_other(others, histories=histories)
    assert other.histories == "file"
    assert other.holdout.histories.lengths.tolist() == [3] * 20
    report = json.loads(
        evaluated(run.folder, "--data", others, "--histories", histories, "--json").stdout
    )
    assert report["users"] == report["targets"] == 20
    assert "the last item of each user of the file" in report["protocol"]
    with pytest.raises(ValueError, match="none of the users of"):
        run.read_other(write_log(tmp_path / "new.csv", ["u,1,2", "u,2,3"]), histories="run")


def test_a_log_of_another_catalogue_is_said_to_have_none_of_the_items(run, tmp_path):
    other = write_log(tmp_path / "other.csv", ["a,900,1", "a,901,2"])
    with pytest.raises(ValueError, match="of its 2 rows 0 have an item of the run"):
        run.read_other(other)


def test_a_format_that_its_content_does_not_show_is_named(run, tmp_path):
    lists = tmp_path / "lists"
    lists.write_text("\n".join(f"{user} {user % 12} {(user + 1) % 12}" for user in range(50, 60)))
    assert run.read_other(lists, kind="lists").holdout.targets.lengths.tolist() == [1] * 10
    (tmp_path / "text").write_text("to be or not to be\n" * 9)
    with pytest.raises(ValueError, match="looks like a text, and the run was trained on a log"):
        run.read_other(tmp_path / "text")
    other = tmp_path / "other.csv"
    other.write_text("visitor,page\na,1\na,2\n")
    with pytest.raises(ValueError, match=r"there are 'visitor', 'page'; .* by kind .*\(--kind\)$"):
        run.read_other(other)


def test_a_condition_of_the_run_holds_for_other_data_too(tmp_path):
    rows = [f"{user},{(user + step) % 5},{step},{step}" for user in range(9) for step in range(6)]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["user,item,time,stars", *rows]) + "\n")
    config = wm.Config(model="popularity", where="stars >= 2")
    run = wm.train(log, config, folder=tmp_path / "run")
    other = run.read_other(log, histories="file")
    assert other.values == 9 * 4
    assert str(other).endswith("of rows where stars >= 2")


def test_what_has_no_effect_is_refused(run):
    refused = CliRunner().invoke(app, ["evaluate", str(run.folder), "--histories", "run"])
    assert isinstance(refused.exception, ValueError)
    assert "--histories is for --data FILE" in str(refused.exception)


def test_another_text(tmp_path):
    (tmp_path / "text").write_text("a b a b a b a b a b\n" * 40)
    (tmp_path / "same").write_text("a b a b\n")
    (tmp_path / "other").write_text("a c a b\n")
    config = wm.Config(model="n-gram", order=2, validation_size=0, test_size=20, unknown="<unk>")
    run = wm.train(tmp_path / "text", config, folder=tmp_path / "run")
    same, other = (run.read_other(tmp_path / name) for name in ("same", "other"))
    assert (same.values, same.unknown, other.unknown) == (5, 0, 1)
    assert run.evaluate_on(same).examples == 5
    assert run.evaluate_on(same).loss < run.evaluate_on(other).loss
    printed = evaluated(run.folder, "--data", tmp_path / "other").stdout
    assert "all words of the text; 1 of 5 are unknown to the run" in printed
    assert "perplexity" in printed


def write_recbole(folder, suffixes, *, header="user_id:token\titem_id:token\ttimestamp:float"):
    """Write what RecBole's benchmark_filename names: three atomic files."""
    folder.mkdir()
    for part, suffix in enumerate(suffixes):
        rows = [
            f"{user}\t{(user + step) % 9}\t{step}"
            for user in range(20)
            for step in ((0, 1, 2), (3,), (4,))[part]
        ]
        (folder / f"ml.{suffix}.inter").write_text("\n".join([header, *rows]) + "\n")
    return folder


@pytest.mark.parametrize(
    "suffixes", [("part1", "part2", "part3"), ("train", "valid", "test")], ids=lambda each: each[0]
)
def test_files_of_recbole_are_found_by_their_names(suffixes, tmp_path):
    folder = write_recbole(tmp_path / "ml", suffixes)
    config = wm.Config(model="item-knn", split="files")
    run = wm.train(folder, config, folder=tmp_path / "run")
    assert run.data.kind == "atomic"
    assert run.vocabulary.total == 60
    held = kept_test(run.folder).holdout
    # What validates is known when the test asks.
    assert held.histories.lengths.tolist() == [4] * 20
    wanted = {str((user + 4) % 9) for user in range(20)}
    assert {str(key) for key in run.vocabulary.decode(held.targets.values)} == wanted


def test_leave_one_out_says_how_far_it_looks_ahead(run):
    said = evaluated(run.folder, "-k", 5)
    # Trained on are times 0 to 3, the test is 5: nothing is later.
    assert "looks ahead" not in said.stderr
    assert "leave-one-out" in said.stdout


def test_leave_one_out_in_a_log_of_users_who_come_one_after_another(tmp_path):
    rows = [f"{user},{step},{10 * user + step}" for user in range(4) for step in range(5)]
    log = write_log(tmp_path / "log.csv", rows)
    run = wm.train(log, wm.Config(model="popularity", split="last"), folder=tmp_path / "run")
    # Of four users, three are asked before others begin, who are 3/4, 2/4 and 1/4 of the training.
    assert run.description["later"] == pytest.approx([0.75, 0.375])
    # Training says so, and figures in a file, not every evaluation.
    assert "looks ahead" not in evaluated(run.folder, "-k", 5).stderr
    note = json.loads(evaluated(run.folder, "-k", 5, "--json").stdout)["looks_ahead"]
    assert "75.0 % of the test items lie before some of the training data" in note
    assert "--split time" in note


def test_figures_have_names_of_the_literature_and_errors(run):
    printed = evaluated(run.folder, "-k", 1, "-k", 2).stdout
    table = {line.split()[0]: line for line in printed.splitlines()[3:]}
    assert {"Recall", "HR", "NDCG", "MRR"} <= table.keys()
    assert table["HR"].count("±") == 2
    found = json.loads(evaluated(run.folder, "-k", 1, "-k", 2, "--json").stdout)
    report = run.evaluate_recommendations(ks=(1, 2))
    assert found["standard_errors"]["ndcg@2"] == report.means["ndcg@2"].standard_error
    assert found["standard_errors"].keys() == report.means.keys()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "in the order of the file, which is taken to mean nothing (--item-order kept"),
        (["--item-order", "kept"], "items of a user: in the order of the file\n"),
    ],
)
def test_how_lists_were_read_is_said(flags, said, tmp_path):
    lists = torch.arange(60).reshape(12, 5) % 7
    lines = [" ".join(map(str, [user, *row])) for user, row in enumerate(lists.tolist())]
    (tmp_path / "lists").write_text("\n".join(lines))
    arguments = ["train", tmp_path / "lists", "--folder", tmp_path / "run", "--kind", "lists"]
    done = CliRunner().invoke(app, [*map(str, arguments), "--model", "popularity", *flags])
    assert done.exit_code == 0, done.output
    assert said in done.stderr
