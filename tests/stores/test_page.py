"""The page about databases is a transcript: its commands run, and print what it says."""

import os
from pathlib import Path

import numpy as np
import psycopg
import pytest

from tests.project.test_tour import execute, same_lines, transcript

PAGE = Path(__file__).parents[2] / "docs" / "databases.md"
ADDRESS = "postgresql://ann@db/shop"


@pytest.fixture
def shop(database, tmp_path, monkeypatch):
    """Fill the database of the page, and stand where it stands."""
    chosen = np.random.default_rng(0).integers(40, size=(2000, 2)).tolist()
    with psycopg.connect(database) as connection:
        connection.execute("create table clicks (user_id bigint, item_id bigint, ts bigint)")
        with connection.cursor().copy("copy clicks from stdin") as rows:
            for time, (user, item) in enumerate(chosen):
                rows.write_row((user, item, time))
    films = (f"{item},Film {item},{item % 5},{'old' if item % 2 else 'new'}" for item in range(40))
    (tmp_path / "films.csv").write_text("item_id,title,price,age\n" + "\n".join(films) + "\n")
    monkeypatch.chdir(tmp_path)
    return database


def test_the_page_is_what_happens(shop, capsys, monkeypatch):
    steps = transcript(PAGE.read_text(encoding="utf-8"))
    assert len(steps) == 8
    assert os.environ.get("PGPASSWORD") is None
    for command, expected in steps:
        whole = command.replace("\\\n", " ").replace(ADDRESS, shop)
        # What takes long on a slow machine is announced by a line that ends in dots.
        lines = [
            line.replace(shop, ADDRESS)
            for line in execute(whole, capsys, monkeypatch)
            if not line.endswith(" ...")
        ]
        shown = "\n".join(lines)
        assert same_lines(lines, expected), f"$ {command}\nprinted, unlike the page:\n{shown}"
