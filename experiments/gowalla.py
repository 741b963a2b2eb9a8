"""Recommendations on Gowalla: a user as the mean of their items, Item2Vec, and what log Q is worth.

29,858 users, 40,981 places, the split of LightGCN. Vectors of 64 throughout. The first rows are
trained to the end; those with in-batch negatives differ in the correction alone, and share a
smaller budget. A model is fitted on train and valid, and asked once for the 20 best of all places,
without those that the user had, to be compared with their test places.

    python experiments/gowalla.py [--rows cosine,item2vec] [--resume] [--json FILE] [--check]
    python experiments/gowalla.py --valid [--rows cosine] [--with learning_rate=0.01 …]

Each row is stored in results/gowalla.rows.json as soon as it is done, and the table in
results/gowalla.table.md; with --resume rows of the same configuration are not trained again. With
--valid models are fitted on train and judged on valid as they learn, which is what their settings
were chosen by, and what other settings can be tried with: nothing is stored, and the test is not
looked at. The data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the
checkout.
"""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import DATA, some_users, values_of
from _gowalla import K, Stage, judge, load_gowalla
from _gowalla_rows import ABLATION, DIMENSION, ROWS, Row
from _harness import Report, command_line
from _stored import StoredRows, some_of
from widemax.models import Model

RESULTS = Path(__file__).resolve().parent / "results"
STORED, TABLE = StoredRows(RESULTS / "gowalla.rows.json"), RESULTS / "gowalla.table.md"
WATCHED_USERS, WATCH_EVERY = 10_000, 5


@dataclass(frozen=True)
class Figures:
    """What a row came to on the test; head, torso and tail hold a third of all check-ins each."""

    recall: float
    ndcg: float
    head_recall: float
    torso_recall: float
    tail_recall: float
    coverage: float
    """The share of places that anybody is shown."""
    train_seconds: float

    def text(self) -> str:
        parts = " / ".join(f"{x:.4f}" for x in self.by_popularity)
        return f"Recall@{K} {self.recall:.4f} ({parts})  NDCG@{K} {self.ndcg:.4f}"

    @property
    def by_popularity(self) -> tuple[float, float, float]:
        return self.head_recall, self.torso_recall, self.tail_recall


def figures_of(model: Model, stage: Stage, seconds: float) -> Figures:
    """Ask for the best of all places, and compare."""
    found = judge(model, stage.asked, stage.counts).metrics()
    return Figures(
        recall=found[f"recall@{K}"],
        ndcg=found[f"ndcg@{K}"],
        head_recall=found[f"head_recall@{K}"],
        torso_recall=found[f"torso_recall@{K}"],
        tail_recall=found[f"tail_recall@{K}"],
        coverage=found[f"coverage@{K}"],
        train_seconds=seconds,
    )


def measure(row: Row, stage: Stage) -> Figures:
    """Fit a row and judge it, once."""
    taken = 0.0

    def watch(model: Model, epoch: int, seconds: float) -> None:
        nonlocal taken
        taken = seconds
        print(f"  epoch {epoch:>3}  {seconds:7.0f} s", flush=True)

    model = row.setting.fit(stage, watch)
    return figures_of(model, stage, taken)


def watch_valid(row: Row, stage: Stage) -> None:
    """Fit a row on train alone, and tell how well it does on valid as it learns."""
    print(f"  {row.setting}", flush=True)
    watched = Stage(stage.train, some_users(stage.asked, WATCHED_USERS), stage.counts)

    def watch(model: Model, epoch: int, seconds: float) -> None:
        if epoch % WATCH_EVERY == 0 or epoch == row.setting.epochs:
            found = figures_of(model, watched, seconds)
            print(f"  epoch {epoch:>3}  {seconds:7.0f} s  valid {found.text()}", flush=True)

    row.setting.fit(stage, watch)


def configuration(row: Row) -> dict[str, Any]:
    """What stored figures must have been made with to be taken for this row's."""
    return {"model": type(row.setting).__name__, "dimension": DIMENSION, **asdict(row.setting)}


def stored_figures() -> dict[str, Figures]:
    """The stored figures that were made with the settings of today, in the order of the rows."""
    made_with = {name: configuration(row) for name, row in ROWS.items()}
    return {name: Figures(**row) for name, row in STORED.fitting(made_with).items()}


