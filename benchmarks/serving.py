"""``widemax serve`` under load on loopback: 4 connections, 100,000 items, an index.

Before anything is timed, answers over HTTP are compared with those of the library, digit by digit.
The bare index call is that of this process: ``index.search`` with a hidden state that is there
already. The load is bounded in time; the server is a process of its own. Last, a newer checkpoint
is taken up under the same load.

    python benchmarks/serving.py --check
    python benchmarks/serving.py --seconds 10 --run runs/mine
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import torch

import widemax as wm
from _harness import Report, command_line
from widemax.runs.answering.questions import Question
from widemax.runs.run import Run
from widemax.runs.vectors.indexes import RunIndexes
from widemax.vectors import KeyedVectors

NUM_ITEMS, NUM_USERS, LENGTH = 100_000, 20_000, 10
NUM_CLUSTERS, DIMENSION = 200, 64
CONNECTIONS, K, HISTORY = 4, 10, 5
BASELINE = "the bare index call"


def make_run(folder: Path, *, steps: int, titles: Path | None = None) -> Run:
    """Train a little on a made-up log whose items come in clusters; resume what is there.

    It begins from vectors of those clusters, as a catalogue has that was trained at length: in
    vectors without any an index finds its way no faster than by going through half of them.
    """
    log = folder / "log.parquet"
    if not log.exists():
        rng = np.random.default_rng(0)
        cluster, size = rng.integers(0, NUM_CLUSTERS, (NUM_USERS, 1)), NUM_ITEMS // NUM_CLUSTERS
        near = cluster * size + rng.integers(0, size, (NUM_USERS, LENGTH))
        far = rng.integers(0, NUM_ITEMS, (NUM_USERS, LENGTH))
        items = np.where(rng.random(near.shape) < 0.3, far, near).ravel()
        users = np.repeat(np.arange(NUM_USERS), LENGTH)
        # Every item once, so that all of them are classes.
        users = np.concatenate([users, np.arange(NUM_ITEMS) % NUM_USERS])
        items = np.concatenate([items, rng.permutation(NUM_ITEMS)])
        pl.DataFrame({"user": users, "item": items}).write_parquet(log)
    config = wm.Config(model="next-item", dimension=DIMENSION, steps=steps, validation_size=0)
    config = config if titles is None else config.changed(titles=str(titles))
    if (folder / "run").exists():
        return wm.train(log, config, folder=folder / "run", resume=True)
    return wm.train(log, config, folder=folder / "run", vectors=clustered_vectors())


def clustered_vectors() -> KeyedVectors:
    """Return a vector for each item: half of it that of its cluster, half its own."""
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(NUM_CLUSTERS, DIMENSION))
    own = rng.normal(size=(NUM_ITEMS, DIMENSION))
    mixed = np.repeat(centres, NUM_ITEMS // NUM_CLUSTERS, axis=0) + own
    vectors = torch.from_numpy((mixed * DIMENSION**-0.5).astype(np.float32))
    return KeyedVectors(pl.Series(np.arange(NUM_ITEMS)), vectors)


class Connection:
    """One connection that is kept; requests are bytes that were made before."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        self._socket.sendall(request)
        found = b""
        while b"\r\n\r\n" not in found:
            found += self._received()
        head, _, body = found.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += self._received()
        return int(head[9:12]), body

    def _received(self) -> bytes:
        part = self._socket.recv(65536)
        if not part:
            raise ConnectionError("the server has closed the connection")
        return part


