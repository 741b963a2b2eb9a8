"""The job of ``widemax demo``: simulate, train, evaluate, recommend."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from widemax.cli.answers import strict_json
from widemax.cli.demo.folder import demo_folder
from widemax.cli.demo.pages import (
    FIGURES,
    NewItem,
    say,
    show_comparison,
    show_new_item,
    show_next,
    show_shop,
    show_user,
)
from widemax.cli.progress import waiting
from widemax.cli.train import train_run
from widemax.config import read_config
from widemax.config.settings import all_options
from widemax.data.simulation.shop import SimulatedShop
from widemax.data.simulation.shop_titles import MOST_TITLES
from widemax.runs.folder.catalogue import Neighbour
from widemax.runs.run import Run
from widemax.storage.files import atomic_write
from widemax.validation import check_whole

FOLDER = Path("widemax-demo")
NUM_CLASSES = 5_000
LEAST_CLASSES = 100
STEPS = 540
MODEL, BASELINE = "two-tower", "popularity"
TOP = 20

_LOG, _ITEMS, _USERS = "log.parquet", "items.parquet", "users.parquet"
_SETTINGS: Mapping[str, object] = {
    # Popular items come up several times in a batch: sampled_softmax would warn of that.
    "objective": "corrected-log-q",
    "learning_rate": 0.005,
}
_SHOWN, _NEAREST = 10, 3


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What a user had, and what they are recommended."""

    user_id: str
    """Who."""
    history: Sequence[str]
    """What they looked at, oldest first."""
    found: Sequence[Neighbour]
    """What they are recommended, best first."""


def run_demo(
    *,
    num_classes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    folder: Path | None = None,
    json_path: Path | None = None,
) -> Path:
    """Simulate a shop, train on its log, evaluate, recommend, and say what to type next.

    The last of it opens the page; what is returned is the folder of the run.
    """
    folder = FOLDER if folder is None else folder
    number = check_whole(
        "num_classes",
        NUM_CLASSES if num_classes is None else num_classes,
        LEAST_CLASSES,
        MOST_TITLES,
    )
    steps = check_whole("steps", STEPS if steps is None else steps, 1, 10**9)
    seed = check_whole("seed", seed, 0, 2**63 - 1)
    if json_path and not (json_path.parent.is_dir() or json_path.parent == folder):
        raise ValueError(f"json must lie in an existing folder, got {str(json_path)!r}")
    with demo_folder(folder, runs=(MODEL, BASELINE)):
        figures = _whole_job(folder, number, steps, seed)
        if json_path:
            with atomic_write(json_path) as file:
                file.write((strict_json(figures, indent=1) + "\n").encode())
    return folder / MODEL


def _whole_job(folder: Path, num_items: int, steps: int, seed: int) -> dict[str, Any]:
    console, started = Console(), time.perf_counter()
    with waiting("simulating a shop"):
        shop = SimulatedShop.create(num_items=num_items, num_users=num_items, seed=seed)
        shop.write(folder)
    show_shop(console, shop, folder)
    features = {"item_features": folder / _ITEMS, "user_features": folder / _USERS}
    asked = {"steps": steps, **({"seed": seed} if seed else {})}
    _train(console, folder, BASELINE, {})
    _train(console, folder, MODEL, {**features, **_SETTINGS, **asked})
    runs = {name: Run(folder / name) for name in (BASELINE, MODEL)}
    with waiting("evaluating"):
        figures = {name: _evaluate(run) for name, run in runs.items()}
    show_comparison(console, figures, num_items)
    advice = _recommend(shop, runs[MODEL])
    show_user(console, shop, advice.user_id, advice.history, advice.found)
    new = _place_of_new_item(shop, runs[MODEL], advice)
    near = runs[MODEL].similar(new.item_id, k=_NEAREST)
    show_new_item(console, shop, new, near)
    commands = commands_to_type(folder / MODEL, advice.user_id, new.item_id)
    show_next(console, folder / MODEL, commands, time.perf_counter() - started)
    return {**figures, "user": advice.user_id, "new_item": asdict(new)}


def _train(console: Console, folder: Path, model: str, settings: Mapping[str, object]) -> None:
    """Print the command that trains a model, and do what it does."""
    flags = {"model": model, **{name: _plain(value) for name, value in settings.items()}}
    source, run = folder / _LOG, folder / model
    words = [
        word for name, value in flags.items() for word in (all_options()[name].flag, str(value))
    ]
    command = ["widemax", "train", str(source), "--folder", str(run), *words]
    console.print()
    say(console, f"$ {shlex.join(command)}")
    train_run(source, run, read_config(None, flags, source="log").config, resume=False)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _evaluate(run: Run) -> dict[str, float]:
    """Return the figures of the table, exact over the whole catalogue."""
    report = run.evaluate_recommendations(ks=(TOP,))
    run.keep_evaluation(report)
    metrics = report.metrics()
    return {"users": report.users, **{name: metrics[name] for name in FIGURES if name in metrics}}


def _recommend(shop: SimulatedShop, run: Run) -> Advice:
    """Ask for the first user whose clicks fit on the screen."""
    clicks = shop.clicks["user_id"].value_counts().sort("user_id")
    user_id = str(clicks["user_id"][int((clicks["count"].cast(int) - _SHOWN).abs().arg_min() or 0)])
    history = shop.clicks.filter(shop.clicks["user_id"] == user_id)["item_id"].to_list()
    found = run.recommend(history, k=_SHOWN, user=user_id)
    return Advice(user_id=user_id, history=history, found=found)


def _place_of_new_item(shop: SimulatedShop, run: Run, advice: Advice) -> NewItem:
    """Take the new item that the user would like best."""
    likes = shop.likes(advice.user_id)
    item_id = max(shop.new_items, key=likes.__getitem__)
    ranked = run.recommend(advice.history, k=len(run.vocabulary), user=advice.user_id)
    keys = [str(each.key) for each in ranked]
    return NewItem(
        item_id=item_id,
        place=1 + keys.index(item_id),
        place_by_taste=1 + sum(likes[key] > likes[item_id] for key in keys),
        of=len(keys),
    )


def commands_to_type(run: Path, user_id: str, item_id: str) -> list[str]:
    """Return what can be asked of the run from here on, as it is typed."""
    asked = (
        ("recommend", run, "--user", user_id),
        ("similar", run, item_id),
        ("evaluate", run, "--by", "popularity"),
        ("index", run),
        ("serve", run),
    )
    return [shlex.join(["widemax", *map(str, words)]) for words in asked]
