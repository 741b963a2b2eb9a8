"""Vectors in PostgreSQL: whole or absent, equal bit for bit, found again, filtered."""

import json
import os
import signal
import time

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

import widemax as wm
from tests import forked
from tests.runs.settings import config_with
from widemax.cli.app import app
from widemax.filters import parse_filters
from widemax.runs.from_store import recommend_from, similar_from
from widemax.runs.vectors.points import class_points
from widemax.stores import searching
from widemax.stores.addresses import PostgresAddress
from widemax.stores.manifest import StoreManifest
from widemax.stores.searching import VectorStore, set_breadth
from widemax.stores.writing import Items, Questions, write_table

SIZE, DIMENSION = 3000, 8
KILLS = int(os.environ.get("WIDEMAX_KILLS", "3"))


def some_vectors(size=SIZE, seed=0):
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(30, DIMENSION))
    rows = centres[generator.integers(30, size=size)] + generator.normal(size=(size, DIMENSION))
    return rows.astype(np.float32)


def on_one_sphere(vectors):
    squares = (vectors.astype(np.float64) ** 2).sum(1)
    missing = np.sqrt(squares.max() - squares)[:, None]
    return np.hstack([vectors, missing]).astype(np.float32)


def some_items(size=SIZE, **options):
    vectors = some_vectors(size)
    values = {
        "keys": [f"k{row}" for row in range(size)],
        "titles": [f"<b>'; drop table x; -- {row}" for row in range(size)],
        "features": [
            {
                "price": row % 100,
                "kind": "tea" if row % 500 == 0 else "rum",
                **({"for": ["ann", "bob"][: row % 40]} if row % 40 < 3 else {}),
            }
            for row in range(size)
        ],
        "vectors": vectors,
        "points": on_one_sphere(vectors),
    }
    return Items(**{**values, **options})


def manifest_of(items, table="items", step=7):
    return StoreManifest(
        table=table, run="shop", run_sha256="a" * 64, model_sha256="b" * 64, step=step,
        size=len(items.keys), dimension=items.vectors.shape[1],
        point_dimension=items.points.shape[1],
        columns={"price": "number", "kind": "category", "for": "tokens"},
    )  # fmt: skip


def questions_of(items):
    queries = items.points[::30]
    expected = np.argsort(-queries @ items.points.T, axis=1)[:, :10]
    return {"recommend": Questions(column="point", queries=queries, expected=expected)}


def write(address, items, **options):
    manifest = manifest_of(items, **options)
    return write_table(PostgresAddress(address), items, manifest, questions_of(items))


@pytest.fixture
def stored(database):
    items = some_items()
    written = write(database, items)
    with VectorStore(database, "items") as store:
        yield items, store, written


def best(scores, k, allowed=None):
    """Return the ids of the k best by brute force, in float64."""
    scores = scores if allowed is None else np.where(allowed, scores, -np.inf)
    return np.argsort(-scores, kind="stable")[:k].tolist()


def share(found, expected):
    return len({each.id for each in found} & {*expected}) / len(expected)


def use_index(store, used=True):
    """Have the index walked, however few the rows are, or never."""
    store._connection.execute(f"set enable_{'seqscan' if used else 'indexscan'} = off")


