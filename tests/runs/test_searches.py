"""YouTubeDNN with what users typed, on a log in which the words alone tell what is chosen."""

import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from widemax.cli.app import app
from widemax.data import Sequences
from widemax.data.reading.searches import words_of
from widemax.data.reading.source import read_source
from widemax.encoders.youtube_dnn import YouTubeDNNEncoder
from widemax.models import YouTubeDNN

USERS, ITEMS, LENGTH = 200, 20, 6


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Items by chance; what is typed before each names it, beside a word that says nothing."""
    path = tmp_path_factory.mktemp("log") / "log.csv"
    generator = torch.Generator().manual_seed(0)
    items = torch.randint(ITEMS, (USERS * LENGTH,), generator=generator).tolist()
    pl.DataFrame(
        {
            "user_id": [f"u{row // LENGTH}" for row in range(USERS * LENGTH)],
            "item_id": items,
            "timestamp": [1_700_000_000 + row for row in range(USERS * LENGTH)],
            "query": [f"Word{item}, please" for item in items],
        }
    ).write_csv(path)
    return path


def settings(**given):
    usual = {"dimension": 16, "batch_size": 64, "num_samples": 10, "threads": 1}
    if "steps" not in given:
        usual["epochs"] = 15
    return wm.Config(
        model="youtube-dnn", source="log", learning_rate=0.02, max_history=8,
        seen_items="ranked", patience=0, **usual, **given,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(log, tmp_path_factory):
    return wm.train(log, settings(search_column="query"), folder=tmp_path_factory.mktemp("r") / "s")


def test_what_was_typed_tells_what_is_chosen_and_without_it_nothing_does(log, run, tmp_path):
    found = run.evaluate_recommendations(ks=(1,)).means["recall@1"].value
    without = wm.train(log, settings(), folder=tmp_path / "without")
    chance = without.evaluate_recommendations(ks=(1,)).means["recall@1"].value
    assert found > 0.8
    assert chance < 0.2


def test_a_search_is_answered_and_words_are_no_answer(run):
    for item in range(0, ITEMS, 5):
        assert run.recommend(search=f"WORD{item}", k=1)[0].key == str(item)
        found = run.recommend(["3", "4"], search=f"please word{item}", k=1, include_seen=True)
        assert found[0].key == str(item)
    all_of_them = run.recommend(["3"], k=100, include_seen=True)
    assert sorted(int(each.key) for each in all_of_them) == list(range(ITEMS))
    with pytest.raises(ValueError, match="a word that was typed in training, got 'unheard of'"):
        run.recommend(search="unheard of")


def test_the_command_line_takes_a_search(run, log, tmp_path):
    runner = CliRunner()
    answer = runner.invoke(app, ["recommend", str(run.folder), "--search", "word7", "-k", "1"])
    assert answer.exit_code == 0, answer.output
    assert "7" in answer.stdout
    both = ["--all-users", "--out", str(tmp_path / "out.csv"), "--search", "word7"]
    refused = runner.invoke(app, ["recommend", str(run.folder), *both])
    assert isinstance(refused.exception, ValueError)
    assert "--search is what one user typed" in str(refused.exception)


def test_a_run_without_searches_refuses_one(log, tmp_path):
    plain = wm.train(log, settings(steps=1), folder=tmp_path / "plain")
    with pytest.raises(ValueError, match="search is for a run that was trained with search_column"):
        plain.recommend(search="word7")


def test_words_stand_before_the_item_that_they_led_to(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item,time,q\nann,9,2,\nann,7,1,Red shoes\nbob,9,3,red\n")
    source = read_source(path, search_column="q")
    events = [source.vocabulary.decode(source.sequences.sequence(row)) for row in range(2)]
    assert events == [["search:red", "search:shoes", "7", "9"], ["search:red", "9"]]
    assert source.sequences.times.tolist() == [1, 1, 1, 2, 3, 3]
    with pytest.raises(ValueError, match="has no column 'words'"):
        read_source(path, search_column="words")
    path.write_text("user,item,q\nann,search:it,red\n")
    with pytest.raises(ValueError, match="keys of items must not begin with 'search:'"):
        read_source(path, search_column="q")


def test_words_of_any_script_are_found():
    assert words_of(pl.Series(["Crème brûlée 2", "日本 茶"])).to_list() == [
        ["search:crème", "search:brûlée", "search:2"],
        ["search:日本", "search:茶"],
    ]


def test_the_encoder_reads_items_words_and_what_was_typed_last_apart():
    torch.manual_seed(0)
    words = torch.tensor([False, False, True, True])
    encoder = YouTubeDNNEncoder(4, 3, words=words).double()
    context = torch.tensor([[2, 0, 3, 1, 3, 2], [0, -1, 2, -1, 1, -1], [-1] * 6])
    items, typed, weight = (
        encoder.items.weight,
        encoder.searches.weight,
        encoder.tower.beside.weight,
    )
    expected = [
        (items[[0, 1]].mean(0), typed[[2, 3, 3, 2]].mean(0), typed[[3, 2]].mean(0)),
        (items[[0, 1]].mean(0), typed[2], torch.zeros(3)),
        (torch.zeros(3), torch.zeros(3), torch.zeros(3)),
    ]
    for row, (mean, all_words, last_words) in enumerate(expected):
        wanted = mean + weight @ torch.cat([all_words, last_words]).double()
        torch.testing.assert_close(encoder(context)[row], wanted.double())
    right = torch.tensor([[2, 0, 3, 1, 3, 2], [0, 2, 1, -1, -1, -1], [-1] * 6])
    torch.testing.assert_close(encoder.dense(right), encoder(right))


def test_words_are_no_targets():
    model = YouTubeDNN.create(
        [3, 2, 1], keys=["7", "search:red", "9"], dimension=4, search_column="q", num_samples=1
    )
    log = Sequences.from_lists([[1, 0, 1, 2]])
    setup = type("Setup", (), {"options": settings(search_column="q"), "ordered": True})
    windows = model.examples(setup, log)
    assert windows.batch(torch.arange(len(windows))).targets.tolist() == [0, 2]
    batch = windows.batch(torch.arange(2))
    assert bool((model.scores(batch)[:, 1] == -torch.inf).all())
    assert model.topk(batch, 3).ids[:, 2].tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"split": "time"}, "search_column goes with split = 'last' or 'last-of-some'"),
        ({"item_order": "ignored"}, "search_column needs a log in the order of time"),
    ],
)
def test_what_searches_cannot_go_with_is_refused(given, message, log, tmp_path):
    with pytest.raises(ValueError, match=message):
        wm.train(log, settings(search_column="query", **given), folder=tmp_path / "refused")


def test_a_column_without_words_is_refused():
    with pytest.raises(ValueError, match="search_column = 'q' holds no words"):
        YouTubeDNN.create([3, 2, 1], keys=["7", "8", "9"], search_column="q")
