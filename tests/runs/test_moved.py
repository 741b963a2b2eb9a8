"""A run that was moved, its data deleted, answers as it did before."""

import json
import shutil

import pytest
from typer.testing import CliRunner

import widemax as wm
from widemax.cli.app import app


def called(*arguments):
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == 0, (arguments, found.output, found.exception)
    return found.stdout


@pytest.fixture
def log(tmp_path):
    """A log with titles and features, in a folder that will be deleted."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [
        f"u{user},i{(user + step) % 20},{1_600_000_000 + step}"
        for user in range(30)
        for step in range(6)
    ]
    (folder / "log.csv").write_text("user,item,time\n" + "\n".join(rows) + "\n")
    items = [f"i{item},k{item % 3},The <b>Item</b> {item}" for item in range(25)]
    (folder / "items.csv").write_text("id,kind,title\n" + "\n".join(items) + "\n")
    users = [f"u{user},a{user % 4}" for user in range(30)]
    (folder / "users.csv").write_text("id,age\n" + "\n".join(users) + "\n")
    return folder


def answers(run, out):
    """Return everything that a run can be asked, as the command line prints it."""
    found = {
        "user": called("recommend", run, "--user", "u3", "--json", "--exact"),
        "history": called("recommend", run, "--history", "i1", "--json", "--exact"),
        "similar": called("similar", run, "i1", "--json", "--exact"),
        "evaluate": called("evaluate", run, "--by", "popularity", "--json"),
        "index": json.dumps([row["kind"] for row in json.loads(called("index", run, "--json"))]),
    }
    called("export", run, out)
    return found | {"export": out.read_text()}


@pytest.mark.parametrize("model", ["two-tower", "sdm", "eges", "airbnb", "ease"])
def test_a_moved_run_answers_without_its_data(model, log, tmp_path):
    settings = {"model": model, "titles": str(log / "items.csv"), "validation_size": 5}
    config = wm.Config(source="log", **settings)
    for name, file in (("item_features", "items.csv"), ("user_features", "users.csv")):
        if config.has(name):
            settings[name] = str(log / file)
    if config.has("epochs"):
        settings["epochs"] = 1
    wm.train(log / "log.csv", wm.Config(**settings), folder=tmp_path / "run")
    if model == "ease":
        before = called("recommend", tmp_path / "run", "--user", "u3", "--json")
    else:
        before = answers(tmp_path / "run", tmp_path / "vectors")
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "run", tmp_path / "elsewhere" / "moved")
    shutil.rmtree(log)
    moved = tmp_path / "elsewhere" / "moved"
    if model == "ease":
        assert called("recommend", moved, "--user", "u3", "--json") == before
        called("evaluate", moved)
        return
    assert answers(moved, tmp_path / "again") == before
    titles = [row["title"] for row in json.loads(before["user"])]
    assert all(title.startswith("The <b>Item</b> ") for title in titles)


def test_a_moved_run_on_text_answers_without_its_text(tmp_path):
    text = tmp_path / "text"
    text.write_text("the cat sat on the mat\nthe dog lay on the rug\n" * 60)
    config = wm.Config(model="nnlm", epochs=1, dimension=8, validation_size=20, test_size=30)
    run = wm.train(text, config, folder=tmp_path / "run")
    before = run.evaluate(), run.similar("cat"), run.score("the cat sat"), run.generate("the")
    shutil.move(tmp_path / "run", tmp_path / "moved")
    text.unlink()
    moved = wm.load(tmp_path / "moved")
    assert (
        moved.evaluate(),
        moved.similar("cat"),
        moved.score("the cat sat"),
        moved.generate("the"),
    ) == before


def test_who_is_asked_for_is_named_if_unknown(log, tmp_path):
    run = wm.train(log / "log.csv", wm.Config(model="popularity"), folder=tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"user 'nobody' is not among the 30 users of .*, such as '"
    ):
        run.recommend(user="nobody")
    with pytest.raises(
        ValueError, match=r"user '3' is not among the 30 .*; nearest: 'u3'$"
    ) as told:
        run.recommend(user="3")
    assert told.value.suggestions == ["u3"]
    with pytest.raises(ValueError, match="give a history or a user"):
        run.recommend()
    assert [each.key for each in run.history("u3")] == [f"i{item}" for item in range(3, 9)]
    seen = {each.key for each in run.history("u3")}
    assert not seen & {each.key for each in run.recommend(user="u3", k=10)}


@pytest.mark.parametrize("name", ["test.safetensors", "vocabulary.parquet", "items.parquet"])
def test_a_changed_file_is_refused(name, log, tmp_path):
    settings = {"model": "popularity", "titles": str(log / "items.csv")}
    run = wm.train(log / "log.csv", wm.Config(**settings), folder=tmp_path / "run")
    path = run.folder / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=f"{name} was changed"):
        wm.load(run.folder).recommend(user="u3") and wm.load(run.folder).evaluate()


KEPT = [
    "histories.parquet",
    "item_features.parquet",
    "item_features.json",
    "user_features.parquet",
    "user_features.json",
]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """A run on a log whose users are whole numbers and have features."""
    folder = tmp_path_factory.mktemp("numbered")
    rows = [f"{user},i{(user + step) % 9},{step}" for user in range(30) for step in range(6)]
    (folder / "log.csv").write_text("user,item,time\n" + "\n".join(rows) + "\n")
    ages = [f"{user},a{user % 2}" for user in range(30)]
    (folder / "users.csv").write_text("id,age\n" + "\n".join(ages) + "\n")
    kinds = [f"i{item},k{item % 2}" for item in range(9)]
    (folder / "items.csv").write_text("id,kind\n" + "\n".join(kinds) + "\n")
    config = wm.Config(
        model="two-tower",
        item_features=str(folder / "items.csv"),
        user_features=str(folder / "users.csv"),
        dimension=4,
        epochs=1,
    )
    return wm.train(folder / "log.csv", config, folder=folder / "run")


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
@pytest.mark.parametrize("name", KEPT)
def test_what_a_run_keeps_of_its_data_is_compared_before_it_is_read(
    name, damage, numbered, tmp_path
):
    shutil.copytree(numbered.folder, tmp_path / "run")
    path = tmp_path / "run" / name
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=name):
        wm.load(tmp_path / "run").recommend(user=7)


def test_the_histories_are_compared_once_for_each_run(numbered, monkeypatch):
    run, compared = wm.load(numbered.folder), []

    def check(path, **given):
        compared.append(path.name)

    monkeypatch.setattr("widemax.runs.folder.description.check_file", check)
    for user in (3, 4, 5):
        run.recommend(user=user)
        run.history(user)
    assert sorted(compared) == ["histories.parquet", "items.parquet"]


def test_a_text_stands_for_a_number_in_histories_and_features_alike(numbered, monkeypatch):
    asked = []
    topk = numbered.model.topk

    def noted(batch, k, **given):
        asked.append((batch.context[batch.context >= 0].tolist(), int(batch.users[0])))
        return topk(batch, k, **given)

    monkeypatch.setattr(numbered.model, "topk", noted)
    for user in (7, "7", "07"):
        numbered.recommend(user=user)
    assert asked[0] == asked[1] == asked[2]
    assert numbered.data.user_features.keys[asked[0][1]] == 7
    for user in ("٧", "7.0", "seven", str(2**64), "9" * 19):
        with pytest.raises(ValueError, match="not among the 30 users"):
            numbered.recommend(user=user)
        numbered.recommend(["i1"], user=user)
        assert asked[-1][1] == -1


def test_features_of_users_are_not_read_again_for_each_question(numbered, monkeypatch):
    run = wm.load(numbered.folder)
    assert run.shown is not None
    monkeypatch.setattr("polars.read_parquet", None)
    assert run.recommend(["i1"], user=7)


def test_a_run_of_an_older_format_says_so(log, tmp_path):
    run = wm.train(log / "log.csv", wm.Config(model="popularity"), folder=tmp_path / "run")
    about = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps({**about, "format": 1}))
    with pytest.raises(ValueError, match="has format version 1 and this widemax reads 2: an older"):
        wm.load(run.folder)
