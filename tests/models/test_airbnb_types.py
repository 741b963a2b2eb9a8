"""Types of users and items: the pairs of the loss, planted tastes, refusals, and whole runs."""

import pytest
import torch
from torch.nn.functional import logsigmoid

import widemax as wm
from tests.models.feature_tables import features_of
from widemax.cli import main
from widemax.data import Sequences, WindowBatch
from widemax.models import AirbnbTypes, RequestWindows, types_of
from widemax.optim import RowAdagrad
from widemax.training.gradients.steps import GradientSteps

KINDS, ALIKE, USER_KINDS = 8, 5, 4
"""Items: five of each of eight kinds; users are of four kinds."""
ITEM_KINDS = torch.arange(KINDS * ALIKE) % KINDS


def train(model, examples, *, steps=150, rate=0.3):
    optimizer = RowAdagrad(model.parameters(), lr=rate)
    taken = GradientSteps(model, optimizer, examples, batch_size=256, seed=0)
    for step in range(steps):
        taken.take(step, rate)
    return model.eval()


def create(user_kinds, counts=None, **options):
    torch.manual_seed(0)
    counts = torch.ones(len(ITEM_KINDS)) if counts is None else counts
    return AirbnbTypes.create(
        counts,
        item_features=features_of(ITEM_KINDS[:, None]),
        user_features=features_of(user_kinds[:, None]),
        **{"dimension": 12, **options},
    )


def asked(users, history=(), width=3):
    context = torch.full((len(users), width), -1)
    for row, items in enumerate(history):
        context[row, width - len(items) :] = torch.tensor(items)
    return WindowBatch(
        context=context, targets=torch.full((len(users),), -1), users=torch.tensor(users)
    )


def kind_scores(model, batch):
    """The score of each kind: all items of one have the same."""
    scores = model.scores(batch).detach()
    by_kind = torch.stack([scores[:, kind == ITEM_KINDS] for kind in range(KINDS)], 1)
    assert (by_kind == by_kind[..., :1]).all()
    return by_kind[..., 0]


# --- types and examples --------------------------------------------------------------------------


def test_a_type_is_a_combination_of_categories():
    codes = torch.tensor([[0, 0], [0, 1], [1, 0], [0, 1], [-1, 0]])
    types, number = types_of(features_of(codes), 5)
    assert number == 4
    assert types[1] == types[3]
    assert len(set(types.tolist())) == 4
    assert [each.tolist() if i == 0 else each for i, each in enumerate(types_of(None, 3))] == [
        [0, 0, 0],
        1,
    ]


def test_refusals_are_examples_of_their_own_and_in_nobodys_context():
    requests = Sequences.from_lists([[4, 0, 2, 3], [], [1, 5]])
    booked = torch.tensor([True, False, True, True, False, True])
    windows = RequestWindows(requests, window=2, booked=booked)
    batch = windows.batch(torch.tensor([5, 0, 1, 4, 3]))
    assert batch.targets.tolist() == [4, 2, 5, 1, 0], "bookings first, in the order asked for"
    assert batch.users.tolist() == [0, 0, 2, 2, 0]
    assert batch.refused.tolist() == [False, False, False, True, True]
    assert batch.context.tolist() == [
        [-1, -1, 2, 3],
        [-1, 4, 3, -1],
        *[[-1] * 4] * 3,
    ]


def test_losses_equal_brute_force_over_pairs():
    user_kinds = torch.tensor([0, 1, 1])
    model = create(user_kinds, type_negatives=3).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    requests = Sequences.from_lists([[0, 1, 10], [2], [3, 4]])
    booked = torch.tensor([True, True, True, False, True, False])
    windows = RequestWindows(requests, window=1, booked=booked)
    drawn = []
    for sampler in (model.item_sampler, model.user_sampler):
        draw = sampler.draw

        def watched(*arguments, draw=draw, **options):
            drawn.append(draw(*arguments, **options))
            return drawn[-1]

        sampler.draw = watched
    losses = model(windows.batch(torch.arange(6)), generator=torch.Generator().manual_seed(0))

    encoder, out = model.encoder, model.head.scorer.weight
    a, u = encoder.item_types, encoder.user_types
    items = [("item", 1, 0), ("item", 0, 1), ("item", 10, 1), ("item", 1, 10)]
    items += [("user", 0, 0), ("user", 0, 1), ("user", 0, 10), ("user", 2, 3)]
    expected = []
    for (kind, known, target), negatives in zip(items, drawn[0], strict=True):
        x = encoder.item_weight[a[known]] if kind == "item" else encoder.user_weight[u[known]]
        loss = -logsigmoid(x @ out[a[target]])
        expected.append(loss - sum(logsigmoid(-(x @ out[n])) for n in negatives.tolist()))
    pairs = [(0, 0), (1, 0), (10, 0), (3, 2)]
    for (item, user), negatives in zip(pairs, drawn[1], strict=True):
        x = encoder.item_weight[a[item]]
        loss = -logsigmoid(x @ model.user_output[u[user]])
        negative = (logsigmoid(-(x @ model.user_output[n])) for n in negatives.tolist())
        expected.append(loss - sum(negative))
    for item, user in [(2, 1), (4, 2)]:
        loss = -logsigmoid(-(encoder.user_weight[u[user]] @ out[a[item]]))
        back = encoder.item_weight[a[item]] @ model.user_output[u[user]]
        expected.append(loss - logsigmoid(-back))
    torch.testing.assert_close(losses, torch.stack(expected))


