"""Is the checkpoint that validation chose as good on the test as the last one?

Trains every model as by its default flags, on MovieLens 100K, MovieLens 1M, Amazon Beauty and
Gowalla, and asks the test twice: of the checkpoint that was chosen, and of the last. Where the
chosen one is far behind, the noise of the validations has cost something.

    python experiments/chosen_checkpoints.py [--rows ml-100k/sasrec,gowalla/youtube-dnn] [--check]

A run that is finished is not trained again. The data are read from the folder WIDEMAX_DATA, by
default ../shared/data beside the checkout.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _commands import figures_at, train
from _common import DATA
from _harness import Report, command_line
from _stored import StoredRows, some_of
from defaults import TRAINED

RESULTS = Path(__file__).resolve().parent / "results"
STORED = StoredRows(RESULTS / "chosen_checkpoints.rows.json")
TABLE = RESULTS / "chosen_checkpoints.table.md"
LEAST = 0.98
"""Of the last checkpoint's NDCG, the share that the chosen one must have."""


@dataclass(frozen=True)
class Row:
    """A training, and the length of the lists that it is judged by."""

    source: str
    model: str
    split: str
    k: int


ROWS = {f"ml-100k/{model}": Row("ml-100k/ml-100k.inter", model, "last", 20) for model in TRAINED}
ROWS |= {
    "beauty/sasrec": Row("beauty/beauty.txt", "sasrec", "last", 10),
    "ml-1m/sasrec": Row("ml-1m/ml-1m.txt", "sasrec", "last", 10),
    "gowalla/youtube-dnn": Row("gowalla", "youtube-dnn", "files", 20),
}


def measured(name: str, row: Row) -> dict[str, Any]:
    """Train, and ask the test of the chosen checkpoint and of the last."""
    run = f"chosen-{name.replace('/', '-')}"
    seconds = train(DATA / row.source, run, "--model", row.model, "--split", row.split)
    found: dict[str, Any] = {"k": row.k, "seconds": seconds}
    for which in ("best", "last"):
        figures = figures_at(run, "--checkpoint", which, "-k", row.k)
        found |= {f"{which} {key}": figures[key] for key in ("step", *(metrics(row.k)))}
    return found


def metrics(k: int) -> tuple[str, str]:
    return f"recall@{k}", f"ndcg@{k}"


def markdown(done: dict[str, dict[str, Any]]) -> str:
    lines = [
        "Test figures of the checkpoint that validation chose, and of the last one. "
        "`python experiments/chosen_checkpoints.py`",
        "",
        "| run | k | chosen step | Recall@k | NDCG@k | last step | Recall@k | NDCG@k |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in done.items():
        cells = [
            f"{row[f'{which} step']:,} | "
            + " | ".join(f"{row[f'{which} {key}']:.4f}" for key in metrics(row["k"]))
            for which in ("best", "last")
        ]
        lines.append(f"| {name} | {row['k']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=some_of(ROWS), default=list(ROWS))
    options = parser.parse_args()
    if not DATA.is_dir():
        print(f"nothing measured: there are no data in {DATA} (set WIDEMAX_DATA)")
        return
    for name in options.rows:
        STORED.add(name, {}, measured(name, ROWS[name]))
    done = STORED.fitting({name: {} for name in ROWS})
    TABLE.write_text(markdown(done))
    print(markdown(done))
    report = Report(options)
    for name, row in done.items():
        key = metrics(row["k"])[1]
        report.add(f"{name}: {key}, chosen / last", row[f"best {key}"] / row[f"last {key}"], LEAST)
    report.finish()


if __name__ == "__main__":
    main()
