"""What clients may do to a server, each with its number in the list of faults."""

import os
import shutil
import socket
import threading
import time
from contextlib import suppress

import psutil
import pytest

import widemax as wm
from tests.serving.conftest import NUM_ITEMS, body_of, request_head, serving, wait_until
from widemax.serving.http.guard import Hosts
from widemax.serving.limits import Limits
from widemax.serving.runs.fleet import Fleet

MEGABYTE = 2**20


def resident():
    return psutil.Process(os.getpid()).memory_info().rss


def test_fault_20_an_index_of_another_model_is_refused_at_load(shop, tmp_path):
    for name in ("towers", "other"):
        shutil.copytree(shop / "towers", tmp_path / name)
    # The index of a model of the same shape that was trained otherwise.
    config = wm.load(shop / "towers").config.changed(seed=7)
    shutil.rmtree(tmp_path / "other")
    wm.train(shop / "log.csv", config, folder=tmp_path / "other").build_index("exact")
    shutil.copytree(tmp_path / "other" / "index", tmp_path / "towers" / "index")
    with pytest.raises(ValueError, match="is of another model"):
        Fleet([tmp_path / "towers"])


@pytest.mark.parametrize("k", [0, -1, 10**9, 10**30, 1.5, "3", True, None])
def test_fault_23_k_that_is_no_count_is_refused(served, k):
    assert "k: " in served.post("/recommend", {"history": ["i1"], "k": k}, 422)["detail"]
    assert served.post("/similar", {"key": "i1", "k": k}, 422)["detail"]


def test_fault_23_more_than_there_are_gives_all_there_are(served):
    items = served.post("/recommend", {"history": ["i1"], "k": 1000})["items"]
    assert len({each["key"] for each in items}) == len(items) == NUM_ITEMS - 1
    assert len(served.post("/similar", {"key": "i1", "k": 1000})["items"]) == NUM_ITEMS - 1
    nothing = {"history": ["i1"], "filters": {"price": ["1000.."]}, "k": 5}
    assert served.post("/recommend", nothing)["items"] == []
    everything = [f"i{item}" for item in range(NUM_ITEMS)]
    assert served.post("/recommend", {"history": ["i1"], "leave_out": everything})["items"] == []
    for k in (0, -1, 10**9):
        served.get("/items", 422, q="i", k=k)


@pytest.mark.parametrize(
    ("asked", "suggestion"),
    [
        ({"user": "u 4"}, "u4"),
        ({"history": ["Thimg 12"]}, "Thing 12"),
        ({"history": ["i1"], "leave_out": ["Thng 33"]}, "Thing 33"),
        ({"history": ["i1"], "filters": {"category": ["teaa"]}}, "tea"),
        ({"history": ["i1"], "filters": {"categori": ["tea"]}}, "category"),
        ({"features": {"likes": "rumm"}}, "rum"),
        ({"features": {"agee": 3}}, "age"),
    ],
    ids=str,
)
def test_fault_24_what_is_not_known_is_said_with_the_nearest(served, asked, suggestion):
    assert suggestion in served.post("/recommend", asked, 422)["suggestions"]


@pytest.mark.parametrize(
    "body",
    [
        '{"features": {"age": NaN}}',
        '{"features": {"age": Infinity}}',
        '{"features": {"age": 1e999}}',
        '{"features": {"age": "nan"}}',
        '{"history": ["i1"], "filters": {"price": [NaN]}}',
        '{"history": ["i1"], "filters": {"price": ["nan..nan"]}}',
        '{"history": ["i1"], "filters": {"price": ["5..1"]}}',
        '{"history": "i1"}',
        '{"history": [null]}',
        '{"history": ["\\ud800"]}',
        '{"user": {"a": 1}}',
        "[]",
        "null",
        "{}",
    ],
)
def test_fault_24_values_that_are_none_are_refused(served, body):
    headers = {"content-type": "application/json"}
    answer = served.client.post("/recommend", content=body.encode(), headers=headers)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    "name",
    [
        "../served_run.py",
        "..%2fserved_run.py",
        "..\\served_run.py",
        "%252e%252e%252fserved_run.py",
        "%2e%2e/served_run.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "index.html%00.js",
        "",
        ".",
    ],
)
def test_fault_26_paths_out_of_the_page_are_refused(served, name):
    head = f"GET /static/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = served.raw(head.encode())
    assert answer.startswith(b"HTTP/1.1 404"), answer[:200]
    assert b"import" not in answer
    assert b"root:" not in answer


