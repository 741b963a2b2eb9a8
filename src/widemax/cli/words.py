"""The verbs of runs on text: analogy, generate, and the tests of word vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from widemax.cli.printable import printable
from widemax.cli.runs import finite, load, show_neighbours
from widemax.cli.waiting import waiting
from widemax.evaluation import evaluate_analogies, evaluate_similarity


def analogy_verb(folder: Path, a: str, b: str, c: str, k: int, *, as_json: bool) -> None:
    """Print what c is to as a is to b."""
    show_neighbours(load(folder).analogy(a, b, c, k=k), as_json=as_json)


def generate_verb(folder: Path, start: str, num_words: int, seed: int, *, as_json: bool) -> None:
    """Print a text drawn from a language model."""
    words = load(folder).generate(start, num_words=num_words, seed=seed)
    typer.echo(json.dumps(words) if as_json else printable(" ".join(words)))


def word_tests(
    folder: Path, similarity: list[Path], analogies: list[Path], *, as_json: bool
) -> None:
    """Print how the vectors of a run do in tests that people made."""
    vectors = load(folder).vectors()
    rows: list[dict[str, Any]] = []
    with waiting(f"testing {folder}"):
        for path in similarity:
            found = evaluate_similarity(vectors, path)
            counts = {"pairs": found.pairs, "skipped": found.skipped}
            rows.append({"test": path.name, **found.metrics(), **counts})
        for path in analogies:
            report = evaluate_analogies(vectors, path)
            rows += [
                {"test": path.name, "section": section.name, **_counts(section)}
                for section in (*report.sections, report.total)
            ]
    if as_json:
        typer.echo(json.dumps([{name: _plain(row[name]) for name in row} for row in rows]))
        return
    for row in rows:
        figures = "  ".join(
            f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value:,}"
            for name, value in row.items()
            if not isinstance(value, str)
        )
        name = " ".join(value for value in row.values() if isinstance(value, str))
        typer.echo(f"{printable(name):<45}  {figures}")


def _plain(value: Any) -> Any:
    return finite(value) if isinstance(value, float) else value


def _counts(section: Any) -> dict[str, Any]:
    return {
        "accuracy": float(section.accuracy),
        "questions": section.questions,
        "skipped": section.skipped,
    }
