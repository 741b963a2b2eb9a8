"""A log as MovieLens has it, with a file of films: the first command that people try."""

import json

import pytest
from typer.testing import CliRunner

from widemax.cli.app import app


@pytest.fixture
def folder(tmp_path):
    genres = ("Action|War", "Drama", "Comedy|Drama")
    films = [f"{key},Film {key} (19{key % 90 + 10}),{genres[key % 3]}" for key in range(1, 61)]
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n" + "\n".join(films) + "\n")
    rows = [
        f"{user},{1 + (user + 3 * k) % 50},{0.5 * (1 + (user + k) % 10)},{1_260_000_000 + 60 * k}"
        for user in range(1, 61)
        for k in range(12)
    ]
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "\n".join(rows))
    return tmp_path


def test_recommendations_with_titles_from_one_command(folder):
    command = ["train", folder / "ratings.csv", "--where", "rating >= 4", "--item-features"]
    command += [folder / "movies.csv", "--folder", folder / "run", "--steps", 5]
    trained = CliRunner().invoke(app, [*map(str, command)])
    assert "model two-tower" in trained.stderr
    assert "features of items: title (tokens), genres (tokens)" in trained.stderr
    asked = CliRunner().invoke(app, ["recommend", str(folder / "run"), "--user", "15", "--json"])
    found = json.loads(asked.stdout)
    assert len(found) == 10
    assert all(row["title"].startswith(f"Film {row['key']} (19") for row in found)
