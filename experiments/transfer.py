"""Do usual settings transfer? Chosen on all sets but one, what do they lose on that one?

Each model is trained with its usual settings and with variants, one change each, on MovieLens
100K, MovieLens 1M, Amazon Beauty and Gowalla, and judged by its own metric on the validation part:
the test is not looked at. For each set in turn, the variant is taken that is best on the others
(the mean of its metric, relative to that of the usual settings), and compared with the one
that is best on the set itself. Budgets are small, the same for all variants of a set.

    python experiments/transfer.py [--models youtube-dnn,sasrec] [--sets ml-100k,beauty] [--check]

Every cell is one command, which is shown, and is stored in results/transfer.rows.json as soon as it
is done; cells of the same flags are not trained again. The table is results/transfer.table.md. The
data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import DATA, widemax
from _harness import Report, command_line
from _stored import StoredRows, some_of

RESULTS = Path(__file__).resolve().parent / "results"
STORED, TABLE = StoredRows(RESULTS / "transfer.rows.json"), RESULTS / "transfer.table.md"
MOST_LOST = 0.05

SETS = {
    "ml-100k": ("ml-100k/ml-100k.inter", "--split last"),
    "ml-1m": ("ml-1m/ml-1m.txt", "--split last"),
    "beauty": ("beauty/beauty.txt", "--split last"),
    "gowalla": ("gowalla", "--split files"),
}
"""Where a set lies, and how it is split."""

BUDGETS = {
    ("youtube-dnn", "ml-100k"): "--epochs 10",
    ("youtube-dnn", "ml-1m"): "--epochs 2",
    ("youtube-dnn", "beauty"): "--epochs 8",
    ("youtube-dnn", "gowalla"): "--epochs 2",
    ("sasrec", "ml-100k"): "--steps 1200",
    ("sasrec", "ml-1m"): "--steps 1200",
    ("sasrec", "beauty"): "--steps 1200",
}
"""Sets of items without an order are nothing for a model of sequences."""

VARIANTS = {
    "youtube-dnn": (
        "",
        "--temperature 0.1",
        "--temperature 0.14",
        "--own-negatives drawn",
        "--tied",
        "--optimizer adam --averaging 0",
    ),
    "sasrec": (
        "",
        "--temperature 0.06",
        "--temperature 0.1",
        "--item-scale 8",
        "--learning-rate 0.004",
    ),
}

Cells = dict[tuple[str, str], float]
"""The metric of each set and variant of one model."""


def flags_of(model: str, name: str, variant: str) -> str:
    """The flags of one cell: the split, the budget, and the change."""
    budget = f"--patience 0 --validation-size 40000 {BUDGETS[model, name]}"
    return f"--model {model} {SETS[name][1]} {budget} {variant}".strip()


def measured(model: str, name: str, variant: str) -> float:
    """Train one cell and return the best of its validations."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        source = str(DATA / SETS[name][0])
        flags = [*flags_of(model, name, variant).split(), "--threads", "1"]
        words = ["train", source, "--folder", str(run), *flags]
        print(f"$ widemax {shlex.join(words)}", flush=True)
        widemax(*words)
        lines = (run / "metrics.jsonl").read_text().splitlines()
    metric = "ndcg@10" if model == "sasrec" else "ndcg@20"
    return max(json.loads(line)[metric] for line in lines)


def cells_of(model: str, names: list[str]) -> Cells:
    """Return the cells of a model, those that are stored as they are."""
    cells: Cells = {}
    for name in names:
        for variant in VARIANTS[model]:
            key, made_with = (
                f"{model}, {name}, {variant}",
                {"flags": flags_of(model, name, variant)},
            )
            stored = STORED.fitting({key: made_with})
            if key not in stored:
                STORED.add(key, made_with, {"metric": measured(model, name, variant)})
                stored = STORED.fitting({key: made_with})
            cells[name, variant] = stored[key]["metric"]
            print(f"{key}: {cells[name, variant]:.4f}", flush=True)
    return cells


def chosen_without(cells: Cells, left_out: str) -> str:
    """Return the variant that is best on all sets but one."""
    names, variants = _names(cells), _variants(cells)

    def gain(variant: str) -> float:
        return statistics.mean(
            cells[name, variant] / cells[name, ""] for name in names if name != left_out
        )

    return max(variants, key=gain)


def best_on(cells: Cells, name: str) -> str:
    """Return the variant that is best on a set."""
    return max(_variants(cells), key=lambda variant: cells[name, variant])


def lost_on(cells: Cells, name: str) -> float:
    """Return what the variant that was chosen elsewhere loses on a set, as a share."""
    return 1 - cells[name, chosen_without(cells, name)] / cells[name, best_on(cells, name)]


def _names(cells: Cells) -> list[str]:
    return list(dict.fromkeys(name for name, _ in cells))


def _variants(cells: Cells) -> list[str]:
    return list(dict.fromkeys(variant for _, variant in cells))


def markdown(done: Mapping[str, Cells]) -> str:
    lines = []
    for model, cells in done.items():
        names = _names(cells)
        metric = "NDCG@10" if model == "sasrec" else "NDCG@20"
        lines += [
            f"`{model}`, validation {metric}. `python experiments/transfer.py --models {model}`",
            "",
            f"| variant | {' | '.join(names)} |",
            f"|---|{'---:|' * len(names)}",
        ]
        for variant in _variants(cells):
            figures = " | ".join(f"{cells[name, variant]:.4f}" for name in names)
            lines.append(f"| {_shown(variant)} | {figures} |")
        elsewhere = " | ".join(_shown(chosen_without(cells, name)) for name in names)
        lost = " | ".join(f"{100 * lost_on(cells, name):.1f} %" for name in names)
        first = " | ".join(
            f"{100 * (1 - cells[name, ''] / cells[name, best_on(cells, name)]):.1f} %"
            for name in names
        )
        lines += [
            f"| *chosen on the other sets* | {elsewhere} |",
            f"| *what it loses against the best here* | {lost} |",
            f"| *what the usual settings lose* | {first} |",
            "",
        ]
    return "\n".join(lines)


def _shown(variant: str) -> str:
    return f"`{variant}`" if variant else "as usual"


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--models", type=some_of(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--sets", type=some_of(SETS), default=list(SETS))
    options = parser.parse_args()
    missing = [name for name in options.sets if not (DATA / SETS[name][0]).exists()]
    if missing:
        print(f"nothing measured: there is no {missing[0]} in {DATA} (set WIDEMAX_DATA)")
        return
    done = {}
    for model in options.models:
        names = [name for name in options.sets if (model, name) in BUDGETS]
        done[model] = cells_of(model, names)
    if options.sets == list(SETS) and options.models == list(VARIANTS):
        TABLE.write_text(markdown(done))
    print(markdown(done))
    report = Report(options)
    for model, cells in done.items():
        for name in _names(cells):
            report.add(f"{model}: lost on {name}", lost_on(cells, name), MOST_LOST, "at most")
    report.finish()


if __name__ == "__main__":
    main()
