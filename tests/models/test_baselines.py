"""Popularity, item neighbours, EASE and iALS, each against brute force in float64."""

import copy

import numpy as np
import pytest
import torch

from widemax.data import Holdout, Sequences, WindowBatch
from widemax.evaluation.recommendation import evaluate_recommendations
from widemax.models.baselines.ease import EASE, MAX_EASE_CLASSES
from widemax.models.baselines.ials import IALS
from widemax.models.baselines.item_knn import ItemKNN
from widemax.models.baselines.popularity import Popularity

V = 12
MAKERS = {
    "popularity": Popularity,
    "item_knn": lambda n: ItemKNN(n, num_neighbours=4, shrinkage=1.5),
    "ease": lambda n: EASE(n, regularisation=3.0),
    "ials": lambda n: IALS(n, dimension=4, regularisation=0.01, num_sweeps=6),
}


def random_lists(seed=0, users=40, num_classes=V - 1):
    """Histories with repetitions; the last class is never chosen."""
    draw = np.random.default_rng(seed)
    return [draw.integers(0, num_classes, draw.integers(0, 7)).tolist() for _ in range(users)]


LISTS = random_lists()
CONTEXT = torch.tensor([[-1, -1, 3, 5], [1, 1, 1, 2], [-1, -1, -1, -1], [11, 0, 7, 4]])


@pytest.fixture
def matrix():
    """Who chose what, float64 [users, V] of 0 and 1."""
    chosen = np.zeros((len(LISTS), V))
    for row, items in enumerate(LISTS):
        chosen[row, items] = 1
    return chosen


@pytest.fixture
def asked():
    """The same of the contexts."""
    chosen = np.zeros((len(CONTEXT), V))
    for row, items in enumerate(CONTEXT.tolist()):
        chosen[row, [item for item in items if item >= 0]] = 1
    return chosen


def fitted(name):
    model = MAKERS[name](V)
    model.fit(Sequences.from_lists(LISTS))
    return model


def test_popularity_is_the_share_of_users(matrix):
    model = fitted("popularity")
    smoothed = matrix.sum(0) + 1
    wanted = torch.from_numpy(np.log(smoothed / smoothed.sum())).float()
    torch.testing.assert_close(model.head.scores(CONTEXT), wanted.expand(4, -1))
    torch.testing.assert_close(model.head.log_prob(CONTEXT), wanted.expand(4, -1))


def test_item_knn_is_the_sum_of_the_nearest(matrix, asked):
    shared = matrix.T @ matrix
    users = matrix.sum(0)
    similarity = shared / (np.sqrt(np.outer(users, users)) + 1.5)
    np.fill_diagonal(similarity, 0)
    for row in similarity:
        row[np.argsort(-row, kind="stable")[4:]] = 0
    wanted = torch.from_numpy(asked @ similarity).float()
    torch.testing.assert_close(fitted("item_knn").head.scores(CONTEXT), wanted)


