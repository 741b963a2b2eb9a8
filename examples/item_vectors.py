"""Vectors of items from a log of who chose what: trained, asked, and written for other tools.

The log here is simulated, with the category of every item known; yours is a CSV or Parquet file.
Run it: ``python examples/item_vectors.py``.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import widemax as wm

CATEGORIES, ITEMS_EACH, USERS = 8, 25, 600


def write_log(path: Path) -> None:
    """Write a log in which every user stays within two categories, mostly."""
    choose = random.Random(0)
    lines = ["user,item,time"]
    for user in range(USERS):
        liked = choose.sample(range(CATEGORIES), 2)
        for time in range(15):
            category = (
                choose.choice(liked) if choose.random() < 0.9 else choose.randrange(CATEGORIES)
            )
            lines.append(f"u{user},c{category}-{choose.randrange(ITEMS_EACH)},{time}")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Train Item2Vec, and print how many of an item's neighbours are of its category."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder / "log.csv")
        settings = wm.Config(model="item2vec", dimension=32, epochs=15, threads=1)
        run = wm.train(folder / "log.csv", settings, folder=folder / "run")
        items = run.vocabulary.keys[:50]
        same = total = 0
        for item in items:
            for found in run.similar(item, k=5):
                total += 1
                same += found.key.split("-")[0] == item.split("-")[0]
        print(f"{same / total:.2f} of the nearest items are of the same category")
        run.export(folder / "vectors.txt", to="word2vec")
        again = wm.vectors.read_word2vec_text(folder / "vectors.txt")
        print(f"{len(again)} vectors of {again.dimension} numbers")


if __name__ == "__main__":
    main()