def test_fault_26_a_link_out_of_the_page_is_not_followed(tmp_path):
    from widemax.serving.page_files import PageFiles

    (tmp_path / "secret").write_text("secret")
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("page")
    (tmp_path / "page" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "page" / "folder").symlink_to(tmp_path)
    files = PageFiles(tmp_path / "page")
    assert files.find("index.html") is not None
    assert files.find("link") is None
    assert files.find("folder/secret") is None


def test_fault_27_a_body_of_a_gigabyte_is_refused_by_its_length(served):
    answer = served.raw(request_head(served, **{"Content-Length": str(2**30)}))
    assert answer.startswith(b"HTTP/1.1 413")
    assert "1,073,741,824" in body_of(answer)["detail"]


def test_fault_27_chunks_without_a_length_are_refused_before_memory_grows(served):
    before, chunk = resident(), b"x" * MEGABYTE
    sent = 0
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(request_head(served, **{"Transfer-Encoding": "chunked"}))
        # The connection ends in the middle of it.
        with suppress(OSError):
            while sent < 1024 * MEGABYTE:
                connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                sent += len(chunk)
                time.sleep(0.01)  # the server's turn: it is a thread of this process
    assert sent < 64 * MEGABYTE
    assert resident() - before < 64 * MEGABYTE
    assert served.get("/health")["status"] == "ok"


