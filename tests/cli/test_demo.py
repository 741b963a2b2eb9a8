"""``widemax demo``: the main job on a small simulated shop, and all that it says to type."""

import json
import re
import shlex

import polars as pl
import pytest
from typer.testing import CliRunner

from widemax.cli.app import app
from widemax.cli.demo import job
from widemax.cli.demo.folder import MARK, demo_folder
from widemax.data.simulation.shop import SimulatedShop
from widemax.runs.run import Run

NUM_ITEMS, STEPS = 400, 60
SMALL = ["--num-classes", str(NUM_ITEMS), "--steps", str(STEPS)]


def called(*arguments):
    """Run a command; return what it printed."""
    # Narrow on purpose: no command may be broken into two lines.
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    # Not what goes to stderr: a slow machine is told there what takes so long.
    return result.stdout


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Run the demo once: its folder, its output and its figures."""
    # A blank in the name: what is printed must be quoted to work.
    folder = tmp_path_factory.mktemp("demo") / "my shop"
    output = called("demo", *SMALL, "--folder", folder, "--json", folder / "figures.json")
    return folder, output, json.loads((folder / "figures.json").read_text())


def printed_commands(output, mark):
    return [shlex.split(line)[1:] for line in re.findall(rf"^{mark}(widemax .*)$", output, re.M)]


def test_the_model_finds_twice_what_popularity_does(shown):
    _, output, figures = shown
    model, popularity = figures["two-tower"], figures["popularity"]
    assert model["users"] == popularity["users"] == NUM_ITEMS / 2
    assert model["recall@20"] >= 2 * popularity["recall@20"] > 0
    assert model["ndcg@20"] >= 2 * popularity["ndcg@20"]
    assert model["coverage@20"] > popularity["coverage@20"]
    for row in (model, popularity):
        assert f"{row['recall@20']:.4f}" in output


def test_where_a_new_item_stands_is_shown(shown):
    folder, output, figures = shown
    new = figures["new_item"]
    assert new["item_id"] not in pl.read_parquet(folder / "log.parquet")["item_id"]
    assert 1 <= new["place"] <= new["of"]
    titles = dict(pl.read_parquet(folder / "items.parquet").select("item_id", "title").iter_rows())
    assert f"New, and looked at by nobody: {titles[new['item_id']]}" in output
    assert f"at place {new['place']} of {new['of']} for this user" in output


def test_new_items_stand_higher_for_those_to_whose_taste_they_are(shown):
    folder, _, _ = shown
    shop = SimulatedShop.create(num_items=NUM_ITEMS, num_users=NUM_ITEMS, seed=0)
    run = Run(folder / "two-tower")
    higher = 0
    users = shop.users["user_id"][:60].to_list()
    for user in users:
        history = shop.clicks.filter(pl.col("user_id") == user)["item_id"].to_list()
        found = run.recommend(history, k=NUM_ITEMS, user=user, exact=True)
        places = {each.key: place for place, each in enumerate(found)}
        by_taste = sorted(shop.new_items, key=shop.likes(user).__getitem__)
        higher += places[by_taste[-1]] < places[by_taste[0]]
    # By chance it is half of them.
    assert higher > 0.7 * len(users)


def test_everything_that_is_printed_to_type_works(shown):
    _, output, figures = shown
    commands = printed_commands(output, "  ")
    verbs = ["recommend", "similar", "evaluate", "index", "serve"]
    assert [words[0] for words in commands] == verbs
    # The last line opens the page, and does not end by itself: tests/serving has it.
    assert output.splitlines()[-1].strip().startswith("widemax serve ")
    answers = {words[0]: called(*words) for words in commands[:-1]}
    assert f"{figures['two-tower']['recall@20']:.4f}" in answers["evaluate"]
    assert "recall" in answers["index"]
    assert len(answers["similar"].splitlines()) == 10


def test_what_is_shown_is_what_the_verb_recommends(shown):
    folder, output, figures = shown
    titles = dict(pl.read_parquet(folder / "items.parquet").select("item_id", "title").iter_rows())
    rows = json.loads(
        called("recommend", folder / "two-tower", "--user", figures["user"], "--exact", "--json")
    )
    part = output[output.index("Recommended to") :]
    places = [part.index(titles[row["key"]]) for row in rows]
    assert len(places) == 10
    assert places == sorted(places)


def test_the_command_that_is_printed_trains_the_same(shown, tmp_path):
    folder, output, figures = shown
    baseline, command = printed_commands(output, r"\$ ")
    assert baseline[0] == command[0] == "train"
    command[command.index("--folder") + 1] = str(tmp_path / "again")
    called(*command)
    asked = ["--user", figures["user"], "--exact", "--json"]
    again = called("recommend", tmp_path / "again", *asked)
    assert again == called("recommend", folder / "two-tower", *asked)


def test_the_folder_of_a_demo_is_taken_again_and_gives_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    brief = ["demo", "--num-classes", "100", "--steps", "3", "--json", "figures.json"]
    called(*brief, "--seed", "3")
    first = (tmp_path / "figures.json").read_text()
    own = tmp_path / "widemax-demo" / "my-notes.txt"
    own.write_text("keep me")

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(job, "train_run", interrupted)
        assert CliRunner().invoke(app, brief).exit_code != 0
    called(*brief, "--seed", "3")
    assert (tmp_path / "figures.json").read_text() == first
    assert own.read_text() == "keep me"


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    result = CliRunner().invoke(app, ["demo", "--folder", str(tmp_path)])
    assert "holds something that is not of a demo" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    result = CliRunner().invoke(app, ["demo", "--folder", str(tmp_path / "thesis.txt")])
    assert "is a file" in str(result.exception)


def test_two_demos_do_not_share_a_folder(tmp_path):
    with demo_folder(tmp_path / "shop", runs=()):
        assert (tmp_path / "shop" / MARK).is_file()
        with (
            pytest.raises(ValueError, match="another run"),
            demo_folder(tmp_path / "shop", runs=()),
        ):
            pass


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--num-classes", "99"], "num_classes"),
        (["--num-classes", "999999"], "num_classes"),
        (["--steps", "0"], "steps"),
        (["--seed", "-1"], "seed"),
    ],
)
def test_a_mistake_is_told_before_a_folder_is_made(arguments, named, tmp_path):
    folder = tmp_path / "shop"
    result = CliRunner().invoke(app, ["demo", "--folder", str(folder), *arguments])
    assert isinstance(result.exception, ValueError)
    assert named in str(result.exception)
    assert not folder.exists()
