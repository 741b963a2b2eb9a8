"""MovieLens 1M and Gowalla: how many interests MIND pays for, by commands that anybody can type.

    widemax train ml-1m/ml-1m.txt --folder RUNS/mind_4-0 --model mind --num-interests 4 ...
    widemax evaluate RUNS/mind_4-0 --json

MovieLens 1M has 6,040 users and 3,416 films, in the order of time: the last film of 2,000 users
chooses the epoch, that of the other 4,040 is the test. Gowalla has 29,858 users and 40,981 places,
without an order, in three files. A user of n items has log2(n) interests at most, rounded down: 5
of the last 50 items. Rankings are over all items but those the user had. With --valid nobody looks
at the test, and nothing is stored.

    python experiments/interests.py [--rows mind_1,mind_4] [--runs FOLDER] [--resume] [--json FILE]
    python experiments/interests.py --valid [--rows youtube_dnn] [--with "--temperature 0.5"]

Each seed of a row is stored in results/interests.rows.json as soon as it is done, and the tables in
results/interests.table.md; with --resume those made by the same command are not made again, and a
training that was stopped goes on where it was. The data are read from the folder WIDEMAX_DATA, by
default ../shared/data beside the checkout.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import DATA, widemax
from _harness import Report, command_line
from _stored import StoredRows, some_of

FILMS = DATA / "ml-1m" / "ml-1m.txt"
PLACES = DATA / "gowalla" / "train.txt"
RESULTS = Path(__file__).resolve().parent / "results"
STORED, TABLE = StoredRows(RESULTS / "interests.rows.json"), RESULTS / "interests.table.md"
SEEDS = (0, 1, 2)
TUNING_SEED = 100
"""Settings are chosen with another seed than those of the table."""
SHOWN = ("recall@10", "recall@20", "recall@50", "ndcg@10", "ndcg@20")

_TRAINED = "--max-history 50 --learning-rate 0.002 --epochs 6 --patience 2 --threads 1"
_DOTS = (
    "--similarity dot --temperature 1 --no-bias --sampler uniform --optimizer adam --averaging 0"
)
"""What all of them had when interests were compared; cosines have become usual since."""
_ON_LISTS = "--split files --max-history 50 --learning-rate 0.002 --epochs 4 --threads 1"
"""A small budget, the same for every number of interests: far from trained to the end."""


@dataclass(frozen=True)
class Row:
    """One line of the table: the flags of a training."""

    title: str
    flags: str
    log: Path = FILMS

    def command(self, seed: int, folder: Path, more: str = "") -> list[str]:
        flags = f"{self.flags} {more} --seed {seed}".split()
        return ["train", str(self.log), "--folder", str(folder), *flags]


ROWS = {
    "popularity": Row("popularity", "--model popularity"),
    "youtube_dnn": Row(
        "YouTubeDNN", f"--model youtube-dnn {_TRAINED} {_DOTS} --own-negatives drawn"
    ),
    **{
        f"mind_{k}": Row(f"MIND, K = {k}", f"--model mind --num-interests {k} {_TRAINED} {_DOTS}")
        for k in (1, 2, 4, 8)
    },
    "sdm": Row("SDM", f"--model sdm {_TRAINED} --averaging 0"),
    **{
        f"gowalla_{k}": Row(
            f"MIND, K = {k}", f"--model mind --num-interests {k} {_ON_LISTS} {_DOTS}", PLACES
        )
        for k in (1, 2, 4, 8)
    },
}
"""In the order in which they are trained."""

Figures = Mapping[str, float]


def best_on_valid(folder: Path) -> Figures:
    """Return the figures of the checkpoint that a run chose."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    figures: list[dict[str, float]] = [json.loads(line) for line in lines]
    return max(figures, key=lambda each: each["ndcg@20"])


def trained(name: str, seed: int, runs: Path, more: str = "") -> Path:
    """Train one seed of a row, or go on with it, and return the folder of the run."""
    folder = runs / "-".join([name, str(seed), *more.replace("--", "").split()])
    widemax(*ROWS[name].command(seed, folder, more), "--resume")
    return folder