def test_vectors_come_back_equal_and_neighbours_are_those_of_exact_search(stored):
    items, store, written = stored
    assert store.manifest == written
    assert written.recall["recommend"] >= 0.95
    chosen = [0, 17, SIZE - 1]
    assert np.array_equal(store.vectors(chosen), items.vectors[chosen])
    assert np.array_equal(store.vectors(chosen, column="point"), items.points[chosen])
    use_index(store)
    queries = some_vectors(60, seed=5)
    wide = items.vectors.astype(np.float64)
    cosines = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    similar, recommended = [], []
    for query in queries:
        found = store.similar(query, 10)
        similar.append(share(found, best(cosines @ query, 10)))
        expected = (cosines @ query)[found[0].id] / np.linalg.norm(query)
        assert found[0].score == pytest.approx(expected, abs=1e-5)
        found = store.recommend(np.append(query, 0)[None], 10)
        recommended.append(share(found, best(wide @ query, 10)))
        assert found[0].score == pytest.approx((wide @ query)[found[0].id], rel=1e-5)
        assert [each.score for each in found] == sorted(each.score for each in found)[::-1]
        assert found[0].key == items.keys[found[0].id]
        assert found[0].title == items.titles[found[0].id]
    assert np.mean(similar) >= 0.95
    assert np.mean(recommended) >= 0.95


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize(
    ("texts", "meets"),
    [
        (["kind=tea"], lambda row: row["kind"] == "tea"),
        (["kind=rum", "price=..9"], lambda row: row["kind"] == "rum" and row["price"] <= 9),
        (["kind=rum", "kind=tea", "price=98.5.."], lambda row: row["price"] >= 98.5),
        (["price=97..98", "price=3.0"], lambda row: row["price"] in (3, 97, 98)),
        (["for=bob"], lambda row: "bob" in row.get("for", [])),
        (["for=ann", "for=bob", "price=..9"], lambda row: row.get("for") and row["price"] <= 9),
    ],
)
def test_filtered_searches_return_k_rows(stored, texts, meets, used):
    items, store, _ = stored
    use_index(store, used)
    allowed = np.array([bool(meets(row)) for row in items.features])
    query = some_vectors(1, seed=9)[0]
    filters = parse_filters(texts)
    k = min(10, int(allowed.sum()))
    found = store.recommend(np.append(query, 0)[None], 10, filters=filters)
    assert len(found) == k
    assert all(allowed[each.id] for each in found)
    assert share(found, best(items.vectors.astype(np.float64) @ query, k, allowed)) >= 0.9


def test_what_is_left_out_never_comes_and_the_rest_does(stored):
    items, store, _ = stored
    use_index(store)
    query = some_vectors(1, seed=9)[0]
    nearest = best(items.vectors.astype(np.float64) @ query, 200)
    found = store.recommend(np.append(query, 0)[None], 10, exclude=nearest)
    assert len(found) == 10
    assert not {each.id for each in found} & {*nearest}
    everything = store.recommend(np.append(query, 0)[None], SIZE)
    assert sorted(each.id for each in everything) == list(range(SIZE))


def test_several_queries_count_an_item_once_at_its_best(stored):
    items, store, _ = stored
    use_index(store, used=False)
    queries = np.hstack([some_vectors(3, seed=2), np.zeros((3, 1))]).astype(np.float32)
    expected = best((items.points.astype(np.float64) @ queries.T).max(1), 15)
    assert [each.id for each in store.recommend(queries, 15)] == expected


def test_filters_are_values_and_no_sql(stored):
    _, store, _ = stored
    query = some_vectors(1)[0]
    for name in ("kind", "for"):
        assert store.similar(query, 5, filters={name: ["x' or '1'='1", "%s", "}', "]}) == []
    with pytest.raises(ValueError, match=r"1=1 --.* is no feature of the items"):
        store.similar(query, 5, filters={"kind' or 1=1 --": ["tea"]})
    with pytest.raises(ValueError, match=r"must hold numbers, or ranges such as 2..5, got '5..2'"):
        store.similar(query, 5, filters={"price": ["1", "5..2"]})
    for wrong in ("tea", []):
        with pytest.raises(ValueError, match="must be a list of one value or more"):
            store.similar(query, 5, filters={"kind": wrong})
    with pytest.raises(ValueError, match="query must be 8 finite numbers"):
        store.similar(np.full(DIMENSION, np.nan, np.float32), 5)
    with pytest.raises(ValueError, match="k must be between 1"):
        store.similar(query, 0)


def test_a_table_is_replaced_and_one_that_is_not_ours_is_not(database):
    write(database, some_items(50))
    write(database, some_items(60), step=8)
    with VectorStore(database, "items") as store:
        assert (store.manifest.size, store.manifest.step) == (60, 8)
        with pytest.raises(ValueError, match="is of shop, step 8, and not of other"):
            store.check_run("a" * 64, "c" * 64, "other")
    with psycopg.connect(database) as connection:
        connection.execute("create table mine (id integer)")
    with pytest.raises(ValueError, match="has a table mine that widemax did not write"):
        write(database, some_items(50), table="mine")
    with pytest.raises(ValueError, match="has no table gone that widemax wrote"):
        VectorStore(database, "gone")
    with psycopg.connect(database) as connection:
        names = connection.execute("select relname from pg_class where relkind = 'r'").fetchall()
    assert not [name for (name,) in names if "_new_" in name]


