"""Items by their titles: in recommend, similar and find, and what is said where none is meant."""

import json
import re

import polars as pl
import pytest
from typer.testing import CliRunner

import widemax as wm
from widemax.cli.app import app

FILMS = {
    1: "Toy Story (1995)",
    2: "Toy Story 2 (1999)",
    3: "Heat (1995)",
    4: "Sabrina (1995)",
    5: "Sabrina (1954)",
    6: "1",
}


def asked(*arguments, code=0):
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == code, found.output
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Films in a ring, one of them called like the key of another; one has no title."""
    folder = tmp_path_factory.mktemp("films")
    rows = [f"{user},{1 + (user + k) % 7},{5 - k}" for user in range(40) for k in range(4)]
    (folder / "log.csv").write_text("userId,movieId,rating\n" + "\n".join(rows) + "\n")
    films = [f"{key},{title},War|Drama" for key, title in FILMS.items()]
    (folder / "films.csv").write_text("movieId,title,genres\n" + "\n".join(films) + "\n")
    config = wm.Config(
        model="next-item", titles=str(folder / "films.csv"), epochs=2, dimension=4, head="full"
    )
    return wm.train(folder / "log.csv", config, folder=folder / "run")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("toy story", 1),
        ("Toy Story 2 (1999)", 2),
        ("HEAT", 3),
        ("hea", 3),
        ("(1954)", 5),
        ("1", 1),  # a key before a title
        (" story 2 ", 2),
        (7, 7),
        ("7", 7),
    ],
)
def test_a_key_or_the_title_of_one_item_names_it(run, text, key):
    assert run.similar(text, k=3) == run.similar(key, k=3)
    assert run.recommend([4, text], k=3) == run.recommend([4, key], k=3)


def test_what_names_several_items_or_none_is_an_error(run):
    with pytest.raises(
        ValueError, match=r"'Sabrina' is in the titles of 2 items: \d \(Sabrina "
    ) as told:
        run.similar("Sabrina")
    key = re.search(r"; the key of one names it alone, such as (\d)$", str(told.value))[1]
    assert run.similar(key) == run.similar(int(key))
    with pytest.raises(ValueError, match=r"'Het' is neither a key .*; did you mean 'Heat \(1995"):
        run.recommend(["Het"])
    with pytest.raises(ValueError, match=r"'' is neither a key nor in a title of .*run$"):
        run.similar("")


def test_all_that_a_text_names_can_be_listed(run):
    assert {found.key for found in run.find("sabrina")} == {4, 5}
    assert [found.title for found in run.find("1")] == ["Toy Story (1995)"]
    assert len(run.find("19", k=3)) == 3
    assert run.find("Casablanca") == []


def test_the_command_line_takes_titles_and_shows_them(run, tmp_path):
    shown = json.loads(asked("similar", run.folder, "toy story 2", "--json").stdout)
    assert [row["title"] for row in shown if row["key"] == 3] == ["Heat (1995)"]
    said = asked("recommend", run.folder, "--history", "toy story", "--history", "Heat (1995)")
    assert "toy story: 1, Toy Story (1995)\n" in said.stderr
    assert "Heat (1995): " not in said.stderr
    part = asked("similar", run.folder, "sabrina (1954").stderr
    assert "sabrina (1954: 5, Sabrina (1954)\n" in part
    assert "  Heat (1995)\n" in asked("recommend", run.folder, "--history", "toy story").stdout
    had = asked("recommend", run.folder, "--history", 3, "--include-seen").stdout
    assert "  Heat (1995)\n" in had
    assert "  Heat (1995)\n" not in asked("recommend", run.folder, "--history", 3).stdout
    asked("recommend", run.folder, "--all-users", "--out", tmp_path / "all.csv")
    table = pl.read_csv(tmp_path / "all.csv", schema_overrides={"title": pl.String})
    assert table.columns == ["user", "rank", "item", "score", "title"]
    titles = dict(table.drop_nulls().select("item", "title").iter_rows())
    assert titles == FILMS
    flags = ["--all-users", "--out", str(tmp_path / "all.csv"), "--json"]
    refused = CliRunner().invoke(app, ["recommend", str(run.folder), *flags])
    assert str(refused.exception).startswith("--json has no effect with --all-users")


def test_what_stands_for_nothing_is_not_shown_and_a_title_is_looked_for(tmp_path, caplog):
    log, items = tmp_path / "log.csv", tmp_path / "items.csv"
    log.write_text("user,item\n" + "".join(f"u{n},{n % 3}\nu{n},{(n + 1) % 3}\n" for n in range(9)))
    items.write_text("item,Titel,bpm,mood\n0,NA,nan,\n1,Fuga,120.5,calm\n2,Aria,96,NA\n")
    config = wm.Config(model="popularity", titles=str(items))
    run = wm.train(log, config, folder=tmp_path / "run")
    assert {each.title for each in run.recommend([0], k=2)} == {"Fuga", "Aria"}
    assert [each.title for each in run.find("NA")] == ["NA"]
    assert run.columns.column("bpm").kind == "number"
    assert run.columns.column("mood").values == ["calm"]
    assert not caplog.records
    items.write_text(items.read_text().replace("Titel", "Stück"))
    wm.train(log, config, folder=tmp_path / "keys")
    assert "items.csv: no column is called title, name or label" in caplog.text