def test_ease_is_the_best_linear_model_of_each_item_by_the_others(matrix, asked):
    """Column by column: a ridge regression on all other columns."""
    weights = np.zeros((V, V))
    for item in range(V):
        others = [j for j in range(V) if j != item]
        x = matrix[:, others]
        weights[others, item] = np.linalg.solve(
            x.T @ x + 3.0 * np.eye(V - 1), x.T @ matrix[:, item]
        )
    wanted = torch.from_numpy(asked @ weights).float()
    torch.testing.assert_close(fitted("ease").head.scores(CONTEXT), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_ials_solves_users_and_items_in_turn(matrix, asked, power):
    def solved(chosen, vectors):
        rows = []
        for row in chosen:
            weight = np.diag(1 + 10.0 * row)
            penalty = 0.5 * weight.sum() ** power
            system = vectors.T @ weight @ vectors + penalty * np.eye(4)
            rows.append(np.linalg.solve(system, vectors.T @ weight @ row))
        return np.stack(rows)

    settings = {"dimension": 4, "regularisation": 0.5, "confidence": 10.0, "num_sweeps": 6}
    model = IALS(V, **settings, penalty_power=power).double()
    model.fit(Sequences.from_lists(LISTS))
    start = torch.empty(V, 4, dtype=torch.float64)
    vectors = start.normal_(std=0.01, generator=torch.Generator().manual_seed(0)).numpy()
    for _ in range(6):
        users = solved(matrix, vectors)
        vectors = solved(matrix.T, users)
    np.testing.assert_allclose(model.item_vectors.numpy(), vectors, rtol=0, atol=1e-10)
    wanted = torch.from_numpy(solved(asked, vectors) @ vectors.T)
    torch.testing.assert_close(model.head.scores(CONTEXT), wanted)


def test_each_sweep_of_ials_lowers_its_objective(matrix):
    def objective(model):
        vectors = model.item_vectors
        context = torch.full((len(LISTS), 7), -1)
        for row, items in enumerate(LISTS):
            context[row, : len(items)] = torch.tensor(items, dtype=torch.int64)
        sets = context.sort(dim=1).values
        sets[:, 1:] = sets[:, 1:].masked_fill(sets[:, 1:] == sets[:, :-1], -1)
        users = model.user_vectors(sets)
        chosen = torch.from_numpy(matrix)
        errors = (1 + 10.0 * chosen) * (chosen - users @ vectors.T) ** 2
        penalty = 0.05 * float(((1 + 10 * chosen).sum(1) * (users**2).sum(1)).sum())
        penalty += 0.05 * float(((1 + 10 * chosen).sum(0) * (vectors**2).sum(1)).sum())
        return float(errors.sum()) + penalty

    values = []
    for sweeps in (1, 2, 4, 8):
        model = IALS(V, dimension=4, regularisation=0.05, confidence=10.0, num_sweeps=sweeps)
        model.double().fit(Sequences.from_lists(LISTS))
        values.append(objective(model))
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]


def test_ials_by_default_weighs_what_was_chosen_a_tenth_of_all_else(matrix):
    model = fitted("ials")
    users = (matrix.sum(1) > 0).sum()
    assert float(model.strength) * matrix.sum() == pytest.approx(0.1 * users * V)
    fixed = IALS(V, dimension=4, regularisation=0.01, num_sweeps=6, confidence=3.0)
    fixed.fit(Sequences.from_lists(LISTS))
    assert float(fixed.strength) == 3.0


@pytest.mark.parametrize("name", MAKERS)
def test_topk_ranks_the_scores_and_leaves_out_what_is_excluded(name):
    model = fitted(name)
    scores = model.scores(WindowBatch(context=CONTEXT, targets=torch.full((4,), -1)))
    exclude = torch.tensor([[0, 1, 1], [2, -1, -1], [-1, -1, -1], [11, 10, 9]])
    found = model.head.topk(CONTEXT, V, exclude=exclude)
    for row in range(4):
        left = set(range(V)) - set(exclude[row].tolist())
        order = sorted(left, key=lambda y: (-scores[row, y].item(), y))
        assert found.ids[row].tolist() == order + [-1] * (V - len(order))
    whole = model.head.log_prob(CONTEXT)
    assert whole.exp().sum(-1).tolist() == pytest.approx([1] * 4, abs=1e-5)
    own = torch.tensor([[1, 2], [3, 3], [4, 0], [5, 6]])
    assert torch.equal(model.head.scores(CONTEXT, own), scores.gather(1, own))
    assert torch.equal(model.head.scores(CONTEXT, own[0]), scores[:, own[0]])
    targets, weights = torch.tensor([1, 2, 3, 4]), torch.tensor([1.0, 0.0, 2.0, 0.5])
    torch.testing.assert_close(
        model.head(CONTEXT, targets, weights=weights), -whole[range(4), targets] * weights
    )


@pytest.mark.parametrize("name", MAKERS)
def test_rows_at_a_time_answer_like_all_at_once(name, monkeypatch):
    model = fitted(name)
    whole = model.head.topk(CONTEXT, 3, exclude=CONTEXT)
    monkeypatch.setattr("widemax.models.context_head._SCORES_AT_ONCE", V)
    parts = model.head.topk(CONTEXT, 3, exclude=CONTEXT)
    assert torch.equal(parts.ids, whole.ids)
    torch.testing.assert_close(parts.scores, whole.scores)
    assert model.head.topk(CONTEXT[:0], 3).ids.shape == (0, 3)


