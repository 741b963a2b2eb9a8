"""A simulated shop: things with titles and prices, people with tastes, and what they looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from widemax.data.simulation.shop_titles import (
    DEPARTMENTS,
    KINDS,
    MATERIALS,
    MOST_TITLES,
    STYLES,
    Things,
    draw_things,
    titles_of,
)
from widemax.data.simulation.world import SimulatedWorld
from widemax.storage.files import atomic_write
from widemax.validation import check_whole

MOST_USERS = 1_000_000
NUM_TASTES = 24
EXPONENT = 0.7
STAYS = 0.6
"""How often a session continues with the kind that goes with what was just looked at."""
ENDS = 0.25
"""How often a click is the last of its session."""
LEAST_CLICKS, MOST_CLICKS, USUAL_CLICKS = 5, 60, 20

_FIRST_SECOND = 1_700_000_000
_DAY = 86_400
_USERS_PER_BLOCK = 512
_DEPARTMENT_NAMES = tuple(DEPARTMENTS)
_KINDS_A_DEPARTMENT = len(KINDS) // len(DEPARTMENTS)


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedShop:
    """A shop whose log, catalogue and users look like real ones, and whose tastes are known.

    The first click of a session follows P(y | u) ∝ popularity(y) · exp(taste(u) · y), with
    popularity by Zipf's law and y the department, kind, material, style and price of an item. Of
    the others, six in ten are drawn from the same P among the kind that goes with the item before.
    Users have one of 24 common tastes and something of their own. Nobody looks at an item twice,
    and nobody has looked at the new items yet. A shop of 5,000 items and 5,000 users takes about
    two seconds, in O(V·N·D).

    >>> shop = SimulatedShop.create(num_items=500, num_users=100, seed=0)
    >>> shop.items.columns, len(shop.new_items)
    (['item_id', 'title', 'category', 'price'], 5)
    >>> bool(shop.clicks["item_id"].is_in(shop.new_items).any())
    False
    """

    items: pl.DataFrame
    """item_id, title, category and price; the new ones last."""
    users: pl.DataFrame
    """user_id, age and interest."""
    clicks: pl.DataFrame
    """user_id, item_id and timestamp in order of time, about 20 a user."""
    num_new: int
    """How many items nobody has looked at."""
    item_vectors: Tensor
    """Float64 [V, D], what tastes are about."""
    user_vectors: Tensor
    """Float64 [N, D], the true tastes."""

    @classmethod
    def create(cls, *, num_items: int, num_users: int, seed: int = 0) -> SimulatedShop:
        """Make a shop; the same arguments give the same one. One item in a hundred is new."""
        check_whole("num_items", num_items, 2, MOST_TITLES)
        check_whole("num_users", num_users, 1, MOST_USERS)
        generator = torch.Generator().manual_seed(check_whole("seed", seed, 0, 2**63 - 1))
        num_new = max(1, num_items // 100)
        things = draw_things(num_items, generator)
        num_known = num_items - num_new
        # Kinds side by side: to choose among one kind is to choose within a range.
        order = torch.arange(num_items)
        order[:num_known] = things.kinds[:num_known].argsort(stable=True)
        things = Things(*(part[order] for part in things))
        prices = _prices(things, generator)
        item_vectors = _item_vectors(things, prices)
        groups = torch.randint(NUM_TASTES, (num_users,), generator=generator)
        user_vectors = _user_vectors(groups, generator)
        rank = 1 + torch.randperm(num_known, generator=generator).double()
        world = SimulatedWorld(
            log_popularity=torch.log_softmax(-EXPONENT * rank.log(), dim=0),
            item_vectors=item_vectors[:num_known],
            user_vectors=user_vectors,
        )
        items = _catalogue(things, prices)
        users = _people(groups, user_vectors, generator)
        visits = _visits(world, things.kinds[:num_known], generator)
        return cls(
            items=items,
            users=users,
            clicks=_log(visits, items["item_id"], users["user_id"]),
            num_new=num_new,
            item_vectors=item_vectors,
            user_vectors=user_vectors,
        )

    @property
    def new_items(self) -> list[str]:
        """The items that nobody has looked at."""
        return self.items["item_id"].tail(self.num_new).to_list()

    def likes(self, user_id: str) -> dict[str, float]:
        """Return how much each item is to a user's taste, popularity aside: no model sees it."""
        rows = (self.users["user_id"] == user_id).arg_true()
        if not len(rows):
            raise ValueError(f"user_id must be one of the shop's users, got {user_id!r}")
        likes = self.item_vectors @ self.user_vectors[int(rows[0])]
        return dict(zip(self.items["item_id"], likes.tolist(), strict=True))

    def write(self, folder: str | Path) -> None:
        """Write log.parquet, items.parquet and users.parquet."""
        tables = {"log": self.clicks, "items": self.items, "users": self.users}
        for name, table in tables.items():
            with atomic_write(Path(folder) / f"{name}.parquet") as file:
                table.write_parquet(file)


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def _prices(things: Things, generator: torch.Generator) -> Tensor:
    """Return what things cost: what their kind usually does, more or less."""
    usual = torch.tensor(
        [DEPARTMENTS[department].prices[kind] for department, kind in KINDS], dtype=torch.float64
    )
    spread = torch.exp(0.35 * _normal(len(things.kinds), generator=generator))
    return (usual[things.kinds] * spread * 20).round() / 20


