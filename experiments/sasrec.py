"""SASRec on Amazon Beauty and MovieLens, by commands that anybody can type.

Each row is a data set and a file of configs/, which holds the flags:

    widemax train beauty/beauty.txt --config experiments/configs/sasrec.toml --folder RUN
    widemax evaluate RUN --k 10 --json

    python experiments/sasrec.py [--rows beauty,ml1m] [--runs FOLDER] [--resume] [--check]

Each row is stored in results/sasrec.rows.json as soon as it is done, and the table in
results/sasrec.table.md; with --resume rows of the same configuration are not made again, and a
training that was stopped goes on where it was. The data are read from the folder WIDEMAX_DATA, by
default ../shared/data beside the checkout.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import DATA, widemax
from _harness import Report, command_line
from _stored import StoredRows, some_of

HERE = Path(__file__).resolve().parent
STORED, TABLE = StoredRows(HERE / "results/sasrec.rows.json"), HERE / "results/sasrec.table.md"


class Row(NamedTuple):
    """One training, and what its test must reach."""

    log: str
    config: str
    least_hit_rate: float | None = None
    least_ndcg: float | None = None

    @property
    def made_with(self) -> dict[str, Any]:
        """The whole configuration: what is usual with a model may change."""
        shown = widemax("train", str(DATA / self.log), *self.flags, "--print-config", "--json")
        settings = {name: each["value"] for name, each in json.loads(shown).items()}
        return {"log": self.log, "settings": settings}

    @property
    def flags(self) -> list[str]:
        return ["--config", str(HERE / "configs" / f"{self.config}.toml"), "--threads", "1"]


BEAUTY, ML1M, ML100K = "beauty/beauty.txt", "ml-1m/ml-1m.txt", "ml-100k/ml-100k.inter"
ROWS = {
    "beauty_knn": Row(BEAUTY, "item-knn"),
    "beauty": Row(BEAUTY, "sasrec", 0.053, 0.0327),
    "beauty_full": Row(BEAUTY, "sasrec-full", 0.050, 0.030),
    "ml1m_knn": Row(ML1M, "item-knn"),
    "ml1m": Row(ML1M, "sasrec", 0.30, 0.172),
    "ml1m_gbce": Row(ML1M, "sasrec-gbce"),
    "ml100k_knn": Row(ML100K, "item-knn"),
    "ml100k": Row(ML100K, "sasrec"),
    "ml100k_gbce": Row(ML100K, "sasrec-gbce"),
}


def measure(name: str, row: Row, runs: Path) -> None:
    """Train, or go on with a training, test once, and store what came out."""
    folder = runs / name
    widemax("train", str(DATA / row.log), *row.flags, "--folder", str(folder), "--resume")
    STORED.add(
        name, row.made_with, json.loads(widemax("evaluate", str(folder), "--k", "10", "--json"))
    )
    TABLE.write_text(markdown(stored(list(ROWS))))


def stored(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the rows made with the configurations of today."""
    return STORED.fitting({name: ROWS[name].made_with for name in names})


def markdown(done: dict[str, dict[str, Any]]) -> str:
    """Return the table of the test figures."""
    lines = ["| data | configuration | HR@10 | NDCG@10 |", "|---|---|---:|---:|"]
    for name, figures in done.items():
        row = ROWS[name]
        lines.append(
            f"| {row.log} | `configs/{row.config}.toml` | {figures['hit_rate@10']:.4f} "
            f"| {figures['ndcg@10']:.4f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=some_of(ROWS), default=list(ROWS), help="like beauty,ml1m")
    parser.add_argument("--runs", type=Path, help="where runs are kept; else nowhere")
    parser.add_argument("--resume", action="store_true", help="keep stored rows that fit")
    options = parser.parse_args()
    missing = [name for name in options.rows if not (DATA / ROWS[name].log).is_file()]
    if missing:
        print(f"nothing measured: there is no {ROWS[missing[0]].log} in {DATA} (set WIDEMAX_DATA)")
        return
    done = stored(options.rows) if options.resume else {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.rows:
            if name not in done:
                measure(name, ROWS[name], options.runs or Path(temporary))
    done = stored(options.rows)
    print(markdown(done))
    report = Report(options)
    for name, figures in done.items():
        report.add(f"{name}: HR@10", figures["hit_rate@10"], ROWS[name].least_hit_rate)
        report.add(f"{name}: NDCG@10", figures["ndcg@10"], ROWS[name].least_ndcg)
    report.finish()


if __name__ == "__main__":
    main()