def test_fault_27_a_million_form_fields_are_not_read_as_a_form(served):
    fields = b"&".join(b"f%d=1" % number for number in range(100_000))
    answer = served.client.post(
        "/recommend",
        content=fields,
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code == 415
    large = served.client.post("/recommend", content=fields * 10)
    assert large.status_code == 413


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"history":['])
def test_fault_27_json_nested_deeply_is_refused(served, opening):
    body = (opening * 100_000).encode()
    headers = {"content-type": "application/json"}
    answer = served.client.post("/recommend", content=body, headers=headers)
    assert answer.status_code in (400, 413, 422), answer.text[:200]
    assert served.get("/health")["status"] == "ok"


def test_fault_27_a_client_of_one_byte_a_second_is_sent_away_and_others_are_served(served):
    """Slow in the head, in the body, and in the head of a second request."""
    whole = f"GET /health HTTP/1.1\r\nHost: localhost:{served.port}\r\n\r\n".encode()
    head = request_head(served, **{"Content-Length": "1000"})
    kinds = {"head": b"", "body": head, "second": whole}
    answers = {}

    def drip(kind, first):
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
            connection.sendall(first)
            found = b""
            connection.settimeout(0.3)
            end, rest = time.monotonic() + 30, iter(whole)
            while time.monotonic() < end:
                try:
                    connection.sendall(bytes([next(rest)]))
                    part = connection.recv(65536)
                    if not part:
                        break
                    found += part
                except TimeoutError:
                    continue
                except OSError:
                    break
            answers[kind] = found

    threads = [threading.Thread(target=drip, args=each) for each in kinds.items()]
    for thread in threads:
        thread.start()
    others = 0
    while any(thread.is_alive() for thread in threads):
        served.post("/recommend", {"history": ["i1"]})
        others += 1
    for thread in threads:
        thread.join()
    assert others > 3
    assert answers["head"].startswith(b"HTTP/1.1 408")
    assert body_of(answers["head"])["detail"] == "the head must be there within 1.5 seconds"
    assert answers["body"].startswith(b"HTTP/1.1 408")
    assert answers["second"].startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in answers["second"]


ASKED = b'{"history": ["i1"], "k": 1}'
LENGTH = f"Content-Length: {len(ASKED)}\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
CHUNK = b"%x\r\n%s\r\n" % (len(ASKED), ASKED)


@pytest.mark.parametrize(
    ("lines", "body", "status"),
    [
        (LENGTH, ASKED, 200),
        (CHUNKED, CHUNK + b"0\r\n\r\n", 200),
        # A wish for another protocol is passed over, and what was asked is answered.
        (LENGTH + "Upgrade: h2c\r\nConnection: Upgrade\r\n", ASKED + b"POST", 200),
        (LENGTH + "Host: localhost\r\n", ASKED, 400),
        (LENGTH + LENGTH.replace("7", "6"), ASKED, 400),
        (LENGTH + CHUNKED, CHUNK + b"0\r\n\r\n", 400),
        (LENGTH + "X : y\r\n", ASKED, 400),
        (LENGTH + "X: y\0\r\n", ASKED, 400),
        ("Content-Length: -1\r\n", ASKED, 400),
        ("Transfer-Encoding: gzip, chunked\r\n", CHUNK + b"0\r\n\r\n", 400),
        ("Transfer-Encoding: identity\r\n", ASKED, 400),
    ],
    ids=str,
)
def test_fault_27_a_request_that_may_be_read_in_two_ways_is_refused(served, lines, body, status):
    head = f"POST /recommend HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{lines}"
    close = "" if "Connection" in lines else "Connection: close\r\n"
    answer = served.raw(f"{head}Content-Type: application/json\r\n{close}\r\n".encode() + body)
    assert answer.startswith(b"HTTP/1.1 %d" % status), answer
    assert answer.count(b"HTTP/1.1") == 1
    assert status != 200 or len(body_of(answer)["items"]) == 1


@pytest.mark.parametrize(
    "line", ["PPPP", "CONNECT a:1 HTTP/1.1", "GET /health HTTP/3.1", "\x16\x03"]
)
def test_fault_27_what_is_no_request_is_refused_at_once(served, line):
    answer = served.raw(f"{line}\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400")
    assert body_of(answer)["detail"]
    assert b"nosniff" in answer


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"GET /health?", b"a" * 1000),
        (b"GET /health HTTP/1.1\r\nX: ", b"a" * 1000),
        (b"GET /health HTTP/1.1\r\n", b"X: a\r\n" * 200),
        (None, b"a" * 1000),
        (b"0\r\n", b"X: a\r\n" * 200),
    ],
    ids=["path", "header", "headers", "between chunks", "after chunks"],
)
def test_fault_27_a_head_without_an_end_is_refused_before_memory_grows(served, start, more):
    if start is None or start.startswith(b"0"):
        head = request_head(served, **{"Transfer-Encoding": "chunked"})
        start = head + (start or b"1;")
    before, sent = resident(), 0
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(start)
        with suppress(OSError):
            while sent < 100 * MEGABYTE:
                connection.sendall(more * 50)
                sent += 50 * len(more)
                time.sleep(0.001)  # the server's turn
    assert sent < 20 * MEGABYTE
    assert resident() - before < 32 * MEGABYTE
    assert served.get("/health")["status"] == "ok"


def test_requests_sent_at_once_are_answered_in_their_order(served):
    one = f"GET /items?q=i{{}}&k=1 HTTP/1.1\r\nHost: localhost:{served.port}\r\n".encode()
    keys = [b"i%d" % number for number in (7, 3, 9)]
    asked = [one.replace(b"i{}", key) for key in keys]
    answers = served.raw(b"\r\n".join(asked) + b"Connection: close\r\n\r\n").split(b"HTTP/1.1")
    assert len(answers) == 4
    for key, answer in zip(keys, answers[1:], strict=True):
        assert b'{"items":[{"key":"%s"' % key in answer


