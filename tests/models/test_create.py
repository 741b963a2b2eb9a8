"""One way to build a model from Python: the settings, defaults and checks of the command line."""

import pytest
import torch

from tests.models.feature_tables import features_of
from widemax.config import Config
from widemax.data import Sequences
from widemax.data.summary import DataSummary
from widemax.declarations import declared, names
from widemax.declarations.table import load
from widemax.devices import plain_torch
from widemax.heads import HierarchicalHead
from widemax.models import MIND, SDM, HistoryModel, Item2Vec, SkipGram, TwoTower, YouTubeDNN
from widemax.models.automatic import with_numbers
from widemax.models.building import build_model
from widemax.objectives import negative_sampling
from widemax.optim import sparse_parameters
from widemax.sampling import UnigramSampler
from widemax.scoring.char_cnn import CharCNNScorer

V = 20
COUNTS = torch.arange(V, 0, -1)
LOG = Sequences.from_lists([[(start + step) % V for step in range(6)] for start in range(V)])
CODES = torch.arange(V)[:, None] % 3
GRADIENTS = [name for name, each in declared("model").items() if "gradients" in each.traits]


def created(name, **options):
    return load(declared("model")[name]).create(COUNTS, corpus=LOG, **options)


@pytest.mark.parametrize("name", names("model"))
def test_every_model_is_what_a_run_with_its_settings_builds(name):
    tables = {"item_features": features_of(CODES), "user_features": features_of(CODES[:5])}
    torch.manual_seed(3)
    model = created(name, **tables)
    torch.manual_seed(3)
    data = DataSummary.from_counts(COUNTS, **tables)
    run = build_model(Config(model=name), data, LOG)
    assert type(model) is type(run) is load(declared("model")[name])
    state, expected = model.state_dict(), run.state_dict()
    assert state.keys() == expected.keys()
    for key, value in state.items():
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize("name", GRADIENTS)
def test_parameters_come_from_the_generator_that_torch_has(name):
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append([each.clone() for each in created(name, seed=7).parameters()])
    pairs = list(zip(*models, strict=True))
    assert all(torch.equal(first, second) for first, second, _ in pairs)
    assert any(not torch.equal(first, other) for first, _, other in pairs)


@pytest.mark.parametrize("name", GRADIENTS)
def test_every_model_that_learns_has_losses_and_answers(name):
    # Of a text this short nearly all words would be left out.
    model = created(name, **({"subsample": 0} if Config(model=name).has("subsample") else {}))
    reach = with_numbers(Config(model=name), 0).get("max_history", 4)
    batch = model.windows(LOG, max_history=reach, window=1).batch(torch.tensor([2, 7, 30]))
    losses = model(batch, generator=torch.Generator().manual_seed(0))
    losses.sum().backward()
    assert bool(losses.isfinite().all())
    grads = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    assert grads
    assert {name for name, each in grads.items() if each.is_sparse} <= set(sparse_parameters(model))
    with torch.no_grad():
        assert model.eval().topk(batch, 4).ids.shape == (3, 4)


def losses_and_gradients(model, batch):
    model.zero_grad()
    losses = model(batch, generator=torch.Generator().manual_seed(0))
    losses.sum().backward()
    grads = {n: p.grad.to_dense() for n, p in model.named_parameters() if p.grad is not None}
    return losses.detach(), grads


def model_and_batch(name):
    torch.manual_seed(0)
    model = created(name, **({"subsample": 0} if Config(model=name).has("subsample") else {}))
    reach = with_numbers(Config(model=name), 0).get("max_history", 4)
    windows = model.windows(LOG, max_history=reach, window=1)
    return model.eval(), windows.batch(torch.tensor([2, 7, 30]))


@pytest.mark.parametrize("name", GRADIENTS)
def test_every_model_learns_the_same_without_kernels(name):
    """As an accelerator computes: by torch's own operations alone."""
    model, batch = model_and_batch(name)
    expected = losses_and_gradients(model, batch)
    with plain_torch():
        found = losses_and_gradients(model, batch)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", GRADIENTS)
