"""The simulated shop: what it sells, who looks, and that its truth is what the log follows."""

import polars as pl
import pytest
import torch

from widemax.data.simulation.shop import MOST_CLICKS, STAYS, SimulatedShop
from widemax.data.simulation.shop_titles import (
    DEPARTMENTS,
    KINDS,
    MATERIALS_A_DEPARTMENT,
    MOST_TITLES,
    draw_things,
    titles_of,
)


@pytest.fixture(scope="module")
def shop():
    return SimulatedShop.create(num_items=1000, num_users=600, seed=5)


def test_all_things_have_titles_of_their_own():
    everything = draw_things(MOST_TITLES, torch.Generator().manual_seed(0))
    assert len(set(titles_of(everything))) == MOST_TITLES
    for department in DEPARTMENTS.values():
        assert len(set(department.materials)) == MATERIALS_A_DEPARTMENT
        assert len(department.prices) == len(KINDS) // len(DEPARTMENTS)


def test_the_tables_hold_together(shop):
    assert shop.items["item_id"].n_unique() == len(shop.items) == 1000
    assert shop.users["user_id"].n_unique() == len(shop.users) == 600
    assert (shop.items["price"] > 0).all()
    assert set(shop.clicks["item_id"]) <= set(shop.items["item_id"]) - set(shop.new_items)
    assert set(shop.clicks["user_id"]) == set(shop.users["user_id"])
    assert shop.clicks["timestamp"].is_sorted()
    assert not shop.clicks.select("user_id", "item_id").is_duplicated().any()
    assert shop.clicks.group_by("user_id").len()["len"].max() <= MOST_CLICKS


def test_same_seed_same_shop(shop):
    again = SimulatedShop.create(num_items=1000, num_users=600, seed=5)
    assert again.clicks.equals(shop.clicks)
    assert again.items.equals(shop.items)
    assert again.users.equals(shop.users)
    assert not SimulatedShop.create(num_items=1000, num_users=600, seed=6).clicks.equals(
        shop.clicks
    )


def likes(shop):
    """Return how much the user of each click likes each item, and which one it was."""
    users = dict(zip(shop.users["user_id"], range(len(shop.users)), strict=True))
    items = dict(zip(shop.items["item_id"], range(len(shop.items)), strict=True))
    rows = torch.tensor([users[each] for each in shop.clicks["user_id"]])
    chosen = torch.tensor([items[each] for each in shop.clicks["item_id"]])
    return shop.user_vectors[rows] @ shop.item_vectors.T, chosen


def test_clicks_follow_taste_and_popularity(shop):
    scores, chosen = likes(shop)
    own = scores.gather(1, chosen[:, None])
    assert (scores < own).double().mean() > 0.85
    counts = shop.clicks["item_id"].value_counts()["count"].sort(descending=True)
    # By Zipf's law a tenth of the items has far more than a tenth of the clicks.
    assert counts[:100].sum() > 0.3 * counts.sum()


def test_a_session_goes_on_with_what_goes_with_the_item_before(shop):
    kinds = {title: place for place, (_, title) in enumerate(KINDS)}
    kind = [kinds[" ".join(title.split()[2:])] for title in shop.items["title"]]
    items = dict(zip(shop.items["item_id"], kind, strict=True))
    log = shop.clicks.with_columns(kind=pl.col("item_id").replace_strict(items))
    log = log.sort("user_id", "timestamp", maintain_order=True).with_columns(
        before=pl.col("kind").shift().over("user_id"),
        soon=pl.col("timestamp").diff().over("user_id") < 600,
    )
    pairs = log.filter(pl.col("soon") & pl.col("before").is_not_null())
    share = pairs.group_by("before", "kind").len().group_by("before").agg(pl.col("len").max())
    # The commonest follower of a kind is its companion; what was seen already is left out.
    assert share["len"].sum() / len(pairs) > 0.75 * STAYS


def test_likes_are_those_that_the_clicks_follow(shop):
    scores, chosen = likes(shop)
    own = shop.likes(shop.clicks["user_id"][0])
    assert list(own) == shop.items["item_id"].to_list()
    assert own[shop.clicks["item_id"][0]] == pytest.approx(float(scores[0, chosen[0]]))
    with pytest.raises(ValueError, match="user_id must be one of the shop's users, got 'nobody'"):
        shop.likes("nobody")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"num_items": 1}, "num_items"),
        ({"num_items": MOST_TITLES + 1}, "num_items"),
        ({"num_users": 0}, "num_users"),
        ({"seed": -1}, "seed"),
    ],
)
def test_limits(given, named):
    with pytest.raises(ValueError, match=named):
        SimulatedShop.create(**{"num_items": 100, "num_users": 10, "seed": 0, **given})


def test_what_is_written_is_read_again(shop, tmp_path):
    shop.write(tmp_path)
    assert pl.read_parquet(tmp_path / "log.parquet").equals(shop.clicks)
    assert pl.read_parquet(tmp_path / "items.parquet").equals(shop.items)
    assert pl.read_parquet(tmp_path / "users.parquet").equals(shop.users)
