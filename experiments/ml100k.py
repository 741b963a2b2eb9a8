"""MovieLens 100K: all retrieval models and simple recommenders on one split, and films nobody saw.

943 users, 1,682 films. The last film of a user is the test, the one before it chooses the epoch;
rankings are over all films but those the user had. Models have the library's defaults but for the
settings listed in ROWS; what is known of users and films goes to the models that take it. Figures
are means over seeds, with their standard deviation.

The last rows are trained without a tenth of the films, another one for each seed. Users whose test
film is one of them are asked: how often is it among the best k of the whole catalogue, in which new
films compete with all others? By chance that is k out of the films that a user has not had.

    python experiments/ml100k.py [--rows mind_1,mind_4] [--resume] [--json FILE] [--check]
    python experiments/ml100k.py --valid [--rows mind_1] [--with max_history=50 …]

Each seed of a row is stored in results/ml100k.rows.json as soon as it is done, and the table in
results/ml100k.table.md; with --resume those of the same configuration are not trained again. With
--valid rows are judged on valid alone, new films on another choice of them and on what training
lost of it: nothing is stored, and the test is not looked at. The data are read from the folder
WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import values_of
from _harness import Report, command_line
from _ml100k import KS, LOG, Figures, by_chance, judge, load_films, train, with_new_films
from _stored import StoredRows, some_of
from widemax.config.config import Config
from widemax.config.fitting import switched_off

RESULTS = Path(__file__).resolve().parent / "results"
STORED, TABLE = StoredRows(RESULTS / "ml100k.rows.json"), RESULTS / "ml100k.table.md"
SEEDS = (0, 1, 2)
TUNING_SEED = 100
"""Of the new films that settings are chosen by: none of those the table is made with."""
NEW_SHARE = 0.1
NEW_K = 50
LEAST_TO_CHANCE = 5.0
SHOWN = ("recall@10", "recall@20", "recall@50", "ndcg@10", "ndcg@20")


@dataclass(frozen=True)
class Row:
    """One line of a table: a model, and what of its usual settings is changed."""

    title: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] = SEEDS
    new_films: bool = False

    def config(self, seed: int) -> Config:
        return Config(model=self.model, seed=seed, threads=1, **self.settings)

    def told(self) -> str:
        """What is changed, in a few words."""
        return ", ".join(f"{name} {value}" for name, value in self.settings.items())


_LAST_TEN = {"max_history": 10}
"""Of long histories the end tells most of what comes next."""
_SOFTMAX = {**_LAST_TEN, "learning_rate": 0.002, "epochs": 40, "patience": 5}
_PLAIN = {"optimizer": "adam", "averaging": 0.0}
"""By rows and without a mean of the weights, as these models were usually trained once."""
_DOTS = {**_PLAIN, "similarity": "dot", "temperature": 1.0, "bias": False, "sampler": "uniform"}
"""Before they had cosines, too."""
_SASREC = {
    **_DOTS,
    "sampler": "log-uniform",
    "block": "sasrec",
    "expansion": 1,
    "num_attention_heads": 1,
    "item_scale": 1.0,
    "max_history": 50,
    "dropout": 0.3,
    "dropout_targets": 0,
    "num_samples": 800,
    "batch_size": 512,
    "learning_rate": 0.001,
    "schedule": "constant",
    "metric": "ndcg@20",
    "steps": 0,
    "epochs": 100,
    "patience": 8,
}
"""As its authors have it, not as it is usually trained here (see retrieval.md)."""
_FEW = {**_SOFTMAX, "epochs": 12, "patience": 3}
_MIND = {**_FEW, **_DOTS}
_EGES = {"learning_rate": 0.1, "epochs": 6, "walks": 10, "window": 3, "patience": 0}

ROWS = {
    "popularity": Row("popularity", "popularity", seeds=(0,)),
    "item_knn": Row("item-kNN", "item-knn", seeds=(0,)),
    "ease": Row("EASE", "ease", seeds=(0,)),
    "ials": Row("iALS", "ials"),
    "item2vec": Row("Item2Vec", "item2vec", {**_LAST_TEN, "epochs": 20, "patience": 0}),
    "airbnb": Row(
        "Airbnb",
        "airbnb",
        {
            "max_history": 2,
            "dimension": 64,
            "distortion": 0.0,
            "learning_rate": 0.2,
            "epochs": 3,
            "patience": 0,
        },
    ),
    "eges": Row("EGES", "eges", {**_EGES, "learning_rate": 0.2, "epochs": 24, "max_history": 5}),
    "youtube_dnn": Row(
        "YouTubeDNN",
        "youtube-dnn",
        {**_SOFTMAX, **_DOTS, "example_age": "off", "own_negatives": "drawn"},
    ),
    "two_tower": Row("two-tower", "two-tower", {**_SOFTMAX, **_PLAIN}),
    "mind_1": Row("MIND, K = 1", "mind", {**_MIND, "num_interests": 1}),
    "mind_2": Row("MIND, K = 2", "mind", {**_MIND, "num_interests": 2}),
    "mind_4": Row("MIND, K = 4", "mind", {**_MIND, "num_interests": 4}),
    # The last ten films are the session, the forty before them the long-term half.
    "sdm": Row("SDM", "sdm", {**_FEW, **_PLAIN, "max_history": 50, "short": 10}),
    "sasrec": Row("SASRec", "sasrec", _SASREC),
    # What a new film is like is told by the whole of a taste, not by its last turn.
    "eges_new": Row("EGES", "eges", {**_EGES, "max_history": 100}, new_films=True),
    "two_tower_new": Row(
        "two-tower",
        "two-tower",
        {**_SOFTMAX, **_PLAIN, "max_history": 100, "epochs": 7, "patience": 0},
        new_films=True,
    ),
}
"""In the order in which they are trained."""

BASELINES = ("popularity", "item_knn", "ease", "ials")


@dataclass(frozen=True)
class Outcome:
    """What one seed of a row came to."""

    test: Figures
    valid: Figures
    epochs: int
    train_seconds: float
    questions: int
    """Users who were asked for the test."""
    chance: Figures
    """What films drawn at random would come to."""


def measure(row: Row, seed: int) -> Outcome:
    """Train one seed of a row, and judge it once."""
    new = with_new_films(NEW_SHARE, seed) if row.new_films else None
    films = new.films if new else load_films()
    assert films is not None
    asked = new.asked if new else films.test
    config = row.config(seed)
    model, history = train(config, films.source, films.valid, progress=tell)
    return Outcome(
        test=shown(judge(model, asked, config.max_history)),
        valid=shown(judge(model, films.valid, config.max_history)),
        epochs=history.best_epoch if config.patience else len(history.watched),
        train_seconds=history.seconds,
        questions=len(asked),
        chance={f"recall@{k}": by_chance(asked, films.num_classes, k) for k in KS},
    )


def watch_valid(row: Row) -> None:
    """Train a row, and tell how well it does on what settings are chosen by."""
    new = with_new_films(NEW_SHARE, TUNING_SEED) if row.new_films else None
    films = new.films if new else load_films()
    assert films is not None
    asked = new.tuning if new else films.valid
    config = row.config(TUNING_SEED)
    model, _ = train(config, films.source, asked, progress=tell)
    print(f"  valid {text_of(judge(model, asked, config.max_history))}", flush=True)
    chances = {f"recall@{k}": by_chance(asked, films.num_classes, k) for k in KS}
    print(f"  by chance {text_of(chances)}", flush=True)


def tell(line: str) -> None:
    print(f"  {line}", flush=True)


def shown(figures: Figures) -> Figures:
    return {name: figures[name] for name in SHOWN}


def text_of(figures: Figures) -> str:
    return "  ".join(f"{name} {figures[name]:.4f}" for name in SHOWN if name in figures)


def configuration(row: Row, seed: int) -> dict[str, Any]:
    """What a stored outcome must have been made with: all settings that are not the defaults."""
    config = row.config(seed)
    defaults = {name: option.default for name, option in config.options.items()}
    made_with = {
        name: value
        for name, value in config.values.items()
        if value != defaults[name] and not switched_off(config.options[name], config.values)
    }
    return made_with | ({"new_share": NEW_SHARE} if row.new_films else {})


Done = dict[str, list[Outcome]]
"""By the name of the row, an outcome for each seed that is there."""


def stored_key(name: str, seed: int) -> str:
    return f"{name}, seed {seed}"


def stored_outcomes(names: Sequence[str] = tuple(ROWS)) -> Done:
    """The stored outcomes that were made with the settings of today, in the order of the rows."""
    made_with = {
        stored_key(name, seed): configuration(ROWS[name], seed)
        for name in names
        for seed in ROWS[name].seeds
    }
    fitting = STORED.fitting(made_with)
    keys = {name: [stored_key(name, seed) for seed in ROWS[name].seeds] for name in names}
    done = {
        name: [Outcome(**fitting[key]) for key in own if key in fitting]
        for name, own in keys.items()
    }
    return {name: outcomes for name, outcomes in done.items() if outcomes}


def is_stored(name: str, seed: int) -> bool:
    return bool(STORED.fitting({stored_key(name, seed): configuration(ROWS[name], seed)}))


def store(name: str, seed: int, outcome: Outcome) -> None:
    """Add an outcome to those of the file, and write the table anew."""
    STORED.add(stored_key(name, seed), configuration(ROWS[name], seed), asdict(outcome))
    TABLE.write_text(markdown(stored_outcomes()))


def mean_of(outcomes: Sequence[Outcome], name: str) -> float:
    return statistics.mean(outcome.test[name] for outcome in outcomes)


def spread_of(outcomes: Sequence[Outcome], name: str) -> float:
    """The standard deviation over seeds; 0 where there is but one."""
    values = [outcome.test[name] for outcome in outcomes]
    return statistics.stdev(values) if len(values) > 1 else 0.0


def to_chance(outcomes: Sequence[Outcome], k: int) -> float:
    """The recall of new films over that of films drawn at random, all seeds together."""
    name = f"recall@{k}"
    hits = sum(outcome.test[name] * outcome.questions for outcome in outcomes)
    return hits / sum(outcome.chance[name] * outcome.questions for outcome in outcomes)


def markdown(done: Done) -> str:
    """Both tables, and what was expected of some rows."""
    names = ("Recall@10", "Recall@20", "Recall@50", "NDCG@10", "NDCG@20")
    lines = [
        "MovieLens 100K, the last film of 943 users from all before it: test figures over all "
        "1,682 films, seen ones left out; mean ± standard deviation over seeds. "
        "`python experiments/ml100k.py`",
        "",
        f"| model | {' | '.join(names)} | epochs | s | changed |",
        f"|---|{'---:|' * (len(names) + 2)}---|",
    ]
    lines += [line_of(ROWS[name], done[name]) for name in done if not ROWS[name].new_films]
    new = [name for name in done if ROWS[name].new_films]
    if new:
        lines += [
            "",
            f"Films that training never showed, {100 * NEW_SHARE:g} % of all, among all films, for "
            "the users whose test film is one of them: Recall, and how many times chance it is.",
            "",
            f"| model | {' | '.join(f'Recall@{k} | to chance' for k in KS)} | asked | changed |",
            f"|---|{'---:|' * (2 * len(KS) + 1)}---|",
        ]
        lines += [new_line_of(ROWS[name], done[name]) for name in new]
    remarks = remarks_on(done)
    return "\n".join([*lines, *([""] if remarks else []), *remarks]) + "\n"


def line_of(row: Row, outcomes: Sequence[Outcome]) -> str:
    figures = " | ".join(figure_of(outcomes, name) for name in SHOWN)
    epochs = "/".join(str(outcome.epochs) for outcome in outcomes)
    seconds = statistics.mean(outcome.train_seconds for outcome in outcomes)
    return f"| {row.title} | {figures} | {epochs} | {seconds:,.0f} | {row.told()} |"


def figure_of(outcomes: Sequence[Outcome], name: str) -> str:
    spread = f" ± {spread_of(outcomes, name):.4f}" if len(outcomes) > 1 else ""
    return f"{mean_of(outcomes, name):.4f}{spread}"


def new_line_of(row: Row, outcomes: Sequence[Outcome]) -> str:
    cells = [f"{figure_of(outcomes, f'recall@{k}')} | {to_chance(outcomes, k):.1f}" for k in KS]
    asked = sum(outcome.questions for outcome in outcomes)
    return f"| {row.title} | {' | '.join(cells)} | {asked} | {row.told()} |"


EXPECTED = (
    ("sdm", "youtube_dnn", "recall@20", "SDM is at least as good as YouTubeDNN"),
    ("mind_1", "youtube_dnn", "recall@20", "MIND with one interest is about YouTubeDNN"),
    ("mind_4", "mind_1", "recall@50", "four interests find at least as much as one"),
)
"""What the literature leads one to expect: reported, not asked for."""


def remarks_on(done: Done) -> list[str]:
    """How far each expectation is from what was found, beside the chance of who was asked."""
    remarks = []
    for one, other, figure, expected in EXPECTED:
        if one in done and other in done:
            error = standard_error(mean_of(done[other], figure), done[other][0].questions)
            found = difference(done, one, other, figure)
            remarks.append(
                f"- Expected: {expected}. Found: {found:+.4f} in {figure.capitalize()}, where "
                f"the choice of users alone makes a standard error of {error:.4f} in each."
            )
    return remarks


def difference(done: Done, one: str, other: str, figure: str) -> float:
    return mean_of(done[one], figure) - mean_of(done[other], figure)


def standard_error(recall: float, questions: int) -> float:
    """Of a recall with one target for each user."""
    return math.sqrt(recall * (1 - recall) / questions)


def add_bars(report: Report, done: Done) -> None:
    # Without the row that the others are held to, their bars are NaN, which nothing keeps.
    for name, outcomes in done.items():
        title = ROWS[name].title
        if ROWS[name].new_films:
            for k in KS:
                limit = LEAST_TO_CHANCE if k == NEW_K else None
                report.add(
                    f"{title}, new films: Recall@{k} to chance", to_chance(outcomes, k), limit
                )
            continue
        for figure in SHOWN:
            floor = mean_of(done["popularity"], figure) if "popularity" in done else math.nan
            limit = None if name in BASELINES else floor
            report.add(f"{title}: {figure}", mean_of(outcomes, figure), limit)
    for one, other, figure, expected in EXPECTED:
        if one in done and other in done:
            report.add(f"{expected}: {figure}", difference(done, one, other, figure))


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=some_of(ROWS), default=list(ROWS), help="like mind_1,mind_4")
    parser.add_argument("--resume", action="store_true", help="keep stored rows that fit")
    parser.add_argument("--valid", action="store_true", help="judge on valid, store nothing")
    parser.add_argument(
        "--with", action="append", default=[], dest="changes", metavar="NAME=VALUE",
        help="another setting to try on valid",
    )  # fmt: skip
    options = parser.parse_args()
    if options.changes and not options.valid:
        parser.error("--with is for --valid: rows are stored by the settings of the file")
    if not LOG.is_file():
        print(f"nothing measured: there is no {LOG} (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(1)
    for name in options.rows:
        row = ROWS[name]
        if options.valid:
            print(row.title, flush=True)
            changes = values_of(options.changes, row.config(TUNING_SEED).values)
            watch_valid(replace(row, settings={**row.settings, **changes}))
            continue
        for seed in row.seeds:
            if options.resume and is_stored(name, seed):
                continue
            print(f"{row.title}{', new films' if row.new_films else ''}, seed {seed}", flush=True)
            outcome = measure(row, seed)
            store(name, seed, outcome)
            print(f"  test {text_of(outcome.test)}", flush=True)
    if options.valid:
        return
    done = stored_outcomes(list(ROWS) if options.resume else options.rows)
    print(markdown(done))
    report = Report(options)
    # What some seeds came to is shown, but proves nothing.
    add_bars(report, {n: each for n, each in done.items() if len(each) == len(ROWS[n].seeds)})
    report.finish()


if __name__ == "__main__":
    main()