def test_a_server_that_dropped_the_connection_is_asked_again(stored):
    _, store, _ = stored
    query = some_vectors(1)[0]
    before = store.similar(query, 5)
    with psycopg.connect(str(store.address), autocommit=True) as other:
        own = store._connection.info.backend_pid
        other.execute("select pg_terminate_backend(%s)", [own])
    assert store.similar(query, 5) == before


def test_a_connection_that_is_lost_while_it_is_opened_is_opened_again(stored, monkeypatch):
    _, store, _ = stored
    address, lost = str(store.address), []

    def lose_first(connection, breadth):
        if not lost:
            lost.append(connection.info.backend_pid)
            with psycopg.connect(address, autocommit=True) as other:
                other.execute("select pg_terminate_backend(%s, 10000)", lost)
        set_breadth(connection, breadth)

    monkeypatch.setattr(searching, "set_breadth", lose_first)
    with VectorStore(address, "items") as again:
        assert again._connection.info.backend_pid not in lost
        assert again.similar(some_vectors(1)[0], 5) == store.similar(some_vectors(1)[0], 5)
    assert lost


KILLED = """
import sys
from tests.stores.test_vectors import some_items, write
items = some_items(int(sys.argv[2]))
print("ready", flush=True)
write(sys.argv[1], items, step=int(sys.argv[3]))
print("done", flush=True)
"""


def start_writing(database, size, step):
    process = forked.Program(["-c", KILLED, database, size, step])
    assert process.stdout.readline() == "ready\n"
    return process


def state_of(database):
    """Return step and size by the manifest, and how many rows there are; None if none."""
    with psycopg.connect(database) as connection:
        if connection.execute("select to_regclass('items')").fetchone()[0] is None:
            known = connection.execute("select to_regclass('widemax_manifest')").fetchone()[0]
            assert known is None
            return None
        (rows,) = connection.execute("select count(*) from items").fetchone()
        step, content = connection.execute("select step, content from widemax_manifest").fetchone()
        (indexes,) = connection.execute(
            "select count(*) from pg_indexes where tablename = 'items'"
        ).fetchone()
    assert indexes == 4
    return step, content["size"], rows


def test_killed_at_any_moment_the_table_is_whole_or_absent(database):
    start = time.perf_counter()
    whole = start_writing(database, 1500, 1)
    began = time.perf_counter()
    assert whole.wait() == 0
    length = time.perf_counter() - began
    whole.close()
    assert state_of(database) == (1, 1500, 1500)
    with psycopg.connect(database) as connection:
        connection.execute("drop table items, widemax_manifest")
    assert length < time.perf_counter() - start
    before, killed = None, 0
    for number in range(KILLS):
        step = number + 2
        process = start_writing(database, 1500, step)
        time.sleep(length * (number + 0.5) / KILLS)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        process.close()
        after = state_of(database)
        assert after in (before, (step, 1500, 1500))
        before = after
    assert killed


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    generator = np.random.default_rng(0)
    lines = (f"{user},{item},{time}" for time, (user, item) in
             enumerate(generator.integers(40, size=(2000, 2))))  # fmt: skip
    (folder / "log.csv").write_text("user,item,time\n" + "\n".join(lines) + "\n")
    # Numbers that no float holds, a number that stands for nothing, names that look like numbers.
    items = (
        f"{item},Film {item},{item % 5},{'old' if item % 2 else 'new'},"
        f"{'' if item == 9 else item / 10},{'007' if item % 3 else 'x'}"
        for item in range(40)
    )
    names = "item,title,price,age,length,code\n"
    (folder / "films.csv").write_text(names + "\n".join(items) + "\n")
    values = {"epochs": 1, "dimension": 6, "batch_size": 64, "num_samples": 8, "bias": True}
    config = config_with(source=None, **values, titles=str(folder / "films.csv"))
    return wm.train(folder / "log.csv", config, folder=folder / "run")