def test_every_model_learns_in_mixed_precision(name):
    model, batch = model_and_batch(name)
    expected, slopes = losses_and_gradients(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        losses, grads = losses_and_gradients(model, batch)
    assert losses.dtype == torch.float32
    assert grads.keys() == slopes.keys()
    # bfloat16 keeps 8 bits of a product.
    torch.testing.assert_close(losses, expected, rtol=0.05, atol=0.05)


def test_words_are_usually_trained_by_the_kernel_with_5_negatives():
    model = SkipGram.create(COUNTS)
    assert (model.head.num_samples, model.encoder.dimension) == (5, 100)
    assert isinstance(model.head.sampler, UnigramSampler)
    assert model.head.objective is negative_sampling
    assert not model.head.scorer.weight.any()
    assert float(model.encoder.weight.detach().abs().max()) <= 0.01
    assert isinstance(SkipGram.create(COUNTS, head="hierarchical").head, HierarchicalHead)
    assert SkipGram.create(COUNTS, objective="sampled-softmax").head.scorer.weight.any()


@pytest.mark.parametrize("kind", [YouTubeDNN, MIND, SDM])
def test_more_distinct_draws_than_half_of_the_classes_are_refused_where_they_are_given(kind):
    assert kind.create(COUNTS, num_samples=10).head.num_samples == 10
    assert kind.create(COUNTS).head.num_samples == 10, "the usual number is reduced"
    message = r"num_samples must be at most 10, half of the classes .* got 11"
    with pytest.raises(ValueError, match=message):
        kind.create(COUNTS, num_samples=11)
    assert kind.create(COUNTS, num_samples=11, unique=False).head.num_samples == 11
    config = Config(model="mind", num_samples=11)
    model = build_model(config, DataSummary.from_counts(COUNTS))
    assert model.head.num_samples == 10, "a run takes what there is, and says so"


def test_half_of_the_classes_means_those_that_can_be_drawn():
    counts = [5, 4, 3, 2, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="num_samples must be at most 2, half of the classes that"):
        YouTubeDNN.create(counts, sampler="unigram", num_samples=3, extra_count=0.0)


@pytest.mark.parametrize("name", ["youtube-dnn", "mind", "sdm", "sasrec"])
def test_the_output_layer_shares_the_items_unless_it_is_told_otherwise(name):
    model = created(name)
    assert model.head.scorer.weight is model.encoder.items.weight
    model = created(name, tied=False)
    assert model.head.scorer.weight is not model.encoder.items.weight
    assert not torch.equal(model.head.scorer.weight, model.encoder.items.weight)


@pytest.mark.parametrize("name", ["youtube-dnn", "mind", "sdm"])
def test_features_of_users_have_vectors_of_the_length_that_is_set(name):
    for given, length in (({}, 16), ({"feature_dimension": 5}, 5)):
        model = created(name, user_features=features_of(CODES[:5]), **given)
        assert model.encoder.user_features.output_dimension == length


def test_a_scorer_that_reads_names_gets_the_keys():
    keys = [f"word{number}" for number in range(V)]
    model = SkipGram.create(COUNTS, keys=keys, scorer="char-cnn", trainer="torch")
    assert isinstance(model.head.scorer, CharCNNScorer)
    with pytest.raises(ValueError, match="keys must have a row for each of 20 classes, got 3"):
        SkipGram.create(COUNTS, keys=keys[:3])


def test_counts_may_be_any_whole_numbers():
    for counts in ([3, 2, 1], torch.tensor([3.0, 2.0, 1.0]), COUNTS[-3:].numpy()):
        keep = SkipGram.create(counts, subsample=0.1).keep
        torch.testing.assert_close(keep, torch.tensor([0.6472, 0.8477, 1.0]), rtol=0, atol=1e-4)


class Undeclared(HistoryModel):
    """A model of somebody who forgot to declare it."""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Undeclared.create(COUNTS), "Undeclared has no declaration"),
        (lambda: MIND.create(COUNTS, num_interest=2), "did you mean 'num_interests'"),
        (lambda: SDM.create(COUNTS, num_interests=2), "has no effect with model = 'sdm'"),
        (lambda: Item2Vec.create(COUNTS, dimension=0), "dimension must be a whole number"),
        (lambda: TwoTower.create(COUNTS, scorer="table"), "scorer must be tower"),
        (lambda: MIND.create([1.5, 1.0]), "counts must be whole numbers, got 1.5 for class 0"),
        (lambda: MIND.create([]), "counts must have shape"),
        (lambda: MIND.create([1, -1]), "counts must be finite and at least 0"),
        (
            lambda: TwoTower.create(COUNTS, item_features=features_of(CODES[:3])),
            "item_features must have a row for each of 20 classes, got 3",
        ),
    ],
)
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
