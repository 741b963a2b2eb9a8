"""``widemax reproduce``: every set on simulated data of its formats, with a tiny budget."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import widemax.cli.reproduce.sets as declared
from widemax.cli.app import app
from widemax.cli.reproduce.job import _table
from widemax.cli.reproduce.sets import Figure, PublishedSet, Row, published_sets
from widemax.config import Config

# Each set, with flags that all of its rows have.
SMALL = {
    "gowalla": ["--epochs", "1", "--dimension", "4"],
    "beauty": ["--epochs", "1", "--dimension", "4"],
    "ml-1m": ["--epochs", "1", "--dimension", "4"],
    "ml-100k": ["--validation-size", "20"],
    "ptb": ["--epochs", "1", "--dimension", "4", "--hidden-size", "4"],
}
FITTED = ["--only", "popularity", "--only", "item-knn"]


def call(*arguments, **environment):
    done = CliRunner(env={"COLUMNS": "150", **environment}).invoke(app, list(map(str, arguments)))
    return done.exit_code, done.output, done.exception


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """What the published data look like, in small."""
    folder = tmp_path_factory.mktemp("data")
    generator = torch.Generator().manual_seed(0)
    users = [torch.randperm(40, generator=generator)[:9].tolist() for _ in range(60)]
    for name in ("gowalla", "beauty", "ml-1m", "ml-100k", "ptb"):
        (folder / name).mkdir()
    for part, cut in (("train", slice(5)), ("valid", slice(5, 7)), ("test", slice(7, 9))):
        lines = [" ".join(map(str, [user, *items[cut]])) for user, items in enumerate(users)]
        (folder / "gowalla" / f"{part}.txt").write_text("\n".join(lines) + "\n")
        text = [" ".join(f"w{item}" for item in items) for items in users]
        (folder / "ptb" / f"ptb.{part}.txt").write_text("\n".join(text) + "\n")
    pairs = "".join(
        f"{user + 1} {item + 1}\n" for user, items in enumerate(users) for item in items
    )
    for name in ("beauty", "ml-1m"):
        (folder / name / f"{name}.txt").write_text(pairs)
    rows = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    rows += [
        f"{user}\t{item}\t4\t{place}"
        for user, items in enumerate(users)
        for place, item in enumerate(items)
    ]
    inter = folder / "ml-100k" / "ml-100k.inter"
    inter.write_text("\n".join(rows) + "\n")
    films = "".join(f"{item}\tFilm {item}\n" for item in range(40))
    inter.with_suffix(".item").write_text("item_id:token\tmovie_title:token_seq\n" + films)
    people = "".join(f"{user}\t{20 + user % 40}\n" for user in range(60))
    inter.with_suffix(".user").write_text("user_id:token\tage:float\n" + people)
    return folder


@pytest.mark.parametrize("name", SMALL)
def test_every_set_is_trained_evaluated_and_shown(name, data, tmp_path):
    some = FITTED if name == "ml-100k" else []
    flags = ["--data", data, "--folder", tmp_path, *some, "--", "--threads", "1", *SMALL[name]]
    code, said, error = call("reproduce", name, *flags)
    assert code == 0, (said, error)
    rows = [row for row in published_sets()[name].rows if not some or row in some]
    kept = json.loads((tmp_path / name / "figures.json").read_text())["rows"]
    assert list(kept) == rows
    for row in rows:
        assert f"$ widemax train {data / published_sets()[name].source}" in said
        for figure in published_sets()[name].rows[row].figures:
            value = kept[row]["figures"][figure]
            shown = f"{value:.4f}" if value < 10 else f"{value:.1f}"
            assert re.search(rf"{row} .*{figure} .*{re.escape(shown)}", said), (row, figure)
    assert "besides the usual settings" in said


def test_no_set_is_forgotten_and_every_figure_has_a_row():
    assert set(SMALL) == set(published_sets())
    folder = Path(declared.__file__).parent
    sets, figures = (
        tomllib.loads((folder / name).read_text()) for name in ("sets.toml", "figures.toml")
    )
    assert {name: list(each["rows"]) for name, each in sets.items()} == {
        name: list(each) for name, each in figures.items()
    }


@pytest.mark.parametrize("name", SMALL)
def test_a_row_names_a_model_and_nothing_that_tunes_it(name):
    """How data are split and judged, and no more: the rest is what is usual for the model."""
    allowed = {"--model", "--split", "--refit"}
    for row in published_sets()[name].rows.values():
        assert {word for word in row.flags if word.startswith("--")} <= allowed
        Config(model=row.flags[1])


def test_what_is_done_is_not_done_again(data, tmp_path):
    flags = ["ml-100k", "--data", data, "--folder", tmp_path, "--only", "popularity"]
    assert call("reproduce", *flags)[0] == 0
    run = tmp_path / "ml-100k" / "popularity"
    before = (run / "run.json").stat().st_mtime_ns
    code, _, error = call("reproduce", *flags)
    assert code != 0
    assert "popularity" in str(error)
    code, said, _ = call("reproduce", *flags, "--only", "item-knn", "--resume")
    assert code == 0
    assert "popularity: done before" in said
    assert "item-knn/" not in said.partition("done before")[0]
    assert (run / "run.json").stat().st_mtime_ns == before
    # Trained, but stopped before it was evaluated: the run is taken as it is.
    (tmp_path / "ml-100k" / "figures.json").unlink()
    code, said, error = call("reproduce", *flags, "--resume")
    assert code == 0, (said, error)
    assert "done before" not in said


def test_ctrl_c_stops_all_of_it(data, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("widemax.cli.train.train_run", stopped)
    flags = ["ml-100k", "--data", data, "--folder", tmp_path, *FITTED]
    code, said, _ = call("reproduce", *flags)
    assert code == 130
    assert said.count("$ widemax train") == 1
    assert not (tmp_path / "ml-100k" / "figures.json").exists()


def test_missing_data_say_what_to_put_where(data, tmp_path):
    code, _, error = call("reproduce", "gowalla", "--data", tmp_path, WIDEMAX_DATA="")
    assert code != 0
    assert (
        f"gowalla needs gowalla/train.txt, gowalla/valid.txt, gowalla/test.txt in {tmp_path}"
        in (str(error))
    )
    assert "LightGCN" in str(error)
    _, _, error = call("reproduce", "gowalla", WIDEMAX_DATA="")
    assert "--data or WIDEMAX_DATA" in str(error)
    assert not list(tmp_path.iterdir())


def test_a_wrong_name_is_refused():
    assert "did you mean 'gowalla'" in str(call("reproduce", "gowala")[2])
    error = call("reproduce", "gowalla", "--only", "sasrc")[2]
    assert "only must be one of youtube-dnn, got 'sasrc'" in str(error)
    assert "name the set to run" in str(call("reproduce", "--only", "sasrec")[2])


def test_the_list_says_what_is_there(data):
    code, said, _ = call("reproduce", WIDEMAX_DATA=str(data))
    assert code == 0
    assert said.count("data found") == len(SMALL)
    assert "youtube-dnn, two-tower, mind" in said
    said = call("reproduce", WIDEMAX_DATA="")[1]
    assert said.count("needs --data FOLDER with") == len(SMALL)


def test_the_table_says_what_is_not_as_expected():
    figures = {
        "recall@20": Figure(published=0.2, by="Someone", expected=0.19, spread=0.01),
        "perplexity": Figure(expected=100.0, spread=2.0),
        "ndcg@20": Figure(),
    }
    some = PublishedSet("", "", (), "", (), {"row": Row((), figures)})
    found = {"row": {"recall@20": 0.1895, "perplexity": 103.0, "ndcg@20": 0.5}}
    cells = [list(column.cells) for column in _table(some, found).columns]
    assert cells[2:] == [
        ["0.2000 Someone", "", ""],
        ["0.1900 ± 0.0100", "100.0 ± 2.0", ""],
        ["0.1895", "103.0 (above)", "0.5000"],
    ]
