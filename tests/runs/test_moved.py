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
    with pytest.raises(ValueError, match="user 'nobody' is not among the 30 users of"):
        run.recommend(user="nobody")
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


def test_a_run_of_an_older_format_says_so(log, tmp_path):
    run = wm.train(log / "log.csv", wm.Config(model="popularity"), folder=tmp_path / "run")
    about = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps({**about, "format": 1}))
    with pytest.raises(ValueError, match="has format version 1 and this widemax reads 2: an older"):
        wm.load(run.folder)
