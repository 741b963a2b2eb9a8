"""New items beside those that they are most like, in the Airbnb model and in its runs."""

import pytest
import torch
from torch.nn.functional import normalize

import widemax as wm
from tests.models.feature_tables import features_of
from tests.models.test_airbnb import ALIKE, NUM_MARKETS, STYLES, market_log, train
from widemax.models import Airbnb, nearest_known, place_new_classes, place_new_items
from widemax.scoring import ShardedTableScorer, TableScorer


def nearest_by_hand(codes, known, k, numbers):
    """Sort all known items of the market by what they share, their distance and their id."""
    found = []
    for new, row in enumerate(codes.tolist()):
        if known[new]:
            found.append([-1] * k)
            continue
        everyone = [y for y in range(len(codes)) if known[y]]
        there = [y for y in everyone if codes[y, 0] == row[0] != 0] or everyone

        def order(y, row=row, new=new):
            shared = sum(a == b != 0 for a, b in zip(row, codes[y].tolist(), strict=True))
            return -shared, float((numbers[y] - numbers[new]).norm()), y

        best = [y for y in sorted(there, key=order) if order(y)[0] < 0][:k]
        found.append(best + [-1] * (k - len(best)))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_are_those_that_a_loop_finds(seed):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(5, (60, 3), generator=generator)
    known = torch.rand(60, generator=generator) < 0.6
    known[codes[:, 0] == 4] = False  # a market of new items only
    numbers = torch.randint(3, (60, 2), generator=generator).double()
    found = nearest_known(codes, known, 3, numbers=numbers)
    assert found.tolist() == nearest_by_hand(codes, known, 3, numbers)


def test_the_market_comes_first_and_a_distance_is_less_than_a_feature():
    codes = torch.tensor([[1, 1, 1], [1, 2, 2], [2, 2, 2], [1, 2, 1], [1, 2, 2]])
    known = torch.tensor([True, True, True, True, False])
    numbers = torch.tensor([[0.0], [1e6], [0.0], [0.0], [0.0]])
    assert nearest_known(codes, known, 4, numbers=numbers)[4].tolist() == [1, 3, 0, -1]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([[1, 1], [0, 0]], [-1]),  # nothing is known of the new item
        ([[1, 1], [2, 2]], [-1]),  # nothing is shared
        ([[0, 0], [0, 0]], [-1]),  # what is unknown of both is not shared
        ([[1, 1], [2, 1]], [0]),  # nobody of its market, but of its other feature
    ],
)
def test_what_shares_nothing_is_no_neighbour(codes, expected):
    assert (
        nearest_known(torch.tensor(codes), torch.tensor([True, False]), 1)[1].tolist() == expected
    )


def test_rows_without_neighbours_stay_and_others_are_means():
    table = torch.tensor([[1.0, 0.0], [3.0, 2.0], [9.0, 9.0], [7.0, 7.0], [0.0, 0.0]])
    nearest = torch.tensor([[-1, -1], [-1, -1], [0, 1], [-1, -1], [1, -1]])
    place_new_items(table, nearest)
    assert table.tolist() == [[1, 0], [3, 2], [2, 1], [7, 7], [3, 2]]


@pytest.mark.parametrize("shard_by", ["mod", "div"])
def test_a_table_in_shards_gets_what_one_table_gets(shard_by):
    torch.manual_seed(0)
    one = TableScorer(7, 3, bias=True)
    torch.nn.init.normal_(one.bias)
    weight, bias = one.weight.detach(), one.bias.detach()
    shards = ShardedTableScorer.from_table(weight, bias, num_shards=3, shard_by=shard_by)
    nearest = torch.full((7, 2), -1)
    nearest[[1, 3, 6]] = torch.tensor([[0, 2], [4, -1], [5, 0]])
    for scorer in (one, shards):
        place_new_classes(scorer, nearest)
    assert torch.equal(one.weight, shards.class_vectors())
    assert torch.equal(one.bias, shards.class_biases())
    torch.testing.assert_close(one.weight[1], (weight[0] + weight[2]) / 2)
    assert one.bias[3] == bias[4]


# --- planted: items of a market and a style -------------------------------------------------------


