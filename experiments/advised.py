"""Is the setting that `widemax advise` gives, trained, as good as the best of a comparison?

For MovieLens 100K, MovieLens 1M (the last film of a user) and the Penn Treebank (its own files,
with `--needs probabilities`): `advise` writes a configuration, `compare` races output layers of its
usual model for five minutes, `train --config` trains what was advised for at most ten. Shown are
the test figures of the best contender, of the contender that has the advised output layer, and of
the advised training.

    python experiments/advised.py [--sources ml-100k,ptb] [--budget 5m] [--seed 0] [--check]

A comparison or run that is finished is not made again. The test is asked once of each. The data are
read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import json
import math
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _commands import RUNS, figures_at, shown, train
from _common import DATA
from _harness import Report, command_line
from _stored import StoredRows, some_of

RESULTS = Path(__file__).resolve().parent / "results"
STORED = StoredRows(RESULTS / "advised.rows.json")
TABLE = RESULTS / "advised.table.md"
LEAST = 0.95
"""Of the best contender's figure, the share that the advised setting must have."""


SECONDS = 600
"""How long what was advised trains at most."""


@dataclass(frozen=True)
class Source:
    """Some data, how they are split, and what is needed of the model."""

    path: str
    flags: tuple[str, ...]
    metric: str


SOURCES = {
    "ml-100k": Source("ml-100k/ml-100k.inter", ("--split", "last"), "ndcg@20"),
    "ml-1m": Source("ml-1m/ml-1m.txt", ("--split", "last"), "ndcg@20"),
    "ptb": Source("ptb", ("--split", "files"), "perplexity"),
}


def measured(name: str, source: Source, budget: str, seed: int) -> dict[str, Any]:
    """Ask for advice, race, train what was advised, and ask the test of all of them."""
    path, file = str(DATA / source.path), RUNS / f"advised-{name}.toml"
    needs = ("--needs", "probabilities") if source.metric == "perplexity" else ()
    RUNS.mkdir(parents=True, exist_ok=True)
    shown("advise", path, *source.flags, *needs, "--out", str(file))
    advice = tomllib.loads(file.read_text())
    race = RUNS / f"race-{name}-{seed}"
    flags = ("--budget", budget, "--seed", str(seed), *source.flags)
    standings = json.loads(
        shown("compare", path, *flags, "--folder", str(race), "--resume", "--json")
    )
    run = f"advised-{name}-{seed}"
    seconds = train(Path(path), run, "--config", file, "--seed", seed, "--time-budget", SECONDS)
    able = [each for each in standings if not each["failed"]]
    layer = advice["head"]
    if layer == "sampled":
        layer = f"{advice['objective']}, {advice['sampler']}"
    same = [figure(each["test"], source.metric) for each in able if each["name"] == layer]
    best = best_of(able, source.metric)
    return {
        "metric": source.metric,
        "model": advice["model"],
        "layer": layer,
        "contenders": len(able),
        "best name": best["name"],
        "best": figure(best["test"], source.metric),
        "advised contender": same[0] if same else math.nan,
        "advised": figure(figures_at(run), source.metric),
        "seconds": seconds,
    }


def best_of(standings: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Return the contender with the best test figure, whichever was first in validation."""
    sign = 1 if metric == "perplexity" else -1
    return min(standings, key=lambda each: sign * figure(each["test"], metric))


def figure(found: dict[str, float], metric: str) -> float:
    """Return a metric of some figures; a comparison has the loss, not the perplexity."""
    return math.exp(found["loss"]) if metric == "perplexity" else found[metric]


def share(row: dict[str, Any]) -> float:
    """Return how good the advised setting is, by that of the best contender."""
    return (
        row["best"] / row["advised"]
        if row["metric"] == "perplexity"
        else row["advised"] / row["best"]
    )


def markdown(done: dict[str, dict[str, Any]]) -> str:
    lines = [
        "Test figures of what `widemax advise` gives, trained, and of a race of five minutes. "
        "`python experiments/advised.py`",
        "",
        "| data | metric | advised | best contender | of so many | the advised layer in the race "
        "| advised, trained | by the best |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in done.items():
        digits = 1 if row["metric"] == "perplexity" else 4
        best, raced, trained = (
            f"{row[key]:.{digits}f}" for key in ("best", "advised contender", "advised")
        )
        lines.append(
            f"| {name} | {row['metric']} | {row['model']}, {row['layer']} "
            f"| {best} ({row['best name']}) | {row['contenders']} | {raced} | {trained} "
            f"| {share(row):.3f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--sources", type=some_of(SOURCES), default=list(SOURCES))
    parser.add_argument("--budget", default="5m", help="time of a comparison")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not DATA.is_dir():
        print(f"nothing measured: there are no data in {DATA} (set WIDEMAX_DATA)")
        return
    for name in options.sources:
        STORED.add(name, {}, measured(name, SOURCES[name], options.budget, options.seed))
    done = STORED.fitting({name: {} for name in SOURCES})
    TABLE.write_text(markdown(done))
    print(markdown(done))
    report = Report(options)
    for name, row in done.items():
        report.add(f"{name}: {row['metric']}, advised by the best contender", share(row), LEAST)
    report.finish()


if __name__ == "__main__":
    main()