def test_fault_29_what_follows_a_body_names_no_host(served):
    head = b"POST /recommend HTTP/1.1\r\nHost: evil.test\r\nContent-Type: application/json\r\n"
    end = f"0\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode()
    answer = served.raw(head + CHUNKED.encode() + b"\r\n" + CHUNK + end)
    assert answer.startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.test"}, 403),
        ({"Host": "127.0.0.1.evil.test"}, 403),
        ({"Host": "user@localhost"}, 403),
        ({"Host": "localhost/x"}, 403),
        ({"Host": "192.168.0.7"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Host": "localhost", "Origin": "http://localhost"}, 200),
        ({"Host": "[::1]:99"}, 200),
        ({}, 200),
    ],
    ids=str,
)
def test_fault_29_foreign_hosts_and_origins_are_refused(served, headers, status):
    assert served.client.get("/health", headers=headers).status_code == status


def test_fault_29_an_address_may_be_asked_where_it_is_listened_at():
    assert Hosts("0.0.0.0").allows("192.168.0.7:8000")
    assert not Hosts("0.0.0.0").allows("evil.test")
    assert Hosts("0.0.0.0", ["shop.test"]).allows("Shop.test:8000")


class Gate:
    """Holds up the answers of a run until it is opened."""

    def __init__(self, served, monkeypatch):
        self.opened, self.entered = threading.Event(), threading.Semaphore(0)
        target = served.fleet.get(None)

        def held(key, k):
            self.entered.release()
            assert self.opened.wait(30)
            return {"held": True}

        monkeypatch.setattr(target, "similar", held)


def test_more_work_than_is_allowed_is_refused_and_health_still_answers(shop, monkeypatch):
    limits = Limits(concurrent=3, seconds=60.0)
    with serving([shop / "towers"], limits=limits) as served:
        gate = Gate(served, monkeypatch)
        found = []

        def ask():
            found.append(served.client.get("/similar", params={"key": "i1"}))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        # Three are held up, in a thread or waiting for one; the others are refused at once.
        wait_until(lambda: len(found) == 5, seconds=20)
        for answer in found:
            assert answer.status_code == 429
            assert answer.headers["retry-after"] == "1"
            assert "3 answers are under way" in answer.json()["detail"]
        assert served.get("/health")["status"] == "ok"
        assert served.client.get("/metrics").status_code == 200
        gate.opened.set()
        for thread in threads:
            thread.join(20)
        assert sorted(answer.status_code for answer in found) == [200] * 3 + [429] * 5
        served.get("/items")


def test_an_answer_that_takes_too_long_is_given_up(shop, monkeypatch):
    with serving([shop / "towers"], limits=Limits(seconds=0.3)) as served:
        gate = Gate(served, monkeypatch)
        answer = served.client.get("/similar", params={"key": "i1"})
        assert answer.status_code == 503
        assert "longer than 0.3 seconds" in answer.json()["detail"]
        gate.opened.set()


def test_fault_27_lateness_is_not_said_in_the_middle_of_an_answer(shop, monkeypatch):
    with serving([shop / "towers"], limits=Limits(read_seconds=0.3)) as served:
        gate = Gate(served, monkeypatch)
        head = f"GET /similar?key=i1 HTTP/1.1\r\nHost: localhost:{served.port}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
            connection.sendall(head + head[:20])
            assert gate.entered.acquire(timeout=30)
            time.sleep(1.0)
            gate.opened.set()
            found = b""
            while part := connection.recv(65536):
                found += part
        first, _, late = found.partition(b'{"held":true}')
        assert first.startswith(b"HTTP/1.1 200")
        assert late.startswith(b"HTTP/1.1 408")


def test_a_defect_is_an_answer_that_tells_nothing(shop, monkeypatch, caplog):
    with serving([shop / "towers"]) as served:

        def broken(key, k):
            raise RuntimeError("secret")

        monkeypatch.setattr(served.fleet.get(None), "similar", broken)
        answer = served.client.get("/similar", params={"key": "i1"})
        assert answer.status_code == 500
        assert "secret" not in answer.text
    assert "secret" in caplog.text
