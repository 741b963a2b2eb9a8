"""A server that answers from a database: the same items, through reloads and lost connections."""

import threading

import httpx
import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

import widemax as wm
from tests.serving.conftest import serving, wait_until
from widemax.cli.app import app
from widemax.runs.export.pgvector import export_pgvector
from widemax.serving.runs.fleet import Fleet
from widemax.serving.runs.store_pool import TablePlace
from widemax.stores.addresses import PostgresAddress
from widemax.stores.searching import OtherTableError, VectorStore

NUM_ITEMS = 30
ASKED = {"history": ["3", "4"], "filters": {"kind": ["tea", "gin"], "price": ["2..9"]}, "k": 6}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    chosen = np.random.default_rng(0).integers(NUM_ITEMS, size=(900, 2)).tolist()
    rows = "\n".join(f"{user},{item},{time}" for time, (user, item) in enumerate(chosen))
    (folder / "log.csv").write_text(f"user,item,time\n{rows}\n")
    kinds = ("tea", "rum", "gin")
    items = "\n".join(f"{row},Thing {row},{kinds[row % 3]},{row / 2}" for row in range(NUM_ITEMS))
    (folder / "items.csv").write_text(f"item,title,kind,price\n{items}\n")
    return folder / "log.csv"


def train_on(log, folder, epochs):
    """Train a run, or go on with it; the last checkpoint is the best."""
    titles = str(log.parent / "items.csv")
    config = wm.Config(
        model="next-item",
        dimension=4,
        epochs=epochs,
        validation_size=0,
        titles=titles,
        averaging=0.0,  # an epoch is too short to move a mean
    )
    return wm.train(log, config, folder=folder, resume=folder.exists())


def answer_of(run):
    return [str(each.key) for each in run.recommend(**ASKED, exact=True)]


def keys_of(answer):
    return [each["key"] for each in answer["items"]]


def test_answers_are_those_of_the_run_through_reloads_and_lost_connections(
    log, database, tmp_path, caplog
):
    folder, place = tmp_path / "run", TablePlace(PostgresAddress(database), "things")
    first = train_on(log, folder, 1)
    with pytest.raises(ValueError, match="has no table things that widemax wrote"):
        Fleet([folder], place=place)
    export_pgvector(database, first, table="things")
    expected = {first.step: answer_of(first)}
    answers, stop = [], threading.Event()
    with serving([folder], place=place, watch=0.1) as served:
        assert keys_of(served.post("/recommend", ASKED)) == expected[first.step]
        near = [str(each.key) for each in first.similar(7, k=5)]
        assert keys_of(served.get("/similar", key="Thing 7", k=5)) == near
        wrong = served.post("/recommend", {**ASKED, "filters": {"kind": ["te"]}}, status=422)
        assert wrong["suggestions"] == ["tea"]

        def ask():
            with httpx.Client(base_url=served.client.base_url, timeout=60) as client:
                while not stop.is_set():
                    answers.append(client.post("/recommend", json=ASKED))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            newer = train_on(log, folder, 4)
            expected[newer.step] = answer_of(newer)
            # Its table is not there yet: the older checkpoint answers by its own.
            wait_until(lambda: "is served as before" in caplog.text)
            assert served.fleet.get(None).step == first.step
            export_pgvector(database, newer, table="things")
            wait_until(lambda: served.fleet.get(None).step == newer.step)
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = current_database() and pid <> pg_backend_pid()"
                )
            so_far = len(answers)
            wait_until(lambda: len(answers) > so_far + 9)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert {answer.status_code for answer in answers} == {200}
        assert expected[first.step] != expected[newer.step]
        assert {answer.json()["step"] for answer in answers} == set(expected)
        for answer in answers:
            assert keys_of(answer.json()) == expected[answer.json()["step"]]
        check_that_the_database_answers(served, database, expected[newer.step])


def check_that_the_database_answers(served, database, expected):
    """What is not in the table is not found but by the model; without a database nothing is."""
    with psycopg.connect(database) as connection:
        connection.execute("delete from things where key = %s", [int(expected[0])])
    assert keys_of(served.post("/recommend", ASKED))[: len(expected) - 1] == expected[1:]
    assert keys_of(served.post("/recommend", {**ASKED, "exact": True})) == expected
    name = database.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(database.replace(f"/{name}", "/postgres"), autocommit=True) as connection:
        connection.execute(f"alter database {name} allow_connections false")
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name]
        )
        for body in (ASKED, {"queries": [ASKED, ASKED]}):
            said = served.post("/recommend", body, status=503)
            assert said == {"detail": "the database does not answer; the log says why"}
        connection.execute(f"alter database {name} allow_connections true")
    assert keys_of(served.post("/recommend", ASKED))[: len(expected) - 1] == expected[1:]


def test_a_store_never_answers_by_a_table_that_took_the_place_of_its_own(log, database, tmp_path):
    run = train_on(log, tmp_path / "run", 1)
    export_pgvector(database, run, table="things")
    with VectorStore(database, "things") as store:
        query = store.vectors([0])[0]
        export_pgvector(database, run, table="things")
        for ask in (lambda: store.vectors([0]), lambda: store.similar(query, 3)):
            with pytest.raises(OtherTableError, match="table things was written again"):
                ask()


def test_flags_of_serve_that_do_not_go_together(tmp_path):
    for words, reason in (
        (["a", "b", "--from", "postgresql:///shop"], "--from is the table of one run, and 2 are"),
        (["a", "--table", "things"], "--table is for --from"),
        (["a", "--from", str(tmp_path)], "--from must be a database"),
    ):
        done = CliRunner().invoke(app, ["serve", *words])
        assert reason in str(done.exception)


def test_a_query_that_takes_too_long_is_ended_and_said(
    log, database, tmp_path, monkeypatch, caplog
):
    run = train_on(log, tmp_path / "run", 1)
    export_pgvector(database, run, table="things")
    place = TablePlace(PostgresAddress(database), "things", 0.3)
    with serving([tmp_path / "run"], place=place) as served:
        assert served.post("/similar", {"key": "7"})["items"]

        def slow(connection, *_):
            return connection.execute("select pg_sleep(20)").fetchall()

        monkeypatch.setattr("widemax.stores.searching.nearest_rows", slow)
        answer = served.post("/similar", {"key": "7"}, 504)
        assert answer["detail"] == "the database took longer for a query than it may"
        assert "statement timeout" in caplog.text
        monkeypatch.undo()
        assert served.post("/similar", {"key": "7"})["items"]
    # Whoever does not serve waits as long as the server lets it.
    with VectorStore(database, "things") as store:
        assert store._connection.execute("show statement_timeout").fetchone() == ("0",)


def test_similar_items_are_filtered_and_left_out_by_the_database(log, database, tmp_path):
    run = train_on(log, tmp_path / "run", 1)
    export_pgvector(database, run, table="things")
    asked = {"key": "7", "filters": {"kind": ["tea", "gin"]}, "leave_out": ["3", "5"], "k": 20}
    with serving(
        [tmp_path / "run"], place=TablePlace(PostgresAddress(database), "things")
    ) as served:
        found = keys_of(served.post("/similar", asked))
    expected = run.similar(**asked, exact=True)
    assert set(found) == {str(each.key) for each in expected}
