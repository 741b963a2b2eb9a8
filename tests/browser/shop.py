"""A small shop whose titles attack whoever shows them, two runs trained on it, and their server."""

import csv
import os
import random
import re
import subprocess
import sys

import widemax as wm

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "\u202eright to left\u202c שלום עולם",
    "\x1b[31mred\x1b[0m \x07bell",
    "long " * 60,
]
KINDS = ["textiles", "office", "<b>bold</b>"]
ITEMS, USERS, EACH = 60, 80, 8
FIRST, SECOND = "shop", "next"


def title(item):
    if item < len(HOSTILE):
        return HOSTILE[item]
    return f"{('Pale', 'Dark')[item % 2]} {('oak', 'ash', 'linen')[item // 2 % 3]} bowl {item}"


def write_csv(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def make_runs(folder):
    """Train two runs, the first of which is audited, and return their folders."""
    drawn, clicks = random.Random(0), []
    for user in range(USERS):
        start = drawn.randrange(ITEMS)
        # Neighbours on a ring, and one of the hostile ones: these are the most frequent.
        had = [drawn.randrange(len(HOSTILE)), *((start + step) % ITEMS for step in range(EACH - 1))]
        clicks += [(f"u{user:04}", f"i{item}", place) for place, item in enumerate(had)]
    write_csv(folder / "log.csv", ("user", "item", "time"), clicks)
    items = [(f"i{item}", title(item), KINDS[item % 3], 5 + item) for item in range(ITEMS)]
    write_csv(folder / "items.csv", ("id", "title", "kind", "price"), items)
    ages = [(f"u{user:04}", ("young", "old")[user % 2]) for user in range(USERS)]
    write_csv(folder / "users.csv", ("id", "age"), ages)
    files = {"item_features": str(folder / "items.csv"), "user_features": str(folder / "users.csv")}
    sizes = {"dimension": 8, "batch_size": 64, "split": "last", "patience": 0}
    first = wm.Config(model="two-tower", **files, **sizes, epochs=4)
    titles = str(folder / "items.csv")
    second = wm.Config(model="next-item", titles=titles, **sizes, epochs=3)
    run = wm.train(folder / "log.csv", first, folder=folder / FIRST)
    run.audit(draws=20)
    wm.train(folder / "log.csv", second, folder=folder / SECOND)
    return [folder / FIRST, folder / SECOND]


class Served:
    """The server of some runs, in a process of its own."""

    def __init__(self, runs):
        command = [sys.executable, "-m", "widemax", "serve", *map(str, runs), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--timeout", "60"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+/", line)
        if found is None:
            self.process.kill()
            raise AssertionError(f"serve said {line!r}, {self.process.stderr.read()}")
        self.url = found[0]

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=60)