# --- what it is for ------------------------------------------------------------------------------


def taste_log(num_users=400, seed=0):
    """Users of kind k book five items of the kinds 2k and 2k + 1."""
    generator = torch.Generator().manual_seed(seed)
    user_kinds = torch.arange(num_users) % USER_KINDS
    kinds = 2 * user_kinds[:, None] + torch.randint(2, (num_users, 5), generator=generator)
    items = kinds + KINDS * torch.randint(ALIKE, (num_users, 5), generator=generator)
    assert (ITEM_KINDS[items] == kinds).all()
    return user_kinds, Sequences.from_lists(items.tolist())


def test_users_are_placed_beside_the_kinds_that_their_type_books():
    user_kinds, log = taste_log()
    model = train(create(user_kinds), RequestWindows(log, window=2))
    scores = kind_scores(model, asked([0, 1, 2, 3]))
    best = scores.topk(2).indices.sort().values
    assert best.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_who_is_not_known_is_placed_by_their_history():
    user_kinds, log = taste_log()
    model = train(create(user_kinds), RequestWindows(log, window=2))
    scores = kind_scores(model, asked([-1, -1], history=[[2], [7, 6]]))
    assert scores.topk(2).indices.sort().values.tolist() == [[2, 3], [6, 7]]


def test_an_item_that_nobody_booked_is_scored_by_its_type():
    user_kinds, log = taste_log()
    counts = torch.bincount(log.values, minlength=len(ITEM_KINDS))
    new = 2 + KINDS  # another one of its kind is booked all the same
    kept = log.kept(log.values != new)
    counts[new] = 0
    model = train(create(user_kinds, counts), RequestWindows(kept, window=2))
    best = model.topk(asked([1]), 2 * ALIKE).ids[0].tolist()
    assert new in best
    assert set(ITEM_KINDS[best].tolist()) == {2, 3}


def test_within_a_type_items_differ_by_the_log_of_their_share():
    counts = torch.arange(len(ITEM_KINDS)).flip(0) * 3.0
    user_kinds, log = taste_log()
    model = train(create(user_kinds, counts), RequestWindows(log, window=2), steps=20)
    scores = model.scores(asked([0, 1], [[3], [1, 2]])).detach().double()
    for kind in range(KINDS):
        own = kind == ITEM_KINDS
        shares = (counts[own] + 1) / (counts[own] + 1).sum()
        by_type = scores[:, own] - shares.double().log()
        torch.testing.assert_close(by_type, by_type[:, :1].expand_as(by_type), atol=1e-5, rtol=0)


def test_where_all_items_are_of_one_type_the_most_popular_come_first():
    counts = torch.tensor([40, 30, 20, 10])
    model = AirbnbTypes.create(
        counts, item_features=features_of(torch.zeros(4, 1, dtype=torch.int64)), dimension=4
    )
    found = model.log_prob(asked([-1])).exp()
    torch.testing.assert_close(found[0], (counts + 1) / (counts + 1).sum())