def stored_figures(names: Sequence[str]) -> dict[str, list[Figures]]:
    """Return what was stored for each row by the commands of today, a seed each."""
    keys = {name: [f"{name}, seed {seed}" for seed in SEEDS] for name in names}
    made_with = {key: {"flags": ROWS[name].flags} for name, own in keys.items() for key in own}
    fitting = STORED.fitting(made_with)
    done = {name: [fitting[key] for key in own if key in fitting] for name, own in keys.items()}
    return {name: figures for name, figures in done.items() if figures}


def markdown(done: Mapping[str, Sequence[Figures]]) -> str:
    """Return the tables of the test figures: means and standard deviations over seeds."""
    texts = {
        FILMS: "MovieLens 1M, the last film of 4,040 users among all films but those they had. "
        "`python experiments/interests.py`",
        PLACES: "Gowalla, the test places of 29,858 users among all places but those they had. "
        "`python experiments/interests.py`",
    }
    return "\n".join(
        _table(text, {name: done[name] for name in done if ROWS[name].log == log})
        for log, text in texts.items()
    )


def _table(text: str, done: Mapping[str, Sequence[Figures]]) -> str:
    titles = [name.replace("recall", "Recall").replace("ndcg", "NDCG") for name in SHOWN]
    lines = [
        text,
        "",
        f"| model | {' | '.join(titles)} | seeds | flags |",
        f"|---|{'---:|' * (len(SHOWN) + 1)}---|",
    ]
    for name, seeds in done.items():
        cells = " | ".join(_cell([each[figure] for each in seeds]) for figure in SHOWN)
        lines.append(f"| {ROWS[name].title} | {cells} | {len(seeds)} | `{ROWS[name].flags}` |")
    return "\n".join(lines) + "\n"


def _cell(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{spread}"


def add_bars(report: Report, done: Mapping[str, Sequence[Figures]]) -> None:
    # Without the row that the others are held to, their bars are NaN, which nothing keeps.
    for name, seeds in done.items():
        for figure in SHOWN:
            floor = mean_of(done["popularity"], figure) if "popularity" in done else math.nan
            least = None if name == "popularity" or ROWS[name].log != FILMS else floor
            report.add(f"{name}: {figure}", mean_of(seeds, figure), least)


def mean_of(seeds: Sequence[Figures], figure: str) -> float:
    return statistics.mean(each[figure] for each in seeds)


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=some_of(ROWS), default=list(ROWS), help="like mind_1,mind_4")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many of the seeds")
    parser.add_argument("--runs", type=Path, help="where runs are kept; else nowhere")
    parser.add_argument("--resume", action="store_true", help="keep stored rows that fit")
    parser.add_argument("--valid", action="store_true", help="judge on valid, store nothing")
    parser.add_argument("--with", default="", dest="more", help='flags to try, "--temperature 0.5"')
    options = parser.parse_args()
    if options.more and not options.valid:
        parser.error("--with is for --valid: rows are stored by the flags of the file")
    for log in {ROWS[name].log for name in options.rows}:
        if not log.is_file():
            print(f"nothing measured: there is no {log} (set WIDEMAX_DATA)")
            return
    with tempfile.TemporaryDirectory() as temporary:
        runs = options.runs or Path(temporary)
        if options.valid:
            for name in options.rows:
                figures = best_on_valid(trained(name, TUNING_SEED, runs, options.more))
                print(f"{ROWS[name].title} {options.more}: valid {figures}", flush=True)
            return
        for name in options.rows:
            measure(name, SEEDS[: options.seeds], runs, options.resume)
    done = stored_figures(list(ROWS) if options.resume else options.rows)
    print(markdown(done))
    report = Report(options)
    add_bars(report, done)
    report.finish()


def measure(name: str, seeds: Sequence[int], runs: Path, resume: bool) -> None:
    """Train and test the seeds of a row, each once, and store them."""
    there = len(stored_figures([name]).get(name, [])) if resume else 0
    for seed in seeds[there:]:
        print(f"{ROWS[name].title}, seed {seed}", flush=True)
        figures = json.loads(widemax("evaluate", str(trained(name, seed, runs)), "--json"))
        STORED.add(f"{name}, seed {seed}", {"flags": ROWS[name].flags}, figures)
        TABLE.write_text(markdown(stored_figures(list(ROWS))))


if __name__ == "__main__":
    main()