@pytest.mark.parametrize("name", MAKERS)
def test_a_history_is_a_set(name):
    model = fitted(name)
    several = torch.tensor([[5, -1, 3, 5, 3], [3, 5, -1, -1, -1], [-1, -1, -1, 5, 3]])
    scores = model.head.scores(several)
    torch.testing.assert_close(scores[1:], scores[:1].expand(2, -1))


@pytest.mark.parametrize("name", MAKERS)
def test_state_is_all_there_is(name):
    model, other = fitted(name), MAKERS[name](V)
    with pytest.raises(ValueError, match="not been fitted"):
        other.head.scores(CONTEXT)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.head.scores(CONTEXT), model.head.scores(CONTEXT))
    again = copy.deepcopy(model)
    model.fit(Sequences.from_lists([[0, 1]]))
    assert torch.equal(again.head.scores(CONTEXT), other.head.scores(CONTEXT))
    assert not torch.equal(model.head.scores(CONTEXT), other.head.scores(CONTEXT))


@pytest.mark.parametrize("name", ["item_knn", "ease", "ials"])
def test_two_camps_are_told_apart(name):
    """Users choose even items only or odd ones only: right answers share the history's side."""
    draw = np.random.default_rng(1)
    lists = [
        (2 * draw.permutation(6)[: draw.integers(3, 6)] + user % 2).tolist() for user in range(80)
    ]
    sequences = Sequences.from_lists(lists)
    train, held = Holdout.of_last(sequences)
    # One dimension for each camp: with more, iALS has room to learn each user by heart.
    model = IALS(V, dimension=2) if name == "ials" else MAKERS[name](V)
    model.fit(train)
    report = evaluate_recommendations(model.topk, held, ks=(4,))
    assert report.metrics()["hit_rate@4"] > 0.95
    counted = Popularity(V)
    counted.fit(train)
    assert evaluate_recommendations(counted.topk, held, ks=(4,)).metrics()["hit_rate@4"] < 0.8


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_to_fit_is_no_error(name):
    model = MAKERS[name](V)
    model.fit(Sequences.from_lists([[], []]))
    assert bool(model.head.scores(CONTEXT).isfinite().all())
    assert model.head.topk(CONTEXT, 2).ids.tolist() == [[0, 1]] * 4


@pytest.mark.parametrize("name", MAKERS)
def test_bad_input_is_refused(name):
    model = fitted(name)
    with pytest.raises(ValueError, match="sequences must lie between 0 and 11"):
        model.fit(Sequences.from_lists([[V]]))
    with pytest.raises(ValueError, match="hidden must lie between 0 and 11"):
        model.head.scores(torch.tensor([[V]]))
    with pytest.raises(ValueError, match=r"hidden must have shape \[B, H\]"):
        model.head.scores(torch.tensor([1]))
    with pytest.raises(ValueError, match="exclude"):
        model.head.topk(CONTEXT, 1, exclude=torch.tensor([[1]]))
    with pytest.raises(ValueError, match="k must be between 1 and 12, got 13"):
        model.head.topk(CONTEXT, 13)
    with pytest.raises(ValueError, match="num_classes"):
        MAKERS[name](0)


def test_ease_refuses_what_it_could_not_invert():
    with pytest.raises(ValueError, match=f"num_classes must be between 1 and {2**14:,}, got"):
        EASE(MAX_EASE_CLASSES + 1)
    with pytest.raises(ValueError, match="regularisation"):
        EASE(V, regularisation=0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ItemKNN(V, num_neighbours=0), "num_neighbours"),
        (lambda: ItemKNN(2**30, num_neighbours=100), "num_neighbours must be between 1 and 4"),
        (lambda: ItemKNN(V, shrinkage=-1.0), "shrinkage"),
        (lambda: IALS(V, dimension=0), "dimension"),
        (lambda: IALS(V, regularisation=0.0), "regularisation"),
        (lambda: IALS(V, confidence=-1.0), "confidence"),
        (lambda: IALS(V, penalty_power=-1.0), "penalty_power"),
        (lambda: IALS(V, num_sweeps=0), "num_sweeps"),
        (lambda: IALS(2**31, dimension=64), "dimension must be between 1 and 2"),
    ],
)
def test_absurd_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
