"""Newer checkpoints are taken up while requests come, and none is dropped."""

import shutil
import threading
import time

import httpx

import widemax as wm
from tests.serving.conftest import serving, wait_until


def train_on(shop, folder, epochs):
    """Train a run, or go on with it, for so many passes; the last checkpoint is the best."""
    config = wm.Config(model="next-item", dimension=4, epochs=epochs, validation_size=0)
    return wm.train(shop / "log.csv", config, folder=folder, resume=folder.exists())


def test_reload_under_load_fails_no_request(shop, tmp_path):
    folder = tmp_path / "run"
    first = train_on(shop, folder, 1)
    asked = {"history": ["i1", "i2"], "k": 5}
    expected = {first.step: [(each.key, each.score) for each in first.recommend(**asked)]}
    answers, stop = [], threading.Event()
    with serving([folder], watch=0.1) as served:

        def ask():
            with httpx.Client(base_url=served.client.base_url, timeout=60) as client:
                while not stop.is_set():
                    answers.append(client.post("/recommend", json=asked))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for epochs in (2, 3):
                newer = train_on(shop, folder, epochs)
                expected[newer.step] = [(each.key, each.score) for each in newer.recommend(**asked)]
                wait_until(lambda step=newer.step: served.fleet.get(None).step == step)
                time.sleep(0.3)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert 'widemax_reloads_total{run="run"} 2.0' in served.client.get("/metrics").text
    assert {answer.status_code for answer in answers} == {200}
    assert len(expected) == 3
    seen = set()
    for answer in answers:
        found = answer.json()
        seen.add(found["step"])
        assert [(e["key"], e["score"]) for e in found["items"]] == expected[found["step"]]
    assert seen == set(expected)


def test_a_checkpoint_that_the_index_is_not_of_waits_for_its_own(shop, tmp_path, caplog):
    folder = tmp_path / "run"
    first = train_on(shop, folder, 1)
    first.build_index("exact")
    with serving([folder], watch=0.1) as served:
        newer = train_on(shop, folder, 2)
        wait_until(lambda: "is of another model" in caplog.text)
        assert served.post("/recommend", {"history": ["i1"]})["step"] == first.step
        newer.build_index("exact")
        wait_until(lambda: served.fleet.get(None).step == newer.step)
        found = served.post("/recommend", {"history": ["i1"]})
        assert [e["score"] for e in found["items"]] == [
            each.score for each in newer.recommend(["i1"])
        ]


def test_a_folder_that_is_damaged_or_gone_leaves_what_is_served(shop, tmp_path, caplog):
    folder = tmp_path / "run"
    shutil.copytree(shop / "towers", folder)
    with serving([folder], watch=0.1) as served:
        before = served.post("/recommend", {"user": "u4", "history": ["i1"]})
        for path in folder.glob("checkpoints/*/manifest.json"):
            path.write_text("{")
        wait_until(lambda: "is served as before" in caplog.text)
        assert served.post("/recommend", {"user": "u4", "history": ["i1"]}) == before
