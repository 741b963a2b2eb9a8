import json
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import numpy as np
import polars as pl
import pytest

import widemax as wm
from widemax.serving.limits import Limits
from widemax.serving.runs.fleet import Fleet
from widemax.serving.server import listen, make_server

NUM_ITEMS, NUM_USERS = 40, 80
HOSTILE = "<img src=x onerror=alert(1)></script>\u202e\x1b[2J"


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """A folder with a log, features, and two runs on them."""
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(0)
    rows = [
        (f"u{user}", f"i{item}") for user in range(NUM_USERS) for item in rng.integers(0, 30, 8)
    ] + [(f"u{item}", f"i{item}") for item in range(NUM_ITEMS)]
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(folder / "log.csv")
    pl.DataFrame(
        {
            "item": [f"i{item}" for item in range(NUM_ITEMS)],
            "title": [HOSTILE if item == 3 else f"Thing {item}" for item in range(NUM_ITEMS)],
            "category": [("tea", "rum", "gin")[item % 3] for item in range(NUM_ITEMS)],
            "price": [float(item) for item in range(NUM_ITEMS)],
            "tags": [["hot", "new"][: item % 3] for item in range(NUM_ITEMS)],
        }
    ).write_parquet(folder / "items.parquet")
    pl.DataFrame(
        {
            "user": [f"u{user}" for user in range(NUM_USERS)],
            "age": [20 + user % 50 for user in range(NUM_USERS)],
            "likes": [("tea", "rum")[user % 2] for user in range(NUM_USERS)],
        }
    ).write_parquet(folder / "users.parquet")
    features = {
        "item_features": str(folder / "items.parquet"),
        "user_features": str(folder / "users.parquet"),
    }
    config = wm.Config(model="two-tower", dimension=4, epochs=2, **features)
    wm.train(folder / "log.csv", config, folder=folder / "towers")
    wm.train(folder / "log.csv", wm.Config(model="popularity"), folder=folder / "popularity")
    return folder


class Served:
    """A server in a thread, and a client of it."""

    def __init__(self, fleet, port):
        self.fleet, self.port = fleet, port
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def post(self, path, body, status=200):
        return self._checked(self.client.post(path, json=body), status)

    def get(self, path, status=200, **parameters):
        return self._checked(self.client.get(path, params=parameters), status)

    def _checked(self, answer, status):
        assert answer.status_code == status, answer.text
        return answer.json()

    def raw(self, data, *, wait=20.0):
        """Send bytes on a connection of its own; return all that comes back until it ends."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as connection:
            connection.sendall(data)
            found = b""
            while part := connection.recv(65536):
                found += part
            return found


@contextmanager
def serving(folders, place=None, **options):
    """Serve folders from a thread of this process."""
    fleet, bound, ready = Fleet(folders, place=place), listen("127.0.0.1", 0), threading.Event()
    port = bound.getsockname()[1]
    server = make_server(fleet, host="127.0.0.1", ready=ready.set, **options)
    thread = threading.Thread(target=server.serve_on, args=[bound])
    thread.start()
    try:
        assert ready.wait(30)
        served = Served(fleet, port)
        yield served
        served.client.close()
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def served(shop):
    # Short, so that a slow client is sent away while the test waits.
    with serving([shop / "towers", shop / "popularity"], limits=Limits(read_seconds=1.5)) as found:
        yield found


def wait_until(holds, seconds=30.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def request_head(served, path="/recommend", **headers):
    """Return the head of a POST, without a body."""
    fields = {"Host": f"127.0.0.1:{served.port}", "Content-Type": "application/json", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()


def body_of(raw):
    return json.loads(raw.partition(b"\r\n\r\n")[2])
