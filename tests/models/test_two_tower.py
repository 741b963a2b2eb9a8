"""Two towers: the contract of models, cold items, mixed negatives, and what log Q is for."""

import polars as pl
import pytest
import torch

import widemax as wm
from widemax.data import Sequences, SimulatedWorld, WindowBatch
from widemax.data.features.table import FeatureTable
from widemax.encoders.two_tower import TwoTowerEncoder, mean_inputs
from widemax.heads import FullHead, SampledHead
from widemax.models.retrieval.two_tower import TwoTower
from widemax.optim import RowAdam
from widemax.sampling import (
    InBatchSampler,
    UnigramSampler,
)
from widemax.scoring import TableScorer
from widemax.scoring.tower import TowerScorer

V = 12


def features(size, prefix="i"):
    keys = [f"{prefix}{row}" for row in range(size)]
    frame = pl.DataFrame({"key": keys, "group": [f"g{row % 3}" for row in range(size)]})
    return FeatureTable.fit(frame, keys, key_column="key")


def make(**options):
    torch.manual_seed(0)
    settings = {"dimension": 4, "item_features": features(V), "user_features": features(5, "u")}
    return TwoTower.create(torch.arange(V, 0, -1), **{**settings, **options}).double()


def train(model, windows, *, steps, batch_size, rate=0.01, seed=0):
    optimizer = RowAdam(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(steps):
        rows = torch.randint(len(windows), (batch_size,), generator=generator)
        optimizer.zero_grad()
        model(windows.batch(rows), generator=generator).mean().backward()
        optimizer.step()
    return model.eval()


def test_hidden_states_equal_a_plain_loop():
    model = make().eval()
    context = torch.tensor([[-1, 3, 5], [-1, -1, -1], [3, 3, 0]])
    batch = WindowBatch(
        context=context, targets=torch.zeros(3).long(), users=torch.tensor([4, -1, 0])
    )
    items, hidden = model.items, []
    for history, user in zip(context.tolist(), batch.users.tolist(), strict=True):
        seen = [item for item in history if item >= 0]
        mean = torch.zeros(items.input_dimension).double()
        for item in seen:
            both = [items.weight[item], items.features(torch.tensor([item]))[0]]
            mean = mean + torch.cat(both) / len(seen)
        value = torch.cat([mean, model.encoder.features(torch.tensor([user]))[0]])
        first, _, last = model.encoder.tower
        hidden.append(last.weight @ (first.weight @ value + first.bias).clamp(min=0) + last.bias)
    torch.testing.assert_close(model.hidden(batch), torch.stack(hidden))
    nobody = WindowBatch(context=context, targets=batch.targets, users=torch.full((3,), -1))
    torch.testing.assert_close(model.encode(context), model.hidden(nobody))
    unknown = WindowBatch(context=context, targets=batch.targets)
    torch.testing.assert_close(model.encode(context), model.hidden(unknown))
    best = model.topk(batch, 3, exclude=context)
    torch.testing.assert_close(best.scores, model.scores(batch).gather(1, best.ids))


@pytest.mark.parametrize("which", ["in-batch", "mixed", "full", "no features"])
def test_every_part_learns(which):
    if which == "mixed":
        mixture = {"sampler": "mixture", "mixture": "in-batch=1, uniform=1", "num_samples": 12}
        model = make(**mixture, id_dropout=0.3)
    elif which == "no features":
        model = make(item_features=None, user_features=None)
        assert model.items.id_dropout == 0, "an id that nothing stands in for is never left out"
        model.items.id_dropout = 0.3
    else:
        model = make(id_dropout=0.3)
    assert model.items.id_dropout == 0.3
    if which == "full":
        model = TwoTower(model.encoder, FullHead(model.items))
    sequences = Sequences.from_lists([[0, 1, 2, 5], [3, 4, 5], [6, 7, 11, 10], [8, 9, 0], [1, 0]])
    windows = TwoTower.windows(sequences, max_history=5, window=1)
    batch = windows.batch(torch.arange(len(windows)))
    losses = model(batch, generator=torch.Generator().manual_seed(0))
    losses.sum().backward()
    assert losses.shape == (len(windows),)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.to_dense().isfinite().all(), name
        assert parameter.grad.to_dense().abs().sum() > 0, name


def test_the_same_seed_gives_the_same_bits():
    sequences = Sequences.from_lists([[0, 1, 2, 5], [3, 4, 5], [6, 7, 11, 10]])
    windows = TwoTower.windows(sequences, max_history=5, window=1)
    models = [train(make(user_features=None), windows, steps=3, batch_size=4) for _ in range(2)]
    for left, right in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("sampler", ["in-batch", "queue"])
def test_log_q_of_the_batch_comes_from_the_counts(sampler):
    """Classes as popular as these are several times in a batch."""
    model = TwoTower.create(torch.tensor([90, 9, 1, 0]), dimension=4, sampler=sampler)
    candidates = model.head.sampler.sample(None, torch.tensor([0] * 18 + [1, 2]))
    expected = 20 * torch.tensor([90, 9, 1], dtype=torch.float64) / 101  # never seen counts once
    log_count = candidates.log_expected_count[[0, 18, 19]]
    torch.testing.assert_close(log_count, expected.log(), atol=1e-6, rtol=0)


def test_log_q_follows_targets_that_are_not_what_was_counted():
    for kind in (wm.models.SkipGram, wm.models.Airbnb, wm.models.EGES):
        model = kind.create(
            torch.tensor([90, 9, 1]),
            dimension=4,
            trainer="torch",
            sampler="in-batch",
            objective="sampled-softmax",
        )
        assert isinstance(model.head.sampler.frequency, wm.sampling.StreamingFrequency)


def test_classes_that_were_never_counted_are_cold():
    model = TwoTower.create(torch.tensor([3, 0, 1]), dimension=4)
    assert model.items.cold.tolist() == [False, True, False]


def clusters(num_items=300, num_groups=10, num_users=400, length=20, cold=60):
    """Items of groups, users who choose within two groups; the last items are never chosen."""
    generator = torch.Generator().manual_seed(0)
    group = torch.randint(num_groups, (num_items,), generator=generator)
    frame = pl.DataFrame(
        {
            "key": range(num_items),
            "group": [f"g{each}" for each in group.tolist()],
            "noise": torch.randn(num_items, generator=generator).numpy(),
        }
    )
    table = FeatureTable.fit(frame, list(range(num_items)), key_column="key")
    lists, tastes = [], []
    for _ in range(num_users):
        taste = torch.randperm(num_groups, generator=generator)[:2]
        own = torch.isin(group[:-cold], taste).nonzero()[:, 0]
        lists.append(own[torch.randint(len(own), (length,), generator=generator)].tolist())
        tastes.append(taste)
    return Sequences.from_lists(lists), table, group, torch.stack(tastes)


def test_items_held_out_of_training_are_recommended_by_their_features():
    """Each user's cold items must be among the first 20 of 300 five times as often as by chance."""
    cold, k = 60, 20
    sequences, table, group, tastes = clusters(cold=cold)
    size = len(table)
    counts = torch.bincount(sequences.values, minlength=size)
    torch.manual_seed(0)
    model = TwoTower.create(counts, dimension=16, item_features=table, id_dropout=0.2)
    assert int(model.items.cold.sum()) >= cold
    windows = TwoTower.windows(sequences, max_history=20, window=1)
    train(model, windows, steps=150, batch_size=64, rate=0.01)
    asked = sequences.offsets[1:] - 1
    batch = TwoTower.windows(sequences, max_history=20, window=1, positions=asked).batch(
        torch.arange(len(sequences))
    )
    with torch.no_grad():
        found = model.topk(batch, k, exclude=batch.context).ids
        new = torch.arange(size - cold, size)
        liked = (group[new][None, :, None] == tastes[:, None, :]).any(-1)
    hits = (found[:, :, None] == new).any(1)
    recall = (hits & liked).sum() / liked.sum()
    assert recall.item() > 5 * k / size
    assert (hits & liked).sum() > 5 * (hits & ~liked).sum()
    # An item of which only a table is known lies where the class lies.
    with torch.no_grad():
        torch.testing.assert_close(
            model.items.vectors_of(table)[-cold:], model.items.class_vectors()[-cold:]
        )


def test_in_batch_candidates_find_more_than_popularity_does():
    world = SimulatedWorld.create(
        num_classes=200, num_users=300, dimension=4, exponent=0.5, sharpness=6.0
    )
    generator = torch.Generator().manual_seed(1)
    users = torch.arange(300).repeat_interleave(30)
    chosen = world.sample(users, generator=generator).view(300, 30)
    sequences = Sequences.from_lists(chosen.tolist())
    counts = torch.bincount(chosen[:, :-1].flatten(), minlength=200)
    torch.manual_seed(0)
    model = TwoTower.create(counts, dimension=16)
    training, _ = sequences.split_last()
    windows = TwoTower.windows(training, max_history=30, window=1)
    train(model, windows, steps=200, batch_size=64, rate=0.01)
    last = TwoTower.windows(
        sequences, max_history=30, window=1, positions=sequences.offsets[1:] - 1
    ).batch(torch.arange(300))
    with torch.no_grad():
        found = model.topk(last, 10).ids
    # The truth itself, not one draw from it: how much of P(y | user) the first ten hold.
    truth = world.log_prob(torch.arange(300)).exp()
    share = truth.gather(1, found).sum(1).mean()
    popular = truth[:, counts.topk(10).indices].sum(1).mean()
    best = truth.topk(10).values.sum(1).mean()
    assert share > popular + 0.5 * (best - popular)


@pytest.mark.parametrize(("corrected", "low", "high"), [(True, 0.8, 1.2), (False, -0.2, 0.2)])
def test_with_log_q_scores_learn_popularity_and_without_it_they_do_not(corrected, low, high):
    """Nothing but popularity to learn: F must be log P + constant, or with no log Q a constant."""
    size = 30
    log_prob = torch.log_softmax(-0.7 * torch.arange(1, size + 1).log(), 0)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(log_prob.exp(), 8000, replacement=True, generator=generator)
    sequences = Sequences.from_lists(drawn.view(-1, 2).tolist())
    windows = TwoTower.windows(sequences, max_history=1, window=1)
    torch.manual_seed(0)
    counts = torch.bincount(drawn, minlength=size)
    options = {} if corrected else {"objective": "info-nce"}
    exact = InBatchSampler(size, UnigramSampler(size, counts, distortion=1.0))
    model = TwoTower.create(counts, dimension=8, **options)
    model.head.sampler = exact
    train(model, windows, steps=200, batch_size=64, rate=0.01)
    with torch.no_grad():
        scores = model.scores(windows.batch(torch.arange(1000))).mean(0)
    centred = log_prob - log_prob.mean()
    slope = (scores * centred).sum() / centred.square().sum()
    assert low < slope.item() < high


def test_wrong_parts_are_refused():
    items = TowerScorer(V, 4, id_dimension=4)
    with pytest.raises(ValueError, match="TowerScorer"):
        TwoTower(TwoTowerEncoder(4, 4), FullHead(TableScorer(V, 4)))
    with pytest.raises(ValueError, match="history_dimension = 4, got 5"):
        TwoTower(TwoTowerEncoder(5, 4), FullHead(items))
    with pytest.raises(ValueError, match="dimension = 4, got 3"):
        TwoTower(TwoTowerEncoder(4, 3), FullHead(items))
    for counts, named in (
        (torch.tensor([1.5]), "counts"),
        (torch.tensor([[1]]), "counts"),
        (torch.tensor([-1]), "at least 0"),
        (torch.empty(0, dtype=torch.int64), "counts"),
    ):
        with pytest.raises(ValueError, match=named):
            TwoTower.create(counts)
    with pytest.raises(ValueError, match="row for each"):
        TwoTower.create(torch.ones(V + 1).long(), item_features=features(V))
    assert make(feature_dimension=3).items.features.output_dimension == 3
    assert make().items.features.output_dimension == 16
    with pytest.raises(ValueError, match="context"):
        mean_inputs(items, torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="context"):
        mean_inputs(items, torch.tensor([[V]]))
    with pytest.raises(ValueError, match="features must be"):
        TwoTowerEncoder(4, 4, features=torch.nn.Linear(1, 1))
    assert isinstance(make().head, SampledHead)