def said(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def test_a_run_answers_from_a_database_as_it_does_itself(run, database):
    said("export", run.folder, database, "--to", "pgvector", "--table", "films")
    points = class_points(run.model)
    assert np.array_equal(points[:, :6], run.class_vectors().vectors.numpy())
    with VectorStore(database, "films") as store:
        assert np.array_equal(store.vectors(range(40), column="point"), points)
        expected = run.recommend([3, 4], k=10)
        found = recommend_from(store, run, [3, 4], k=10)
        assert [each.key for each in found] == [each.key for each in expected]
        assert [each.title for each in found] == [each.title for each in expected]
        scores = [each.score for each in expected]
        assert [each.score for each in found] == pytest.approx(scores, abs=1e-5)
    there = ("--from", database, "--table", "films", "--json")
    ours = json.loads(said("similar", run.folder, "Film 7", *there, "-k", 6))
    theirs = json.loads(said("similar", run.folder, "Film 7", "--json", "-k", 6))
    assert [each["key"] for each in ours] == [each["key"] for each in theirs]
    filters = ("--filter", "price=..1", "--filter", "age=old")
    for asked in (("recommend", run.folder, "--history", 3), ("similar", run.folder, "Film 7")):
        found = json.loads(said(*asked, *there, *filters, "-k", 5))
        assert len(found) == 5
        assert all(each["key"] % 5 < 2 and each["key"] % 2 for each in found)
        itself = json.loads(said(*asked, "--json", *filters, "-k", 5))
        assert [each["key"] for each in found] == [each["key"] for each in itself]


SAME = [
    ["age=old"],
    ["age=old", "age=new"],
    ["price=3"],
    ["price=..1", "price=4"],
    ["price=1..3", "age=new"],
    ["length=0.3..0.7", "length=2.1", "length=3.6.."],
    ["length=..9", "code=007"],
    ["price=100.."],
]


def test_a_filter_chooses_the_same_of_a_run_and_of_a_database(run, database):
    said("export", run.folder, database, "--to", "pgvector", "--table", "films")
    columns = run.columns.columns
    with VectorStore(database, "films") as store:
        assert store.manifest.columns == {name: each.kind for name, each in columns.items()}
        assert {*store.manifest.columns} == {"price", "age", "length", "code"}
        use_index(store, used=False)
        for texts in SAME:
            filters = parse_filters(texts)
            expected = run.recommend([3, 4], filters=filters, leave_out=[6], k=40, exact=True)
            found = recommend_from(store, run, [3, 4], filters=filters, leave_out=[6], k=40)
            assert [each.key for each in found] == [each.key for each in expected], texts
            expected = run.similar(7, filters=filters, k=40, exact=True)
            allowed = run.columns.allowed(filters)[run.catalogue.ids(range(40))]
            assert {each.key for each in expected} == {
                row for row in np.flatnonzero(allowed) if row != 7
            }
            found = similar_from(store, run.catalogue, 7, filters=filters, k=40)
            assert {each.key for each in found} == {each.key for each in expected}, texts
        for wrong, reason in (
            ({"age": ["odl"]}, "filters\\['age'\\] holds 'odl'.*nearest: 'old'"),
            ({"ages": ["old"]}, "'ages' is no feature of the items"),
            ({"price": ["cheap"]}, "must hold numbers, or ranges"),
        ):
            for ask in (
                lambda wrong=wrong: run.recommend([3], filters=wrong),
                lambda wrong=wrong: run.similar(3, filters=wrong),
                lambda wrong=wrong: recommend_from(store, run, [3], filters=wrong),
                lambda wrong=wrong: similar_from(store, run.catalogue, 3, filters=wrong),
            ):
                with pytest.raises(ValueError, match=reason):
                    ask()


def test_flags_that_do_not_go_together(run, database, tmp_path):
    asked = ("recommend", run.folder, "--history", 3)
    with pytest.raises(ValueError, match="--filter must be name=value, got 'price<2'"):
        said(*asked, "--filter", "price<2")
    with pytest.raises(ValueError, match="--table is for --from"):
        said(*asked, "--table", "films")
    with pytest.raises(ValueError, match="--from must be a database"):
        said(*asked, "--from", tmp_path)
    with pytest.raises(ValueError, match="--exact is for the index"):
        said(*asked, "--from", database, "--exact")
    with pytest.raises(ValueError, match="has no table widemax_items that widemax wrote"):
        said(*asked, "--from", database)
    with pytest.raises(ValueError, match="table must be a name"):
        said("export", run.folder, database, "--to", "pgvector", "--table", "a; drop table b")
    with pytest.raises(ValueError, match="table is for a database"):
        said("export", run.folder, tmp_path / "vectors", "--table", "films")
    with pytest.raises(ValueError, match="word2vec is written into a file or a folder"):
        said("export", run.folder, database)
    with pytest.raises(ValueError, match="pgvector is written into a database"):
        said("export", run.folder, tmp_path / "vectors", "--to", "pgvector")