def request_of(port: int, body: object) -> bytes:
    data = json.dumps(body).encode()
    return (
        f"POST /recommend HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    ).encode() + data


@contextmanager
def server(folder: Path) -> Iterator[tuple[psutil.Process, int, float]]:
    """Yield the process that serves a run, its port, and the seconds until it was ready."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "widemax", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("open "))
        ready = time.perf_counter() - started
        yield psutil.Process(process.pid), int(line.split("/")[2].rpartition(":")[2]), ready
        process.terminate()
        if process.wait(30):
            sys.exit(f"the server ended with {process.returncode}")
    finally:
        process.kill()


class Load:
    """Some connections that ask one request after the other, each its own."""

    def __init__(self, port: int, requests: list[bytes], connections: int) -> None:
        self.seconds: list[float] = []
        self.errors: list[str] = []
        self.steps: set[int] = set()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=[port, requests[place::connections]])
            for place in range(connections)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, port: int, requests: list[bytes]) -> None:
        try:
            connection, number = Connection(port), 0
            while not self._stop.is_set():
                started = time.perf_counter()
                status, body = connection.ask(requests[number % len(requests)])
                self.seconds.append(time.perf_counter() - started)
                number += 1
                if status != 200:
                    self.errors.append(f"{status}: {body[:200]!r}")
                elif number % 50 == 0:
                    self.steps.add(json.loads(body)["step"])
        except (OSError, ValueError) as error:
            self.errors.append(repr(error))

    def quantile(self, share: float) -> float:
        """Return milliseconds that this share of the answers took at most."""
        return 1e3 * float(np.quantile(self.seconds, share))


def bare_call(run: Run, histories: list[list[int]]) -> float:
    """Return the median milliseconds of a search of the index that the run recommends from."""
    index = RunIndexes(run.folder).to_recommend(run.model)
    if index is None:
        sys.exit(f"{run.folder} has no index: widemax index {run.folder}")
    seconds = []
    with torch.no_grad():
        reader = run.recommender.reader
        asked = [reader.read(Question(history=history)) for history in histories]
        hidden = [each.model.hidden(each.batch) for each in asked]
        for own, each in zip(hidden, asked, strict=True):
            started = time.perf_counter()
            index.search(own, K, exclude=each.seen[None])
            seconds.append(time.perf_counter() - started)
    return 1e3 * statistics.median(seconds)


def check_answers(run: Run, port: int, histories: list[list[int]]) -> None:
    """Compare answers over HTTP with those of the library, digit by digit."""
    connection = Connection(port)
    for history in histories:
        body = {"history": history, "k": K}
        status, answer = connection.ask(request_of(port, body))
        found = [(each["key"], each["score"]) for each in json.loads(answer)["items"]]
        expected = [(str(each.key), each.score) for each in run.recommend(history, k=K)]
        if status != 200 or found != expected:
            sys.exit(f"answers differ for {history}: {found} and {expected}")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the load lasts")
    parser.add_argument("--run", type=Path, help="a run with an index, in place of a made-up one")
    arguments = parser.parse_args()
    report = Report(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if arguments.run is None:
            run = make_run(folder, steps=60)
            run.build_index("ivf")
        run = Run(arguments.run or folder / "run")
        run.prepare()
        rng = np.random.default_rng(1)
        rows = rng.integers(0, len(run.vocabulary), (400, HISTORY))
        histories = [run.vocabulary.keys_at(each.tolist()) for each in rows]
        measure(report, run, histories, arguments.seconds)
        if arguments.run is None:
            reload_under_load(report, folder, histories)
    report.finish()


def measure(report: Report, run: Run, histories: list[list[int]], seconds: float) -> None:
    with server(run.folder) as (process, port, ready):
        requests = [request_of(port, {"history": each, "k": K}) for each in histories]
        started = time.perf_counter()
        Connection(port).ask(requests[0])
        first = 1e3 * (time.perf_counter() - started)
        check_answers(run, port, histories[:100])
        bare = bare_call(run, histories)
        with Load(port, requests, 1) as alone:
            time.sleep(min(5.0, seconds))
        memory, spent = [], process.cpu_times()
        with Load(port, requests, CONNECTIONS) as load:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(min(0.5, seconds / 20))
                memory.append(process.memory_info().rss)
        after = process.cpu_times()
    for each in (*alone.errors, *load.errors)[:5]:
        print(each)
    part = max(1, round(len(memory) * min(10.0, seconds / 3) / seconds))
    early, late = statistics.mean(memory[:part]), statistics.mean(memory[-part:])
    processor = after.user + after.system - spent.user - spent.system
    report.add("seconds until the server is ready", ready)
    report.add("milliseconds of the first answer", first, 100, "at most")
    report.add(f"milliseconds of {BASELINE}, median", bare)
    report.add("p50 of HTTP at 1 connection, ms", alone.quantile(0.5))
    report.add(f"p50 of HTTP at {CONNECTIONS} connections, ms", load.quantile(0.5))
    report.add(f"p50 above {BASELINE}, 1 connection, ms", alone.quantile(0.5) - bare, 3, "at most")
    report.add(
        f"p50 above {BASELINE}, {CONNECTIONS} connections, ms",
        load.quantile(0.5) - bare,
        3,
        "at most",
    )
    report.add(
        f"p99 / p50 at {CONNECTIONS} connections",
        load.quantile(0.99) / load.quantile(0.5),
        5,
        "at most",
    )
    report.add("requests", len(load.seconds))
    report.add("requests a second", len(load.seconds) / seconds)
    report.add(
        "processor milliseconds of the server a request", 1e3 * processor / len(load.seconds)
    )
    report.add("errors", len(load.errors) + len(alone.errors), 0, "at most")
    report.add("memory of the server, MB", late / 2**20)
    report.add("memory, last part of the load / first", late / early, 1.02, "at most")


def reload_under_load(report: Report, folder: Path, histories: list[list[int]]) -> None:
    # Without its index, which would be that of the older checkpoint.
    shutil.rmtree(folder / "run" / "index")
    with server(folder / "run") as (_, port, _):
        requests = [request_of(port, {"history": each, "k": K}) for each in histories]
        with Load(port, requests, CONNECTIONS) as load:
            newer = make_run(folder, steps=80)
            end = time.monotonic() + 60
            while newer.step not in load.steps and time.monotonic() < end:
                time.sleep(0.2)
    for each in load.errors[:5]:
        print(each)
    report.add("requests while a newer checkpoint is taken up", len(load.seconds))
    report.add("steps that answered", len(load.steps), 2)
    report.add("errors while a newer checkpoint is taken up", len(load.errors), 0, "at most")


if __name__ == "__main__":
    main()
