"""The default for a log keeps up with a simple rule where nobody tuned it."""

import numpy as np
import polars as pl

import widemax as wm

USERS, ITEMS, TASTES = 400, 320, 16


def tastes_without_order(seed):
    """Users have two tastes, one more than the other, and some of them choose much; none twice."""
    draw = np.random.default_rng(seed)
    groups = np.array_split(draw.permutation(ITEMS), TASTES)
    popularity = 1 / draw.permutation(np.arange(1, ITEMS + 1)) ** 0.8
    rows = []
    for user in range(USERS):
        mine = [groups[taste] for taste in draw.choice(TASTES, 2, replace=False)]
        share = np.zeros(ITEMS)
        for group, weight in zip(mine, 0.9 * draw.dirichlet([1, 1]), strict=True):
            share[group] += weight * popularity[group] / popularity[group].sum()
        share += 0.1 * popularity / popularity.sum()
        had = np.unique(draw.choice(ITEMS, max(4, int(draw.exponential(20))), p=share))
        rows += [(user, int(item), time) for time, item in enumerate(draw.permutation(had))]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def test_tastes_without_order_are_ranked_as_well_as_by_neighbours(tmp_path):
    log = tmp_path / "log.parquet"
    tastes_without_order(0).write_parquet(log)
    found = {}
    for model in ("auto", "item-knn"):
        config = wm.Config(model=model, split="last", threads=1)
        run = wm.train(log, config, folder=tmp_path / model)
        report = run.evaluate_recommendations()
        found[model] = report.metrics()["ndcg@20"]
    assert run.config.model == "item-knn"
    error = report.means["ndcg@20"].standard_error
    assert found["item-knn"] > 0.1
    assert found["auto"] >= found["item-knn"] - error