def refusal_log(num_users=400):
    """All book kind 0, and users of kind 0 kinds 1 and 2 too; kind 1 refuses users of kind 1."""
    user_kinds = torch.arange(num_users) % 2
    lists, booked = [], []
    for user, kind in enumerate(user_kinds.tolist()):
        place = KINDS * (user // 2 % ALIKE)
        lists.append([place, place + 1, place + 1 if kind else place + 2])
        booked += [True, not kind, not kind]
    return user_kinds, Sequences.from_lists(lists), torch.tensor(booked)


def test_refusals_move_a_type_of_users_away():
    """Nothing else tells kinds 1 and 2 apart."""
    user_kinds, log, booked = refusal_log()
    bookings = log.kept(booked)
    counts = torch.bincount(bookings.values, minlength=len(ITEM_KINDS))
    heard, unheard = (
        kind_scores(train(create(user_kinds, counts), examples), asked([0, 1]))
        for examples in (
            RequestWindows(log, window=2, booked=booked),
            RequestWindows(bookings, window=2),
        )
    )
    first_less_second = heard[:, 1] - heard[:, 2], unheard[:, 1] - unheard[:, 2]
    assert first_less_second[0][1] < -0.7, "the refused are further away"
    assert abs(first_less_second[0][0]) < 0.5, "for others both kinds are alike"
    assert (first_less_second[1].abs() < 0.5).all(), "as they are if nobody hears of refusals"


# --- runs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A log of requests with features of users and items; item new1 is in no request."""
    folder = tmp_path_factory.mktemp("requests")
    rows = ["user,item,time,accepted"]
    for user in range(200):
        kind, place = user % 2, user // 2 % ALIKE
        for time, (item, accepted) in enumerate(
            [(f"kind{2 * kind}-{place}", 1), (f"kind{2 * kind + 1}-{(place + 1) % ALIKE}", 1)] * 2
            + [(f"kind{2 - 2 * kind}-{place}", 0)]
            + [(f"kind{2 * kind}-{(place + 2) % ALIKE}", 1)]
        ):
            rows.append(f"u{user},{item},{time},{accepted}")
    (folder / "log.csv").write_text("\n".join(rows) + "\n")
    items = [f"kind{kind}-{place},kind{kind}" for kind in range(4) for place in range(ALIKE)]
    (folder / "items.csv").write_text("\n".join(["item,kind", *items, "new1,kind1"]) + "\n")
    users = [f"u{user},{'young' if user % 2 else 'old'}" for user in range(200)]
    (folder / "users.csv").write_text("\n".join(["user,age", *users]) + "\n")
    return folder


def settings(files):
    return {
        "model": "airbnb-types",
        "goal_column": "accepted",
        "item_features": str(files / "items.csv"),
        "user_features": str(files / "users.csv"),
        "dimension": 8,
        "epochs": 20,
        # Items of a type are all alike: no ranking can say when they are learned.
        "validation_size": 0,
        "batch_size": 64,
        "learning_rate": 0.3,
        "threads": 1,
    }


def test_a_run_recommends_by_type_new_items_too(files, tmp_path):
    run = wm.train(files / "log.csv", wm.Config(**settings(files)), folder=tmp_path / "run")
    assert "new1" in run.vocabulary.keys.to_list()
    for run_again in (run, wm.load(tmp_path / "run")):
        for user, kinds in (("u0", ("kind0", "kind1", "new1")), ("u1", ("kind2", "kind3"))):
            found = run_again.recommend(user=user, k=4)
            assert [each.key for each in found if not each.key.startswith(kinds)] == []
    best = run.recommend(user="u0", k=11, include_seen=True)
    assert "new1" in [each.key for each in best]
    refused = {each.key: each.score for each in run.recommend(user="u0", k=21, include_seen=True)}
    assert refused["kind2-0"] < refused["kind3-0"], "kind 2 refuses the old, kind 3 was never asked"
    assert run.evaluate_recommendations().metrics()["recall@20"] > 0.9


def test_the_command_line_trains_it(files, tmp_path, capsys):
    flags = [
        text
        for name, value in {**settings(files), "epochs": 1, "type_negatives": 2}.items()
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    folder = str(tmp_path / "run")
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["train", str(files / "log.csv"), "--folder", folder, *flags])
    assert wm.load(folder).model.num_negatives == 2
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["recommend", folder, "--user", "u0", "--k", "2"])
    assert "kind" in capsys.readouterr().out


def test_types_are_not_continued_with_other_numbers(files, tmp_path):
    """A type has a number that depends on which others there are."""
    config = wm.Config(**settings(files) | {"epochs": 1})
    old = wm.train(files / "log.csv", config, folder=tmp_path / "old")
    with pytest.raises(ValueError, match="AirbnbTypes has no input vectors"):
        wm.train(files / "log.csv", config, folder=tmp_path / "new", vectors=old)
