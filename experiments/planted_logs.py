"""Does the default for a log keep up with simple rules on logs that nobody tuned it for?

Logs are simulated whose truth is known: users have a few of many tastes, items of a taste are
chosen by popularity. What differs is what the default must find out by itself: how much there is
to learn from, how long a taste lasts, whether what follows an item is another thing than what
comes before it, and whether there is any taste but one of all. The last item of each user is the
test; no flag is given but the split.

    python experiments/planted_logs.py [--logs few,drift] [--check]

`--check` wants an NDCG@20 of at least that of item-knn less a standard error, and above popularity,
of "popular" of popularity less a standard error.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _commands import RUNS, figures_of
from _harness import Report, command_line
from _stored import StoredRows, some_of

RESULTS = Path(__file__).resolve().parent / "results"
STORED, TABLE = StoredRows(RESULTS / "planted_logs.rows.json"), RESULTS / "planted_logs.table.md"
RULES = ("popularity", "item-knn", "ease")
_START = 1_600_000_000


@dataclass(frozen=True)
class World:
    """A log to simulate: tastes that items have one of each, and users a few."""

    users: int
    items: int
    tastes: int
    each: int
    """Tastes of a user."""
    length: int
    """Items of a user, on average."""
    drift: float = 0.0
    """How often a user's tastes are drawn anew."""
    stays: float = 0.0
    """How often the next item is of the same taste, besides by chance."""
    follows: float = 0.0
    """How often the next item is the one follower of the last."""
    seed: int = 0


WORLDS = {
    "few": World(400, 320, 16, 2, 20),
    "many": World(2000, 2000, 40, 3, 20, seed=1),
    "long": World(800, 1000, 20, 3, 60, seed=2),
    "sparse": World(3000, 5000, 60, 2, 7, seed=5),
    "blocks": World(1000, 800, 25, 3, 40, stays=0.8, seed=3),
    "drift": World(1500, 1200, 30, 2, 40, drift=0.1, seed=4),
    "followers": World(1000, 700, 20, 2, 20, follows=0.5, seed=7),
    "popular": World(1500, 600, 1, 1, 15, seed=8),
}
_NOISE = 0.1


def choices(world: World, draw: np.random.Generator) -> Iterator[tuple[str, str, int]]:
    """Yield who chose what and when; nobody chooses an item twice."""
    groups = np.array_split(draw.permutation(world.items), world.tastes)
    popularity = 1 / draw.permutation(np.arange(1, world.items + 1)) ** 0.8
    follower = draw.permutation(world.items)
    for user in range(world.users):
        tastes, time = draw.choice(world.tastes, world.each, replace=False), _START
        shares, taste, item, had = draw.dirichlet(np.ones(world.each)), 0, -1, set()
        time += int(draw.integers(20_000_000))
        for _ in range(max(4, int(draw.exponential(world.length)))):
            if draw.random() < world.drift:
                tastes = draw.choice(world.tastes, world.each, replace=False)
            if draw.random() >= world.stays:
                taste = draw.choice(world.each, p=shares)
            if item >= 0 and draw.random() < world.follows:
                item = int(follower[item])
            else:
                among = np.arange(world.items) if draw.random() < _NOISE else groups[tastes[taste]]
                item = int(draw.choice(among, p=popularity[among] / popularity[among].sum()))
            time += int(draw.exponential(36_000)) + 1
            if item not in had:
                had.add(item)
                yield f"u{user}", f"i{item}", time


def measured(name: str, world: World, folder: Path) -> dict[str, Any]:
    """Train by default and by simple rules; return the figures of all on the test."""
    log = folder / f"{name}.parquet"
    rows = list(choices(world, np.random.default_rng(world.seed)))
    pl.DataFrame(rows, schema=["user", "item", "time"], orient="row").write_parquet(log)
    found: dict[str, Any] = {"interactions": len(rows)}
    for model in ("auto", *RULES):
        run = f"planted-{folder.name}-{name}-{model}"
        figures = figures_of(log, run, "--model", model, "--split", "last", "--threads", 1, ks=[20])
        found |= {f"{model} {key}": figures[key] for key in ("recall@20", "ndcg@20", "seconds")}
        found["error"] = figures["standard_errors"]["ndcg@20"]
    return found


def markdown(done: dict[str, dict[str, Any]]) -> str:
    lines = [
        "Simulated logs, the last item of each user, default flags: Recall@20 / NDCG@20. "
        "`python experiments/planted_logs.py`",
        "",
        "| log | interactions | popularity | item-knn | ease | default | ± | s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in done.items():
        cells = " | ".join(
            f"{row[f'{model} recall@20']:.3f} / {row[f'{model} ndcg@20']:.3f}"
            for model in (*RULES, "auto")
        )
        lines.append(
            f"| {name} | {row['interactions']:,} | {cells} | {row['error']:.3f} "
            f"| {row['auto seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--logs", type=some_of(WORLDS), default=list(WORLDS))
    options = parser.parse_args()
    RUNS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RUNS) as folder:
        for name in options.logs:
            STORED.add(name, {}, measured(name, WORLDS[name], Path(folder)))
    done = STORED.fitting({name: {} for name in WORLDS})
    TABLE.write_text(markdown(done))
    print(markdown(done))
    report = Report(options)
    for name, row in done.items():
        # Nothing can be above popularity where that is all there is.
        allowed = row["error"] if WORLDS[name].tastes == 1 else 0.0
        least = max(row["item-knn ndcg@20"] - row["error"], row["popularity ndcg@20"] - allowed)
        report.add(f"{name}: NDCG@20", row["auto ndcg@20"], least if least else math.nan)
    report.finish()


if __name__ == "__main__":
    main()