def test_a_new_item_is_placed_among_those_of_its_market_and_style():
    """The last item of each style of each market is in no session; its place is known."""
    log = market_log()
    items = torch.arange(NUM_MARKETS * STYLES * ALIKE)
    new = items % ALIKE == ALIKE - 1
    log = log.kept(~new[log.values])
    counts = torch.bincount(log.values, minlength=len(items))
    styles = items // ALIKE  # one number for each style of each market
    codes = torch.stack([styles // STYLES, styles % STYLES], 1)
    torch.manual_seed(0)
    model = Airbnb.create(counts, item_features=features_of(codes), dimension=16)
    train(model, log, window=2).eval()
    vectors = model.key_vectors().detach()
    unit = normalize(vectors, dim=1)
    cosines = unit[new] @ unit[~new].T
    right = styles[new][:, None] == styles[~new]
    nearest = cosines.topk(ALIKE - 1).indices
    assert right.gather(1, nearest).double().mean() > 0.9
    known = (items[~new], styles[~new])
    for item in items[new][:5].tolist():
        same = known[0][known[1] == styles[item]]
        torch.testing.assert_close(vectors[item], vectors[same].mean(0))
        output = model.head.scorer.weight.detach()
        torch.testing.assert_close(output[item], output[same].mean(0))


def test_training_does_not_move_new_items_and_eval_follows_their_neighbours():
    counts = torch.tensor([5, 5, 5, 0])
    features = features_of(torch.tensor([[0], [1], [1], [1]]))
    torch.manual_seed(0)
    model = Airbnb.create(counts, item_features=features, dimension=4, new_item_neighbours=2)
    assert model.nearest.tolist() == [[-1, -1]] * 3 + [[1, 2]]
    log = wm.Sequences.from_lists([[0, 1, 2], [2, 1, 0]] * 10)
    before = model.key_vectors()[3].clone()
    train(model, log, window=2, steps=20)
    assert torch.equal(model.key_vectors()[3], before)
    model.eval()
    for table in (model.key_vectors(), model.head.scorer.weight):
        torch.testing.assert_close(table[3], table[[1, 2]].mean(0))


# --- runs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Users who stay in one city and style; two homes that nobody has seen."""
    folder = tmp_path_factory.mktemp("homes")
    rows = ["user,item,time"]
    for user in range(240):
        city, style = user % 3, user // 3 % 2
        for time in range(6):
            rows.append(f"u{user},home{city}{style}{(user // 6 + time) % 4},{time}")
    (folder / "log.csv").write_text("\n".join(rows) + "\n")
    homes = [
        f"home{city}{style}{place},city{city},style{style}"
        for city in range(3)
        for style in range(2)
        for place in range(4)
    ]
    homes += ["new01,city0,style1", "new20,city2,style0"]
    (folder / "items.csv").write_text("\n".join(["item,city,style", *homes]) + "\n")
    return folder


def test_a_run_finds_new_items_by_their_features(files, tmp_path):
    config = wm.Config(
        model="airbnb",
        item_features=str(files / "items.csv"),
        dimension=16,
        epochs=8,
        threads=1,
    )
    run = wm.train(files / "log.csv", config, folder=tmp_path / "run")
    for run_again in (run, wm.load(tmp_path / "run")):
        for new, like in (("new01", "home01"), ("new20", "home20")):
            found = [each.key for each in run_again.similar(new, k=4)]
            assert all(key.startswith(like) for key in found), found
        best = run_again.recommend([f"home01{place}" for place in range(4)], k=1)
        assert best[0].key == "new01", "all others of the city and style are seen"
    assert torch.equal(run.model.nearest, wm.load(tmp_path / "run").model.nearest)


def test_a_checkpoint_without_new_items_still_loads():
    features = features_of(torch.tensor([[0], [1], [1]]))
    model = Airbnb.create([5, 5, 5], item_features=features, dimension=4)
    state = model.state_dict()
    del state["nearest"]
    model.load_state_dict(state)
    assert (model.nearest == -1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nearest_known(torch.ones(3, 1).long(), torch.ones(2).bool(), 1),
            "known",
        ),
        (lambda: nearest_known(torch.ones(3, 1).long(), torch.ones(3), 1), "known"),
        (lambda: nearest_known(torch.ones(3, 1).long(), torch.ones(3).bool(), 0), "k must be"),
        (lambda: Airbnb.create([1, 1], new_item_neighbours=0), "new_item_neighbours"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
