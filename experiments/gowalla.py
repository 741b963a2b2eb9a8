"""Recommendations on Gowalla: a user as the mean of their items, Item2Vec, and what log Q is worth.

29,858 users, 40,981 places, the split of LightGCN. Every row is two commands, which are shown:
`widemax train` and `widemax evaluate`, which asks once for the 20 best of all places, without those
that the user had. The first rows have the usual settings of their models, and --refit: they choose
how long to train on the valid file and then fit train and valid together. Those with in-batch
negatives differ in the correction alone, and share a small budget (configs/gowalla-in-batch.toml):
a minute or so each, far from trained to the end.

    python experiments/gowalla.py [--rows youtube-dnn,item2vec] [--json FILE] [--check]

Each row is stored in results/gowalla.rows.json as soon as it is done, and the table in
results/gowalla.table.md. A run that is there already is continued, not trained again. The data are
read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _commands import CONFIGS, figures_at, train
from _common import DATA
from _harness import Report, command_line
from _stored import StoredRows, some_of

RESULTS = Path(__file__).resolve().parent / "results"
STORED, TABLE = StoredRows(RESULTS / "gowalla.rows.json"), RESULTS / "gowalla.table.md"
SHOWN = ("recall@20", "ndcg@20", *(f"{part}_recall@20" for part in ("head", "torso", "tail")))
_USUAL = "--split files --refit"
_IN_BATCH = f"--config {CONFIGS / 'gowalla-in-batch.toml'} --patience 0"


@dataclass(frozen=True)
class Row:
    """One line of the table: the flags of a training, and what it must reach."""

    title: str
    flags: str
    least: tuple[float, float] | None = None
    """Recall@20 and NDCG@20."""


ROWS = {
    "youtube-dnn": Row("YouTubeDNN", f"{_USUAL} --model youtube-dnn", least=(0.186, 0.155)),
    "item2vec": Row("Item2Vec", f"{_USUAL} --model item2vec", least=(0.1326, 0.1057)),
    "in_batch": Row("in-batch, no correction", f"{_IN_BATCH} --objective info-nce"),
    "in_batch_log_q": Row("in-batch, log Q", _IN_BATCH),
    "in_batch_corrected": Row(
        "in-batch, corrected log Q", f"{_IN_BATCH} --objective corrected-log-q"
    ),
    "mixed_log_q": Row(
        "half in-batch, half uniform, log Q",
        f"{_IN_BATCH} --sampler mixture --mixture in-batch=1,uniform=1 --num-samples 512",
    ),
}


def markdown(done: dict[str, dict[str, Any]]) -> str:
    lines = [
        "Gowalla: test Recall@20 and NDCG@20 over all places, seen ones left out; head, torso and "
        "tail are Recall@20 of thirds of the check-ins by popularity. "
        "`python experiments/gowalla.py`",
        "",
        "| | Recall@20 | NDCG@20 | head | torso | tail | places shown | s | `widemax train` with |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, found in done.items():
        figures = " | ".join(f"{found[key]:.4f}" for key in SHOWN)
        shown = f"{100 * found['coverage@20']:.0f} % | {found['seconds']:,.0f}"
        flags = ROWS[name].flags.replace(f"{CONFIGS.parent.parent}/", "")
        lines.append(f"| {ROWS[name].title} | {figures} | {shown} | `{flags}` |")
    return "\n".join(lines) + "\n"


def add_bars(report: Report, done: dict[str, dict[str, Any]]) -> None:
    for name, found in done.items():
        row = ROWS[name]
        least = row.least or (None, None)
        report.add(f"{row.title}: Recall@20", found["recall@20"], least[0])
        report.add(f"{row.title}: NDCG@20", found["ndcg@20"], least[1])
    if "in_batch" in done:
        # Without the row that it is held to, the bar is NaN, which nothing keeps.
        corrected = done.get("in_batch_log_q", {}).get("recall@20", math.nan)
        ratio = corrected / done["in_batch"]["recall@20"]
        report.add("in-batch: Recall with log Q to none", ratio, 1.0)


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=some_of(ROWS), default=list(ROWS))
    options = parser.parse_args()
    if not (DATA / "gowalla").is_dir():
        print(f"nothing measured: there is no Gowalla in {DATA} (set WIDEMAX_DATA)")
        return
    made_with = {name: {"flags": row.flags.split("configs/")[-1]} for name, row in ROWS.items()}
    for name in options.rows:
        run, flags = f"gowalla-{name}", (*ROWS[name].flags.split(), "--threads", 1)
        seconds = train(DATA / "gowalla", run, *flags)
        found = figures_at(run, "--by", "popularity", "-k", 20)
        STORED.add(name, made_with[name], {**found, "seconds": seconds})
    done = STORED.fitting(made_with)
    TABLE.write_text(markdown(done))
    print(markdown(done))
    report = Report(options)
    add_bars(report, done)
    report.finish()


if __name__ == "__main__":
    main()
