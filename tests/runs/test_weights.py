"""Weights act in training: in the loss of a target, in counts, and not where all are alike."""

import pytest
import torch

import widemax as wm
from widemax.data import Sequences
from widemax.declarations.table import declared
from widemax.models import EASE, IALS, ItemKNN, Popularity
from widemax.models.retrieval.bags import Bags
from widemax.models.segments import Segments
from widemax.runs.training.preparing import prepare
from widemax.training.checkpoints import CheckpointStore

SMALL = {"dimension": 4, "steps": 4, "validation_size": 5, "test_size": 5, "threads": 1}
MODELS = [
    name
    for name, each in declared("model").items()
    if any(option.name == "weight_column" for option in each.options)
]


@pytest.fixture
def log(tmp_path):
    """After i0 come i1 and i2 alike, but i2 with a weight of 9, and i3 with none."""
    rows = [
        f"u{user},{item},{weight},{7},{time}"
        for user in range(60)
        for time, (item, weight) in enumerate(
            [("i0", 1), (f"i{1 + user % 3}", (1, 9, 0)[user % 3]), (f"i{4 + user % 5}", 1)]
        )
    ]
    (tmp_path / "log.csv").write_text("user,item,w,same,time\n" + "\n".join(rows) + "\n")
    return tmp_path / "log.csv"


def trained(log, name, **settings):
    """Return a run of few steps, as far as its model has any, and its parameters."""
    known = wm.Config(model=settings["model"])
    small = {name: value for name, value in SMALL.items() if known.has(name)}
    run = wm.train(log, wm.Config(**{**small, **settings}), folder=log.parent / name)
    return run, CheckpointStore(run.folder).load().model_tensors()


def test_all_models_of_users_take_weights():
    assert {*MODELS} >= {"next-item", "youtube-dnn", "two-tower", "mind", "sdm", "sasrec"}
    assert {*MODELS} >= {"popularity", "ease", "ials"}
    for model in ("item-knn", "eges", "item2vec", "airbnb"):
        with pytest.raises(ValueError, match=f"weight_column has no effect with model = '{model}'"):
            wm.Config(model=model, weight_column="w")


@pytest.mark.parametrize("model", MODELS)
def test_equal_weights_are_the_same_bits_as_none_and_others_are_not(log, model):
    _, plain = trained(log, "plain", model=model)
    _, same = trained(log, "same", model=model, weight_column="same")
    _, other = trained(log, "other", model=model, weight_column="w")
    assert all(torch.equal(plain[name], same[name]) for name in plain)
    assert any(not torch.equal(plain[name], other[name]) for name in plain)


@pytest.mark.parametrize("model", ["next-item", "sasrec"])
def test_what_weighs_more_is_predicted_more(log, model):
    long = {"steps": 150, "learning_rate": 0.05, "head": "full", "checkpoint_every": 150}
    long |= {"validation_size": 0}
    more = {"dropout": 0.0} if model == "sasrec" else {}
    run, _ = trained(log, "run", model=model, weight_column="w", max_history=5, **long, **more)
    scores = {each.key: each.score for each in run.recommend(["i0"], k=9)}
    assert scores["i2"] - scores["i1"] > 1.0  # log 9 = 2.2
    assert scores["i1"] > scores["i3"]


def test_a_step_is_on_the_mean_of_weighed_losses(log):
    config = wm.Config(
        model="sasrec", weight_column="w", batch_size=40, head="full", dropout=0.0, **SMALL
    )
    steps = prepare(log, config, log.parent / "run").loop.steps
    places = steps.examples.places(torch.arange(len(steps.examples)))
    batch = steps.examples.batch(torch.arange(len(steps.examples)))
    losses = steps.model(batch)
    weights = steps.examples.sequences.relative_weights()[places]
    assert len(losses) == len(weights)
    assert steps.examples.sequences.values[places].tolist() == [
        int(each) for row in batch.targets for each in row[1:] if each >= 0
    ]
    mean = steps._mean_of(losses, torch.arange(len(steps.examples)))
    wanted = (losses * weights).sum() / (weights > 0).sum()
    torch.testing.assert_close(mean, wanted)


def test_places_are_those_of_the_targets():
    log = Sequences.from_lists([[3, 7, 7, 1, 5], [5, 2], [9], [9, 0, 4, 6, 8]])
    for examples in (
        Bags(log, targets_per_row=2, max_history=9),
        Segments(log, 3),
        Segments(log, 2, overlap=1, predicts_first=False),
    ):
        rows = torch.randperm(len(examples))
        targets = examples.batch(rows).targets
        if isinstance(examples, Segments) and examples.num_targets.sum() < len(log.values):
            targets[examples.batch(rows).context[:, 0] < 0, 0] = -1  # the first of each sequence
        assert log.values[examples.places(rows)].tolist() == targets[targets >= 0].tolist()


def matrix(lists, weights, num_items):
    """Users × items, the largest weight of each."""
    values = torch.zeros(len(lists), num_items, dtype=torch.float64)
    for user, (items, own) in enumerate(zip(lists, weights, strict=True)):
        for item, weight in zip(items, own, strict=True):
            values[user, item] = max(values[user, item], weight)
    return values


LISTS = [[0, 1, 1], [1, 2], [0, 2, 3], [3]]
WEIGHTS = [[1.0, 2.0, 3.0], [0.0, 4.0], [1.0, 1.0, 6.0], [2.0]]


@pytest.fixture
def weighed():
    log = Sequences.from_lists(LISTS)
    return log.weighed_by(torch.tensor([w for own in WEIGHTS for w in own], dtype=torch.float64))


@pytest.fixture
def values():
    every = [w for own in WEIGHTS for w in own if w]
    return matrix(LISTS, WEIGHTS, 4) / (sum(every) / len(every))


def test_popularity_sums_weights(weighed, values):
    model = Popularity(4)
    model.fit(weighed)
    torch.testing.assert_close(model.counts, values.sum(0), rtol=1e-6, atol=1e-6)


def test_ease_is_fitted_to_weights(weighed, values):
    model = EASE(4, regularisation=2.0)
    model.fit(weighed)
    inverse = torch.linalg.inv(values.T @ values + 2.0 * torch.eye(4, dtype=torch.float64))
    wanted = -inverse / inverse.diagonal()
    wanted.fill_diagonal_(0)
    torch.testing.assert_close(model.weight.double(), wanted, rtol=1e-5, atol=1e-5)


def test_ials_trusts_what_weighs_more(weighed, values):
    """One sweep solves the weighted least squares of each side, user by user and item by item."""
    model = IALS(4, dimension=2, regularisation=0.3, confidence=5.0, num_sweeps=1, seed=3)
    items = torch.empty(4, 2).normal_(std=0.01, generator=torch.Generator().manual_seed(3)).double()
    model.fit(weighed)

    def solved(matrix, vectors):
        rows = []
        for row in matrix:
            trust, chosen = 1 + 5.0 * row, (row > 0).double()
            penalty = 0.3 * trust.sum() * torch.eye(2, dtype=torch.float64)
            system = (vectors.T * trust) @ vectors + penalty
            rows.append(torch.linalg.solve(system, vectors.T @ (trust * chosen)))
        return torch.stack(rows)

    wanted = solved(values.T, solved(values, items))
    torch.testing.assert_close(model.item_vectors.double(), wanted, rtol=1e-4, atol=1e-4)


def test_neighbours_cannot_be_weighed(weighed):
    with pytest.raises(ValueError, match="ItemKNN counts all that users had alike: no weights"):
        ItemKNN(4).fit(weighed)
