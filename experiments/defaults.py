"""Every retrieval model on MovieLens 100K with its default flags, against popularity and item-kNN.

943 users, 1,682 films with features. The last film of a user is the test, the one before it chooses
the checkpoint; a model gets no flag but that split. Recall@20 and its standard error are over the
users: one film is asked of each, so that the error is √(p·(1 − p) / users).

    python experiments/defaults.py [--models youtube-dnn,eges] [--json FILE] [--check]

A run that is finished is not trained again (its time is then that of reading it): delete its folder
to repeat it. The data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the
checkout.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _commands import figures_of
from _common import DATA
from _harness import Report, command_line
from _stored import StoredRows, some_of

FITTED = ("popularity", "item-knn", "ease", "ials")
TRAINED = (
    "youtube-dnn", "two-tower", "mind", "sdm", "sasrec", "next-item", "item2vec", "airbnb", "eges",
    "airbnb-types",
)  # fmt: skip
MODELS = (*FITTED, *TRAINED)
RESULTS = Path(__file__).resolve().parent / "results"
STORED, TABLE = StoredRows(RESULTS / "defaults.rows.json"), RESULTS / "defaults.table.md"
LONGEST = 600.0
"""Seconds that a default run may take."""


def error_of(recall: float, users: int) -> float:
    """The standard error of a share of the users."""
    return math.sqrt(recall * (1 - recall) / users)


def markdown(done: dict[str, dict[str, float]]) -> str:
    lines = [
        "MovieLens 100K, the last film of each user, default flags of each model. "
        "`python experiments/defaults.py`",
        "",
        "| model | Recall@10 | Recall@20 | NDCG@20 | s |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in done.items():
        ten, twenty = (
            f"{row[key]:.4f} ± {error_of(row[key], int(row['users'])):.4f}"
            for key in ("recall@10", "recall@20")
        )
        lines.append(f"| {name} | {ten} | {twenty} | {row['ndcg@20']:.4f} | {row['seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def add_bars(report: Report, done: dict[str, dict[str, float]]) -> None:
    """Above popularity by two standard errors; what is trained also above item-kNN."""
    # Without the rows that they are held to, bars are NaN, which nothing keeps.
    popularity, neighbours = (
        done.get(name, {}).get("recall@20", math.nan) for name in ("popularity", "item-knn")
    )
    for name, row in done.items():
        if name == "popularity":
            continue
        least = popularity + 2 * error_of(popularity, int(row["users"]))
        if name in TRAINED:
            least = max(least, neighbours)
        report.add(f"{name}: Recall@20", row["recall@20"], least)
        report.add(f"{name}: seconds", row["seconds"], LONGEST, "at most")


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--models", type=some_of(MODELS), default=list(MODELS))
    options = parser.parse_args()
    source = DATA / "ml-100k" / "ml-100k.inter"
    if not source.is_file():
        print(f"nothing measured: there is no MovieLens 100K in {DATA} (set WIDEMAX_DATA)")
        return
    for name in options.models:
        flags = ("--model", name, "--split", "last", "--threads", 1)
        row = figures_of(source, f"defaults-{name}", *flags)
        STORED.add(name, {}, row)
        print(f"{name}: Recall@20 {row['recall@20']:.4f} in {row['seconds']:.0f} s", flush=True)
    done = STORED.fitting({name: {} for name in MODELS})
    TABLE.write_text(markdown(done))
    print(markdown(done))
    report = Report(options)
    add_bars(report, done)
    report.finish()


if __name__ == "__main__":
    main()
