"""What ``widemax demo`` shows: a shop, a comparison, recommendations with titles."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from widemax.cli.printable import printable
from widemax.data.simulation.shop import SimulatedShop
from widemax.runs.folder.catalogue import Neighbour
from widemax.vocabulary.spelling import Key

FIGURES = {
    "recall@20": "recall@20",
    "ndcg@20": "ndcg@20",
    "coverage@20": "coverage@20",
    "head_recall@20": "head",
    "torso_recall@20": "torso",
    "tail_recall@20": "tail",
}
"""The figures that are shown, and the heads of their columns."""


@dataclass(frozen=True, kw_only=True)
class NewItem:
    """Where a new item stands for a user, among what they have not seen."""

    item_id: str
    """The item."""
    place: int
    """Where the model puts it."""
    place_by_taste: int
    """Where the simulated taste of the user puts it, popularity aside."""
    of: int
    """How many items there are to recommend."""


def say(console: Console, text: str) -> None:
    """Print a line as it is, whatever the width: a command must not be broken."""
    console.print(printable(text), highlight=False, markup=False, soft_wrap=True)


def show_shop(console: Console, shop: SimulatedShop, folder: Path) -> None:
    """Say what was simulated, with some of the catalogue."""
    say(
        console,
        f"A simulated shop in {folder}: {len(shop.items):,} items, of which {shop.num_new:,} are "
        f"new; {len(shop.users):,} users, {len(shop.clicks):,} clicks",
    )
    say(
        console, "log.parquet: who looked at what, and when; items.parquet, users.parquet: features"
    )
    _show_items(
        console,
        "Some of the catalogue",
        shop,
        shop.items["item_id"].gather_every(max(1, len(shop.items) // 4))[:4].to_list(),
    )


def show_comparison(
    console: Console, figures: Mapping[str, Mapping[str, float]], num_items: int
) -> None:
    """Print a row for each model."""
    users = next(iter(figures.values()))["users"]
    table = Table(title=f"The last click of {users:,.0f} users, among all {num_items:,} items")
    table.add_column("model")
    for column in FIGURES.values():
        table.add_column(column, justify="right")
    for model, row in figures.items():
        cells = (f"{row[name]:.4f}" if name in row else "" for name in FIGURES)
        table.add_row(model, *cells)
    console.print()
    console.print(table)
    say(
        console,
        "head, torso, tail: recall@20 of clicks on items that are popular, less so, and rare",
    )


def show_user(
    console: Console,
    shop: SimulatedShop,
    user_id: str,
    history: Sequence[str],
    found: Sequence[Neighbour],
) -> None:
    """Print what a user had, and what they are recommended."""
    console.print()
    _show_items(console, f"What {user_id} looked at, oldest first", shop, history)
    scores = {str(each.key): each.score for each in found}
    _show_items(console, f"Recommended to {user_id}", shop, list(scores), scores)


def show_new_item(
    console: Console, shop: SimulatedShop, new: NewItem, near: Iterable[Neighbour]
) -> None:
    """Say where an item stands that nobody has looked at, and beside which others."""
    titles = _titles(shop)
    beside = ", ".join(titles[str(each.key)] for each in near)
    console.print()
    say(console, f"New, and looked at by nobody: {titles[new.item_id]}")
    say(
        console,
        f"By its title, category and price alone it is at place {new.place:,} of {new.of:,} for "
        f"this user; by the taste that was simulated for them, popularity aside, at place "
        f"{new.place_by_taste:,}",
    )
    say(console, f"Most like it: {beside}")


def show_next(console: Console, run: Path, commands: Iterable[str], seconds: float) -> None:
    """Say where the run is, and what to type."""
    console.print()
    say(console, f"Took {seconds:.0f} s. The run is in {run}. Next, type:")
    if shutil.which("widemax") is None:
        activate = Path(sys.prefix) / "bin" / "activate"
        say(console, f"(first, in this shell: source {shlex.quote(str(activate))})")
    for command in commands:
        say(console, f"  {command}")


def _titles(shop: SimulatedShop) -> Mapping[str, str]:
    return dict(shop.items.select("item_id", "title").iter_rows())


def _show_items(
    console: Console,
    heading: str,
    shop: SimulatedShop,
    item_ids: Sequence[Key],
    scores: Mapping[str, float] | None = None,
) -> None:
    table = Table(title=Text(printable(heading)), title_justify="left")
    table.add_column("title")
    table.add_column("category")
    table.add_column("price", justify="right")
    if scores is not None:
        table.add_column("score", justify="right")
    asked = pl.DataFrame({"item_id": [str(each) for each in item_ids]})
    rows = asked.join(shop.items, on="item_id", how="left", maintain_order="left")
    for item_id, title, category, price in rows.iter_rows():
        score = [] if scores is None else [f"{scores[item_id]:.4f}"]
        # As Text: a title in square brackets is no markup.
        cells = (Text(printable(each)) for each in (title, category, f"{price:.2f}", *score))
        table.add_row(*cells)
    console.print(table)