def _item_vectors(things: Things, prices: Tensor) -> Tensor:
    """Return what tastes are about: department, kind, material and style, and how dear it is."""
    dear = prices.log()
    parts = (
        one_hot(things.kinds // _KINDS_A_DEPARTMENT, len(DEPARTMENTS)),
        one_hot(things.kinds, len(KINDS)),
        one_hot(things.materials, len(MATERIALS)),
        one_hot(things.styles, len(STYLES)),
        ((dear - dear.mean()) / dear.std().clamp(min=1e-6))[:, None],
    )
    return torch.cat([part.double() for part in parts], dim=1)


def _user_vectors(groups: Tensor, generator: torch.Generator) -> Tensor:
    """Return how much each user likes each of those: as their group does, and a bit differently."""
    sizes = torch.tensor([len(DEPARTMENTS), len(KINDS), len(MATERIALS), len(STYLES), 1])
    each = torch.tensor([2.0, 1.0, 1.2, 0.8, 0.5], dtype=torch.float64)
    strengths = each.repeat_interleave(sizes)
    common = _normal(NUM_TASTES, len(strengths), generator=generator)
    own = _normal(len(groups), len(strengths), generator=generator)
    return (common[groups] + 0.3 * own) * strengths


def _catalogue(things: Things, prices: Tensor) -> pl.DataFrame:
    titles = titles_of(things)
    return pl.DataFrame(
        {
            "item_id": [title.lower().replace(" ", "-") for title in titles],
            "title": titles,
            "category": [KINDS[kind][0] for kind in things.kinds.tolist()],
            "price": prices.numpy(),
        }
    )


def _people(groups: Tensor, user_vectors: Tensor, generator: torch.Generator) -> pl.DataFrame:
    """Return what the shop knows of its users: an age, and a department ticked on the form."""
    usual_age = torch.randint(20, 70, (NUM_TASTES,), generator=generator)
    ages = usual_age[groups] + 6 * _normal(len(groups), generator=generator)
    ticked = user_vectors[:, : len(DEPARTMENTS)].argmax(dim=1)
    anything = torch.randint(len(DEPARTMENTS), groups.shape, generator=generator)
    honest = torch.rand(groups.shape, generator=generator) < 0.7
    digits = len(str(max(1, len(groups) - 1)))
    return pl.DataFrame(
        {
            "user_id": [f"u{user:0{digits}}" for user in range(len(groups))],
            "age": ages.round().long().clamp(16, 90).numpy(),
            "interest": [
                _DEPARTMENT_NAMES[place] for place in torch.where(honest, ticked, anything).tolist()
            ],
        }
    )


def _visits(world: SimulatedWorld, kinds: Tensor, generator: torch.Generator) -> pl.DataFrame:
    """Return what users looked at: users, items and times, each user's in the order of time."""
    ends = torch.bincount(kinds, minlength=len(KINDS)).cumsum(0)
    # What goes with a kind is another of its department, the same for everybody.
    goes_with = torch.arange(len(KINDS)).view(-1, _KINDS_A_DEPARTMENT).roll(1, dims=1).flatten()
    parts = []
    for first in range(0, world.num_users, _USERS_PER_BLOCK):
        users = torch.arange(first, min(first + _USERS_PER_BLOCK, world.num_users))
        cumulative = world.log_prob(users).exp_().cumsum_(dim=1)
        lengths = USUAL_CLICKS * torch.exp(0.6 * _normal(len(users), generator=generator))
        lengths = lengths.round().long().clamp(LEAST_CLICKS, MOST_CLICKS)
        begins = torch.rand(len(users), MOST_CLICKS, generator=generator) < ENDS
        begins[:, 0] = True
        stays = ~begins & (torch.rand(begins.shape, generator=generator) < STAYS)
        items = _walk(cumulative, kinds, ends, goes_with, stays, generator)
        kept = torch.arange(MOST_CLICKS) < lengths[:, None]
        times = _times(begins, generator)
        block = {"users": users[:, None].expand_as(items), "items": items, "times": times}
        parts.append(pl.DataFrame({name: each[kept].numpy() for name, each in block.items()}))
    return pl.concat(parts)


def _walk(
    cumulative: Tensor,
    kinds: Tensor,
    ends: Tensor,
    goes_with: Tensor,
    stays: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """Return what each user looks at, click by click, [U, T]."""
    upto = torch.cat([cumulative.new_zeros(len(cumulative), 1), cumulative], dim=1)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    uniform = torch.rand(stays.shape, dtype=torch.float64, generator=generator)
    last_item = cumulative.shape[1] - 1
    items = torch.zeros(stays.shape, dtype=torch.int64)
    for click in range(stays.shape[1]):
        wanted = goes_with[kinds[items[:, click - 1]]]
        stay = stays[:, click] & (starts[wanted] < ends[wanted])
        low = torch.where(stay, starts[wanted], 0)
        high = torch.where(stay, ends[wanted], last_item + 1)
        below, above = (upto.gather(1, each[:, None]) for each in (low, high))
        draw = below + uniform[:, click, None] * (above - below)
        found = torch.searchsorted(cumulative, draw, right=True)[:, 0]
        # Rounding can lift a draw to the end of its range.
        items[:, click] = found.clamp(low, high - 1)
    return items


def _times(begins: Tensor, generator: torch.Generator) -> Tensor:
    """Return when each click was: minutes apart in a session, days apart between them."""
    waits = -torch.log1p(-torch.rand(begins.shape, dtype=torch.float64, generator=generator))
    gaps = 1 + waits * torch.where(begins, 3.0 * _DAY, 90.0)
    return _FIRST_SECOND + gaps.cumsum(dim=1).floor().long()


def _log(visits: pl.DataFrame, items: pl.Series, users: pl.Series) -> pl.DataFrame:
    rows = visits.unique(["users", "items"], keep="first", maintain_order=True)
    rows = rows.sort("times", maintain_order=True)
    return pl.DataFrame(
        {
            "user_id": users.gather(rows["users"]),
            "item_id": items.gather(rows["items"]),
            "timestamp": rows["times"],
        }
    )
