"""Item2Vec on simulated baskets: clusters, both ways to train it, and recommending by cosine."""

import pytest
import torch

import widemax as wm
from widemax.data import Sequences, WindowBatch
from widemax.data.summary import DataSummary
from widemax.models import train_word2vec
from widemax.models.building import RunSetup
from widemax.models.embeddings.item2vec import Item2Vec, shuffled_baskets
from widemax.models.embeddings.kernel_steps import refusal
from widemax.optim import RowAdagrad
from widemax.runs.training.preparing import prepare
from widemax.training.gradients.steps import GradientSteps

CLUSTERS, SIZE = 8, 10
V = CLUSTERS * SIZE
CLUSTER = torch.arange(V) % CLUSTERS


def baskets(num_baskets=1500, seed=0):
    """Five different items, four of them of one cluster and one of any."""
    generator = torch.Generator().manual_seed(seed)
    lists = []
    for cluster in torch.randint(CLUSTERS, (num_baskets,), generator=generator).tolist():
        own = cluster + CLUSTERS * torch.randperm(SIZE, generator=generator)[:4]
        other = torch.randint(V, (1,), generator=generator)
        lists.append(torch.cat([other, own]).tolist())
    return Sequences.from_lists(lists)


def untrained(sequences, seed=0, **options):
    torch.manual_seed(seed)
    counts = torch.bincount(sequences.values, minlength=V)
    return Item2Vec.create(counts, dimension=16, **options)


def by_kernel(sequences, seed=0):
    model = untrained(sequences)
    train_word2vec(model, sequences, window=50, epochs=20, threads=1, seed=seed)
    return model


def by_gradients(sequences, seed=0, steps=150):
    model = untrained(sequences)
    windows = model.windows(sequences, max_history=1, window=8)
    optimizer = RowAdagrad(model.parameters(), lr=0.2)
    taken = GradientSteps(model, optimizer, windows, batch_size=256, seed=seed)
    for step in range(steps):
        taken.take(step, 0.2)
    return model


def asked(context):
    context = torch.tensor(context)
    return WindowBatch(context=context, targets=torch.full((len(context),), -1))


@pytest.mark.parametrize("train", [by_kernel, by_gradients])
def test_the_nearest_items_are_those_of_the_cluster(train):
    model = train(baskets())
    batch = asked([[y] for y in range(V)])
    found = model.topk(batch, SIZE - 1, exclude=batch.context).ids
    right = (CLUSTER[found] == CLUSTER[:, None]).double().mean()
    assert right > 0.95, f"by chance {(SIZE - 1) / (V - 1):.2f}, got {right:.2f}"


@pytest.mark.parametrize("train", [by_kernel, by_gradients])
def test_the_same_seed_gives_the_same_bits(train):
    sequences = baskets(200)
    options = {"steps": 10} if train is by_gradients else {}
    first, second, other = (
        train(sequences, seed=seed, **options).key_vectors() for seed in (1, 1, 2)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_the_kernel_trains_it_as_it_is():
    for distortion in (-0.5, 0.0, 0.75):
        assert refusal(untrained(baskets(50), distortion=distortion)) == ""


def test_scores_are_means_of_products_with_output_vectors():
    model = by_kernel(baskets(100)).double().requires_grad_(False)
    context = [[3, -1, 7, 3], [-1, -1, -1, 5], [-1, -1, -1, -1]]
    inputs, outputs = model.encoder.weight, model.head.scorer.weight
    scores = model.scores(asked(context))
    for row, history in enumerate(context):
        items = [item for item in history if item >= 0]
        for y in range(V):
            products = [float(inputs[item] @ outputs[y]) for item in items]
            assert abs(float(scores[row, y]) - sum(products) / max(1, len(items))) < 1e-12


def test_negatives_drawn_alike_leave_the_popularity_in_the_scores():
    """All baskets are random, so that popularity is all there is to learn."""
    generator = torch.Generator().manual_seed(0)
    weights = 1 / torch.arange(1.0, V + 1)
    rows = torch.multinomial(weights.expand(3000, V), 5, generator=generator)
    sequences = Sequences(rows.flatten(), torch.arange(3001) * 5)
    log_counts = torch.bincount(sequences.values, minlength=V).double().log()
    correlation = {}
    for distortion in (0.0, 1.0):
        model = untrained(sequences, distortion=distortion)
        train_word2vec(model, sequences, window=50, epochs=10, threads=1)
        scores = model.scores(asked([[y] for y in range(V)])).detach().double().mean(0)
        correlation[distortion] = float(torch.stack([scores, log_counts]).corrcoef()[0, 1])
    assert correlation[0.0] > 0.95
    assert correlation[1.0] < 0.8


def test_each_pair_has_negatives_of_its_own():
    sequences = baskets(50)
    model = untrained(sequences, num_samples=3)
    drawn = model.head.sampler.sample(3, torch.arange(20))
    assert drawn.ids.shape == (20, 3)


@pytest.mark.parametrize("distortion", [-0.5, 0.0, 0.5])
def test_negatives_are_drawn_by_a_power_of_the_counts(distortion):
    counts = torch.tensor([100, 25, 4, 1, 0])
    model = Item2Vec.create(counts, dimension=4, distortion=distortion)
    weights = [float(count) ** distortion if count else 0.0 for count in counts]
    found = model.head.sampler.log_prob(torch.arange(5)).exp()
    expected = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_shuffling_keeps_every_basket_and_makes_all_orders_alike():
    sequences = Sequences.from_lists([[0, 1, 2], [], [3]] + [[0, 1, 2]] * 2999)
    found = shuffled_baskets(sequences, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found.offsets, sequences.offsets)
    assert int(found.values[3]) == 3
    rows = torch.cat([found.values[:3], found.values[4:]]).view(-1, 3)
    assert (rows.sort(1).values == torch.arange(3)).all()
    orders = rows.unique(dim=0, return_counts=True)[1]
    assert len(orders) == 6
    assert orders.min() > 400, "500 of each are expected, with a deviation of 20"
    again = shuffled_baskets(sequences, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found.values, again.values)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Item2Vec.create([1, 1], distortion=float("nan")), "distortion"),
        (lambda: Item2Vec.create([1, 1], distortion=11.0), "distortion"),
        (lambda: Item2Vec.create([0, 0]), "counts"),
        (lambda: Item2Vec.create([1, -1]), "counts"),
        (lambda: Item2Vec.create([1, 1], num_samples=0), "num_samples"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("order", "alike"), [("kept", True), ("ignored", False)])
def test_a_run_shuffles_baskets_that_have_no_order(tmp_path, order, alike):
    (tmp_path / "log").write_text("".join(f"{u} 1 2 3 4 5 6 7 8 9\n" for u in range(9)))
    config = wm.Config(kind="lists", model="item2vec", item_order=order, dimension=4, test_size=0)
    training = prepare(tmp_path / "log", config, tmp_path / "run")
    setup = RunSetup(config, DataSummary.of(training.source), training.split.sequences)
    read = training.split.sequences
    found = training.model.training_sequences(setup, read)
    assert torch.equal(found.values, read.values) == alike
    assert torch.equal(found.offsets, read.offsets)
    assert torch.equal(found.values.sort().values, read.values.sort().values)
