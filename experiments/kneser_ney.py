"""Perplexity of n-gram models on the Penn Treebank and Brown, beside the figures that are known.

Penn Treebank: each line with its <eos>, which is predicted; one begin marker a line; 10,000 words,
<unk> among them. Brown: one long stream, words seen at most three times are <unk>; the first
800,000 words train, the next 200,000 are left out, the rest is the test. No n-gram is cut off.

    python experiments/kneser_ney.py [--json FILE] [--check]

The data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from _common import DATA

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _harness import Report, command_line
from widemax.data import Sequences
from widemax.ngrams import NGramModel
from widemax.vocabulary import Vocabulary

MODELS: dict[str, Callable[..., NGramModel]] = {
    "Kneser–Ney": NGramModel.kneser_ney,
    "modified Kneser–Ney": NGramModel.modified_kneser_ney,
}
MOST_SECONDS = 120.0


class Corpus(NamedTuple):
    name: str
    train: Sequences
    test: Sequences
    num_classes: int
    known: dict[tuple[str, int], float]
    tolerance: float


class Figure(NamedTuple):
    perplexity: float
    fit_seconds: float
    test_seconds: float

    @property
    def seconds(self) -> float:
        return self.fit_seconds + self.test_seconds


def penn_treebank() -> Corpus:
    lines = {
        part: [[*line.split(), "<eos>"] for line in (DATA / f"ptb/ptb.{part}.txt").open()]
        for part in ("train", "test")
    }
    vocabulary = Vocabulary.count([word for line in lines["train"] for word in line])
    train, test = (
        Sequences(
            vocabulary.encode([word for line in part for word in line]),
            torch.tensor([0, *map(len, part)]).cumsum(0),
        )
        for part in lines.values()
    )
    known = {
        ("Kneser–Ney", 3): 150.60,
        ("Kneser–Ney", 5): 143.51,
        ("modified Kneser–Ney", 3): 148.28,
        ("modified Kneser–Ney", 5): 141.19,
    }
    return Corpus("Penn Treebank", train, test, len(vocabulary), known, tolerance=0.02)


def brown() -> Corpus:
    words = (DATA / "brown/brown.txt").read_text().split()
    vocabulary = Vocabulary.count(words, min_count=4, unknown="<unk>")
    stream = vocabulary.encode(words)
    train, test = (
        Sequences(part, torch.tensor([0, len(part)]))
        for part in (stream[:800_000], stream[1_000_000:])
    )
    known = {("modified Kneser–Ney", 3): 332.6, ("modified Kneser–Ney", 5): 329.8}
    return Corpus("Brown", train, test, len(vocabulary), known, tolerance=0.1)


def measure(corpus: Corpus, name: str, order: int) -> Figure:
    start = time.perf_counter()
    model = MODELS[name](corpus.train, corpus.num_classes, order=order)
    fitted = time.perf_counter()
    perplexity = model.perplexity(corpus.test)
    return Figure(perplexity, fitted - start, time.perf_counter() - fitted)


def show(console: Console, corpus: Corpus, figures: dict[tuple[str, int], Figure]) -> None:
    title = (
        f"{corpus.name}: V = {corpus.num_classes:,}, {len(corpus.train.values):,} words to fit, "
        f"{len(corpus.test.values):,} to test"
    )
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("model")
    for column in ("order", "perplexity", "known", "fit s", "test s"):
        table.add_column(column, justify="right")
    for (name, order), figure in figures.items():
        known = corpus.known.get((name, order))
        table.add_row(
            name,
            str(order),
            f"{figure.perplexity:.2f}",
            "–" if known is None else f"{known:.2f}",
            f"{figure.fit_seconds:.2f}",
            f"{figure.test_seconds:.2f}",
        )
    console.print(table)


def add_bars(report: Report, corpus: Corpus, figures: dict[tuple[str, int], Figure]) -> None:
    for (name, order), figure in figures.items():
        report.add(f"{corpus.name}, perplexity, {name}, order {order}", figure.perplexity)
        known = corpus.known.get((name, order))
        if known is not None:
            off = abs(figure.perplexity - known)
            named = f"{corpus.name}, off the known {known:.2f}, {name}, order {order}"
            report.add(named, off, corpus.tolerance, "at most")
    seconds = sum(figure.seconds for figure in figures.values())
    report.add(f"{corpus.name}, seconds for all models", seconds, MOST_SECONDS, "at most")


def main() -> None:
    report = Report(command_line(__doc__.split("\n")[0] if __doc__ else None).parse_args())
    if not DATA.is_dir():
        print(f"nothing measured: there is no folder {DATA} (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(1)
    console = Console()
    for corpus in (penn_treebank(), brown()):
        figures = {
            (name, order): measure(corpus, name, order) for name in MODELS for order in (3, 5)
        }
        show(console, corpus, figures)
        add_bars(report, corpus, figures)
    report.finish()


if __name__ == "__main__":
    main()