def store(name: str, figures: Figures) -> None:
    """Add a row to those of the file, and write the table anew."""
    STORED.add(name, configuration(ROWS[name]), asdict(figures))
    TABLE.write_text(markdown(stored_figures()))


def markdown(done: dict[str, Figures]) -> str:
    """The table: rows trained to the end first, then those of the comparison."""
    lines = [
        f"Gowalla, vectors of {DIMENSION}: test Recall@{K} and NDCG@{K} over all places, seen ones "
        "left out; Recall by popularity, where head, torso and tail hold a third of all check-ins "
        "each. `python experiments/gowalla.py`",
    ]
    for title, names in (
        ("trained to the end", [name for name in ROWS if name not in ABLATION]),
        ("in-batch negatives, one small budget", ABLATION),
    ):
        lines += [
            "",
            f"| {title} | Recall@{K} | NDCG@{K} | head | torso | tail | places shown | s | |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---|",
        ]
        for name in names:
            if name in done:
                lines.append(line_of(ROWS[name], done[name]))
    return "\n".join(lines) + "\n"


def line_of(row: Row, found: Figures) -> str:
    quality = " | ".join(f"{x:.4f}" for x in (found.recall, found.ndcg, *found.by_popularity))
    shown = f"{100 * found.coverage:.0f} %"
    note = f"{row.setting.told()}{'; ' if row.note else ''}{row.note}"
    return f"| {row.title} | {quality} | {shown} | {found.train_seconds:,.0f} | {note} |"


def add_bars(report: Report, done: dict[str, Figures]) -> None:
    for name, found in done.items():
        row = ROWS[name]
        least = row.least or (None, None)
        report.add(f"{row.title}: Recall@{K}", found.recall, least[0])
        report.add(f"{row.title}: NDCG@{K}", found.ndcg, least[1])
        if row.hoped:
            short = min(found.recall - row.hoped[0], found.ndcg - row.hoped[1])
            report.add(f"{row.title}: least above {row.hoped[0]:g} / {row.hoped[1]:g}", short)
    compared = [name for name in ABLATION if name in done]
    for name in compared:
        row, found = ROWS[name], done[name]
        for part, recall in zip(("head", "torso", "tail"), found.by_popularity, strict=True):
            report.add(f"{row.title}: Recall@{K}, {part}", recall)
    if compared:
        # Without the row that it is held to, the bar is NaN, which nothing keeps.
        with_log_q, without = (
            done[name].recall if name in done else math.nan
            for name in ("in_batch_log_q", "in_batch")
        )
        report.add("in-batch: Recall with log Q to none", with_log_q / without, 1.0)


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--rows", type=some_of(ROWS), default=list(ROWS), help="like cosine,item2vec"
    )
    parser.add_argument("--resume", action="store_true", help="keep stored rows that fit")
    parser.add_argument("--valid", action="store_true", help="judge on valid, store nothing")
    parser.add_argument(
        "--with", action="append", default=[], dest="changes", metavar="NAME=VALUE",
        help="another setting to try on valid",
    )  # fmt: skip
    options = parser.parse_args()
    if options.changes and not options.valid:
        parser.error("--with is for --valid: rows are stored by the settings of the file")
    data = load_gowalla()
    if data is None:
        print(f"nothing measured: there is no Gowalla in {DATA} (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(1)
    if options.valid:
        for name in options.rows:
            print(ROWS[name].title, flush=True)
            row = ROWS[name]
            changes = values_of(options.changes, asdict(row.setting))
            watch_valid(replace(row, setting=replace(row.setting, **changes)), data.tuning)
        return
    done = stored_figures() if options.resume else {}
    for name in options.rows:
        if name not in done:
            print(ROWS[name].title, flush=True)
            done[name] = measure(ROWS[name], data.final)
            store(name, done[name])
            print(f"  test {done[name].text()}", flush=True)
    done = {name: done[name] for name in ROWS if name in done}
    print(markdown(done))
    report = Report(options)
    add_bars(report, done)
    report.finish()


if __name__ == "__main__":
    main()
