"""Conditions that choose the rows of a log, and what is said of cells with nothing in them."""

import logging

import polars as pl
import pytest

from widemax.data import read_source


def items_where(path, where):
    return read_source(path, where=where).vocabulary.keys.sort().to_list()


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.csv"
    path.write_text(
        "customer_id,sku,qty,ts\n7,000161,1,1\n7,000162,2,2\n12,31,3,3\n12,000161,10,4\n"
    )
    return path


@pytest.mark.parametrize(
    ("where", "items"),
    [
        ("qty >= 1 and qty <= 2", ["000161", "000162"]),
        ("qty = 2 or qty = 3 or qty = 10", ["000161", "000162", "31"]),
        ("sku = '000162' or sku = '31'", ["000162", "31"]),
        ("sku <> '000161'", ["000162", "31"]),
        ("customer_id > 7", ["000161", "31"]),
        ("customer_id between 1 and 9 and qty > 1", ["000162"]),
    ],
)
def test_a_column_may_be_named_twice_and_ids_are_those_of_the_run(shop, where, items):
    assert items_where(shop, where) == items


def test_ids_too_long_for_a_float_are_compared_exactly(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item\n1,9007199254740993\n1,9007199254740992\n")
    assert items_where(path, "item = 9007199254740993") == [9007199254740993]


def test_a_typed_column_may_be_named_twice(tmp_path):
    path = tmp_path / "log.parquet"
    pl.DataFrame({"user": [1, 1, 2], "item": ["a", "b", "c"], "qty": [1, 2, 3]}).write_parquet(path)
    assert items_where(path, "qty > 1 and qty < 3") == ["b"]


def test_a_text_is_not_compared_with_a_fraction_letter_by_letter(tmp_path):
    """Polars takes 3.9 for a text there, so that 10 came before it."""
    path = tmp_path / "log.csv"
    path.write_text("user,item,stars,size\na,x,n/a,3.9\na,y,10,b\nb,z,3,'\n")
    with pytest.raises(ValueError, match=r"text in column stars, row 1 \('n/a'\); try_cast\(stars"):
        items_where(path, "stars > 3.9")
    with pytest.raises(ValueError, match=r"size, row 2 \('b'\) and column stars, row 1"):
        items_where(path, "size = 'b' or stars in (3.5, 4)")
    assert items_where(path, "try_cast(stars as double) > 3.9") == ["y"]
    assert items_where(path, "size = '3.9'") == ["x"]
    typed = tmp_path / "log.jsonl"
    typed.write_text('{"user": 1, "item": 2, "stars": "10"}\n')
    with pytest.raises(
        ValueError, match=r"where = 'stars > 3.9' cannot be asked: .* column stars;"
    ):
        items_where(typed, "stars > 3.9")


def test_times_are_compared_with_dates(tmp_path):
    path, text = tmp_path / "log.parquet", tmp_path / "log.csv"
    log = pl.DataFrame({"user": [1, 1], "item": ["a", "b"], "at": ["2026-01-01", "2026-02-01"]})
    log.with_columns(pl.col("at").str.to_datetime(time_zone="Europe/Berlin")).write_parquet(path)
    log.write_csv(text)
    for file, wrong, right in (
        (path, "at > '2026-01-15'", "at > date '2026-01-15'"),
        (text, "at > date '2026-01-15'", "at > '2026-01-15'"),
    ):
        with pytest.raises(ValueError, match=r"cannot be asked: .* write date '2026-12-31' for"):
            items_where(file, wrong)
        assert items_where(file, right) == ["b"]


def test_between_semicolons_numbers_may_have_decimal_commas(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user;item;stars;size\nann;x;1.010,0;1,2\nann;y;3,5;\nbob;z;4;1,2,3\n")
    assert items_where(path, "stars >= 4") == ["x", "z"]
    assert items_where(path, "size = '1,2,3'") == ["z"]
    assert read_source(path, weight_column="stars").sequences.weights.tolist() == [1010.0, 3.5, 4.0]
    path.write_text("user\titem\tpair\nann\tx\t1,2\nann\ty\t3,4\n")
    assert items_where(path, "pair = '1,2'") == ["x"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "log.csv: every row counts the same; not read: 'Rating', 'event' (where, "),
        ({"where": "rating > 1"}, ""),
        ({"weight_column": "Rating"}, ""),
        ({"event_column": "event", "event_weights": "buy=1"}, ""),
    ],
)
def test_ratings_and_events_that_nothing_reads_are_named(asked, said, tmp_path, caplog):
    path = tmp_path / "log.csv"
    path.write_text("user,item,Rating,event\na,x,4,buy\nb,y,5,buy\n")
    asked = {name: value.replace("rating", '"Rating"') for name, value in asked.items()}
    read_source(path, **asked)
    assert said in caplog.text
    assert bool(said) == bool(caplog.records)


