"""``widemax serve`` as a process: how it starts, what it says, and how it ends."""

import json
import re
import signal
import socket
import threading
from contextlib import contextmanager

import httpx
import pytest
from typer.testing import CliRunner

import widemax as wm
from tests import forked
from widemax.cli.app import app
from widemax.cli.demo import job


@contextmanager
def started(*words):
    """Start the program, and yield it with the address that it says to open."""
    process = forked.Program(["-m", "widemax", *words])
    try:
        line = ""
        for line in process.stdout:
            if line.startswith("open "):
                break
        found = re.match(r"open (http://127\.0\.0\.1:\d+)/ \(Ctrl-C stops it\)", line)
        assert found, (line, process.poll() is not None and process.stderr.read())
        yield process, found[1]
    finally:
        process.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_after_what_is_under_way(shop, number, code):
    with started("serve", shop / "towers", "--port", 0) as (process, address):
        asked = {"queries": [{"history": ["i1"]}] * 50}
        found = []

        def ask():
            found.append(httpx.post(f"{address}/recommend", json=asked, timeout=60))

        httpx.get(f"{address}/health")
        thread = threading.Thread(target=ask)
        # An idle connection and one that has sent half a head do not hold it up.
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(b"GET / HT")
            thread.start()
            httpx.get(f"{address}/health")
            process.send_signal(number)
            thread.join(60)
            assert process.wait(30) == code
        # The request was taken before the signal, or its connection refused after it.
        assert not found or found[0].status_code == 200
        errors = process.stderr.read()
        assert "Traceback" not in errors
        assert errors.startswith(f"loading {shop / 'towers'}\ntowers: step")


def test_what_is_loaded_is_said_before_anything_large_is(monkeypatch):
    def stop(*names):
        raise ValueError("torch would be loaded from here on")

    monkeypatch.setattr("widemax.runs.folder.description.check_run", lambda folder: None)
    monkeypatch.setattr("widemax.cli.serve.import_extra", stop)
    result = CliRunner().invoke(app, ["serve", "runs/a", "runs/\x1bb"])
    assert "torch would be" in str(result.exception)
    assert result.stderr == "loading runs/a, runs/\\x1bb\n"


def test_it_listens_on_this_machine_alone(shop):
    with started("serve", shop / "popularity", "--port", 0) as (process, _):
        import psutil

        listening = [
            each.laddr.ip
            for each in psutil.Process(process.pid).net_connections()
            if each.status == psutil.CONN_LISTEN
        ]
    assert listening == ["127.0.0.1"]


def test_demo_serves_its_run_at_once(tmp_path, monkeypatch):
    folder = tmp_path / "demo"
    words = ["--num-classes", 100, "--steps", 2, "--folder", folder, "--port", 0]
    with started("demo", *words, "--serve") as (_, address):
        (about,) = httpx.get(f"{address}/run").json()["runs"]
        assert about["name"] == job.MODEL
        assert about["evaluation"]["recall@20"] >= 0
        assert {"head_recall@20", "tail_recall@20"} <= set(about["evaluation"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "{shop}/towers", "{shop}/towers"], "two runs are called"),
        (["serve", "{shop}"], "is not the folder of a run"),
        (["serve", "{shop}/towers", "--port", "{taken}"], "cannot be listened at"),
        (["serve", "{shop}/towers", "--host", "no such host"], "cannot be listened at"),
        (["serve", "{shop}/towers", "--timeout", "0"], "seconds must be a finite number above 0"),
        (["serve", "{shop}/towers", "--map", "umap"], "umap-learn, which is not installed"),
        (["serve", "{shop}/towers", "--query-timeout", "3"], "--query-timeout is for --from"),
        (["demo", "--serve", "--compare"], "--serve has no effect with --compare"),
        (["demo", "--port", "0"], "--port is for --serve"),
    ],
)
def test_mistakes_are_one_line(shop, words, said):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [each.format(shop=shop, taken=port) for each in words]
        result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, ValueError)
    assert said in str(result.exception)


def recommended(*words):
    result = CliRunner().invoke(app, ["recommend", *map(str, words), "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    return [(each["key"], each["score"]) for each in json.loads(result.stdout)]


def test_the_verb_recommends_with_filters_and_features_like_the_run(shop):
    run = wm.load(shop / "towers")
    filters = {"category": ["tea", "gin"], "price": ["3..30"]}
    found = recommended(
        shop / "towers", "--history", "i1", "--filter", "category=tea", "--filter", "category=gin",
        "--filter", "price=3..30", "--leave-out", "i6", "-k", 40,
    )  # fmt: skip
    expected = run.recommend(["i1"], filters=filters, leave_out=["i6"], k=40)
    assert found == [(each.key, each.score) for each in expected]
    assert {key for key, _ in found} == {
        f"i{item}" for item in range(3, 31) if item % 3 != 1 and item != 6
    }
    found = recommended(shop / "towers", "--feature", "age=30", "--feature", "likes=rum")
    expected = run.recommend(features={"age": 30, "likes": "rum"})
    assert found == [(each.key, each.score) for each in expected]
    # A model of tables is asked without torch.
    left_out = recommended(shop / "popularity", "--history", "i1", "--leave-out", "i12", "-k", 40)
    assert "i12" not in dict(left_out)
    for wrong in ("category", "=tea", "category="):
        words = ["recommend", str(shop / "towers"), "--history", "i1", "--filter", wrong]
        result = CliRunner().invoke(app, words)
        assert "--filter must be name=value" in str(result.exception)