WITH_GAPS = {
    "csv": 'user,sku,ts\n1,a,1\n,b,2\n2,,3\n2,"",4\n,,5\n3,c,\n3,d,7\n',
    "jsonl": '{"user": 1, "sku": "a", "ts": 1}\n{"user": null, "sku": "", "ts": 2}\n{"sku": "d"}\n',
}


@pytest.mark.parametrize("kind", WITH_GAPS)
def test_all_that_is_missing_is_counted_and_the_condition_named_leaves_it_out(kind, tmp_path):
    path = tmp_path / f"log.{kind}"
    path.write_text(WITH_GAPS[kind])
    with pytest.raises(ValueError, match=r"column user, row 2: the id is missing; ") as refused:
        read_source(path)
    said = str(refused.value)
    counts = {"csv": "5 of 7 rows lack one (user: 2, sku: 3, ts: 1)", "jsonl": "2 of 3 rows"}
    assert counts[kind] in said
    where = said.partition("--where '")[2].removesuffix("')")
    assert where == '"user" is not null and length(sku) > 0 and ts is not null'
    assert items_where(path, where) == {"csv": ["a", "d"], "jsonl": ["a"]}[kind]


def test_what_is_still_missing_after_a_condition_is_added_to_it(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("customer_id,sku,stars\n1,a,4\n,b,5\n2,,3\n3,c,1\n")
    with pytest.raises(ValueError, match="2 of 3 rows") as refused:
        read_source(path, where="stars > 2")
    where = str(refused.value).partition('--where "')[2].removesuffix('")')
    assert where == "(stars > 2) and customer_id is not null and sku is not null"
    assert items_where(path, where) == ["a"]


def log_with(tmp_path, name, values):
    path = tmp_path / "log.csv"
    rows = [f"u,i{row},{value}" for row, value in enumerate(values)]
    path.write_text("\n".join([f"user,item,{name}", *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    "name",
    ["listened_at", "purchased_at", "watched_on", "event_time", "order_date", "view_ts", "eventAt"],
)
@pytest.mark.parametrize("values", [["2026-01-02", "2026-01-01"], [1_700_000_060, 1_700_000_000]])
def test_a_column_that_is_called_like_times_and_has_them_is_taken(tmp_path, name, values):
    source = read_source(log_with(tmp_path, name, values))
    assert source.columns.time == name
    assert source.vocabulary.decode(source.sequences.sequence(0)) == ["i1", "i0"]


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("watch_time", [70, 12], ""),  # how long it took
        ("seat", [1, 2], ""),
        ("looked_at", ["shelf", "table"], ""),
        ("moment", ["2026-01-02", "2026-01-01"], "and 'moment' looks like it"),
        ("moment", [1_700_000_060_000, 1_700_000_000_000], "and 'moment' looks like it"),
        ("listened_at", ["2026-01-02", ""], "and 'listened_at' looks like it"),
        ("a_at,b_at", ["2026-01-02,5", "2026-01-01,4"], "and 'a_at', 'b_at' look like it"),
    ],
)
def test_what_may_be_times_is_said_and_not_taken(tmp_path, caplog, name, values, said):
    with caplog.at_level(logging.WARNING):
        source = read_source(log_with(tmp_path, name, values))
    assert source.columns.time == ""
    assert len(caplog.records) == bool(said)
    if said:
        assert f"no column of times was found, {said}; time_column (--time-column" in caplog.text


def test_a_usual_name_goes_before_an_ending(tmp_path, caplog):
    path = log_with(tmp_path, "updated_at,ts", ["2026-01-01,2", "2026-01-02,1"])
    assert read_source(path).columns.time == "ts"
    assert "no column of times" not in caplog.text
