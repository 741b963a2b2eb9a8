"""EGES: vectors against brute force, and items that no session has seen found by their fields."""

import copy
import math

import pytest
import torch
from torch.nn.functional import logsigmoid

from tests.models.feature_tables import features_of
from widemax.data import Sequences, WindowBatch
from widemax.data.graph import ItemGraph
from widemax.encoders.side_information import SideInformationEncoder
from widemax.models.embeddings.eges import EGES
from widemax.optim import RowAdagrad
from widemax.training.gradients.steps import GradientSteps

SIDE = torch.tensor([[1, 2, 0], [2, 0, 1], [0, 0, 0], [1, 1, 1], [2, 3, 0], [0, 0, 0]])
NUM_VALUES = [3, 4, 2]
CODES = torch.where(SIDE > 0, SIDE, -1)
SEEN = torch.tensor([True, True, True, False, True, False])


def random_encoder():
    torch.manual_seed(0)
    encoder = SideInformationEncoder(SIDE, NUM_VALUES, 5, seen=SEEN).double()
    torch.nn.init.normal_(encoder.attention)
    return encoder


def by_hand(encoder, codes, attention, own):
    """Σ softmax(a)_s · W_s[code], over the id if there is one and the fields that are known."""
    first_rows = [0, 3, 7]
    attention = attention.detach()
    parts = [] if own is None else [(float(attention[0]), own)]
    for s, code in enumerate(codes):
        if code:
            row = encoder.side_weight[first_rows[s] + code]
            parts.append((float(attention[1 + s]), row))
    total = sum(math.exp(logit) for logit, _ in parts)
    zero = torch.zeros(5, dtype=torch.float64)
    return sum((math.exp(logit) / total * row for logit, row in parts), zero)


def test_vectors_equal_brute_force():
    encoder = random_encoder()
    mean = sum(encoder.attention[i] for i in (0, 1, 2, 4)) / 4
    ids = torch.tensor([[0, 5, 3], [1, 2, 4]])
    vectors = encoder(ids)
    assert vectors.shape == (2, 3, 5)
    for place, item in enumerate(ids.flatten().tolist()):
        seen = bool(SEEN[item])
        attention = encoder.attention[item] if seen else mean
        own = encoder.weight[item] if seen else None
        expected = by_hand(encoder, SIDE[item].tolist(), attention, own)
        torch.testing.assert_close(vectors.view(6, 5)[place], expected)
    new = torch.tensor([[2, 1, 1], [0, 3, 0], [0, 0, 0]])
    for row, codes in enumerate(new.tolist()):
        expected = by_hand(encoder, codes, mean, None)
        torch.testing.assert_close(encoder.vectors_of(new)[row], expected)


def test_gradients_are_right_and_hold_the_rows_of_the_batch_only():
    encoder = random_encoder()
    ids = torch.tensor([0, 4, 0])
    encoder(ids).pow(2).sum().backward()
    for name, rows in (("weight", {0, 4}), ("attention", {0, 4})):
        grad = getattr(encoder, name).grad
        assert grad.is_sparse
        assert set(grad.coalesce().indices()[0].tolist()) == rows
    analytic = {name: p.grad.to_dense() for name, p in encoder.named_parameters()}
    for name, parameter in encoder.named_parameters():
        for place in [(0, 0), (4, 2), (1, 1)]:
            losses = []
            for move in (1e-6, -1e-6):
                moved = copy.deepcopy(encoder)
                with torch.no_grad():
                    getattr(moved, name)[place] += move
                    losses.append(float(moved(ids).pow(2).sum()))
            numeric = (losses[0] - losses[1]) / 2e-6
            assert abs(numeric - float(analytic[name][place])) < 1e-7, (name, place)
        assert parameter.grad is not None


def test_losses_equal_brute_force():
    torch.manual_seed(0)
    counts = torch.tensor([4, 3, 2, 0, 1, 0])
    table = features_of(CODES)
    model = EGES.create(counts, item_features=table, dimension=5, num_samples=2).double()
    side = table.codes
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    drawn = []
    sample = model.head.sampler.sample

    def watched(*arguments, **options):
        drawn.append(sample(*arguments, **options))
        return drawn[-1]

    model.head.sampler.sample = watched
    windows = model.windows(Sequences.from_lists([[0, 1, 4], [2, 0]]), max_history=1, window=2)
    losses = model(windows.batch(torch.arange(5)), generator=torch.Generator().manual_seed(0))
    pairs = [(1, 0), (4, 0), (0, 1), (4, 1), (0, 4), (1, 4), (0, 2), (2, 0)]
    assert len(losses) == len(pairs)
    for place, (known, target) in enumerate(pairs):
        encoder, outputs = model.encoder, model.head.scorer.weight
        hidden = by_hand(
            encoder, side[known].tolist(), encoder.attention[known], encoder.weight[known]
        )
        loss = -logsigmoid(hidden @ outputs[target])
        for each in drawn[0].ids[place].tolist():
            loss = loss - logsigmoid(-(hidden @ outputs[each]))
        torch.testing.assert_close(losses[place], loss)


KINDS, ITEMS_A_KIND, BRANDS = 30, 8, 5
V = KINDS * ITEMS_A_KIND
KIND = torch.arange(V) % KINDS
HIDDEN = torch.arange(V) >= V - KINDS
"""One item of each kind is in no session."""


def simulated_log(seed=0, num_sessions=1500):
    """Sessions of one kind each; the brand of an item means nothing."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(KINDS, (num_sessions, 1), generator=generator)
    member = torch.randint(ITEMS_A_KIND - 1, (num_sessions, 4), generator=generator)
    sessions = Sequences((kind + KINDS * member).flatten(), torch.arange(num_sessions + 1) * 4)
    brand = torch.randint(1, BRANDS, (V,), generator=generator)
    return sessions, torch.stack([KIND + 1, brand], dim=1)


def trained(steps=120, seed=0):
    sessions, side = simulated_log()
    graph = ItemGraph.from_sequences(sessions, num_items=V)
    walks = graph.walks(5, 10, generator=torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    counts = torch.bincount(sessions.values, minlength=V)
    table = features_of(side)
    model = EGES.create(counts, item_features=table, dimension=16, num_samples=5)
    windows = model.windows(walks, max_history=1, window=3)
    optimizer = RowAdagrad(model.parameters(), lr=0.2)
    taken = GradientSteps(model, optimizer, windows, batch_size=256, seed=seed)
    for step in range(steps):
        taken.take(step, 0.2)
    return model, table.codes


def test_items_that_no_session_has_seen_are_found_by_their_fields():
    model, side = trained()
    context = (torch.arange(KINDS)[:, None] + KINDS * torch.tensor([0, 2, 4])).contiguous()
    batch = WindowBatch(context=context, targets=torch.full((KINDS,), -1))
    found = model.topk(batch, 10, exclude=context).ids
    wanted = torch.arange(V)[HIDDEN]
    recall = float((found == wanted[:, None]).any(1).double().mean())
    by_chance = 10 / (V - 3)
    assert recall >= 5 * by_chance, f"recall {recall:.3f}, by chance {by_chance:.3f}"
    assert recall > 0.8
    torch.testing.assert_close(model.vectors_of(side[HIDDEN]), model.key_vectors()[HIDDEN])


def test_scores_are_mean_cosines_and_the_best_have_the_highest():
    model = trained(steps=10)[0].double().requires_grad_(False)
    context = torch.tensor([[3, -1, 7, 3], [-1, -1, -1, V - 1], [-1, -1, -1, -1]])
    batch = WindowBatch(context=context, targets=torch.full((3,), -1))
    vectors = model.key_vectors()
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    scores = model.scores(batch)
    for row, history in enumerate(context.tolist()):
        items = [item for item in history if item >= 0]
        expected = sum((unit @ unit[item] for item in items), torch.zeros(V)) / max(1, len(items))
        torch.testing.assert_close(scores[row], expected.double())
    for row, items in enumerate(context.tolist()):
        scores[row, [item for item in items if item >= 0]] = -torch.inf
    found = model.topk(batch, 6, exclude=context)
    torch.testing.assert_close(found.scores, scores.topk(6).values)
    torch.testing.assert_close(scores.gather(1, found.ids), found.scores)


def test_the_field_that_determines_sessions_gets_the_larger_weight():
    model, _ = trained()
    _, kind, brand = model.encoder.mean_attention().tolist()
    assert kind > brand + 0.2


def test_the_same_seed_gives_the_same_bits():
    first, second, other = (trained(steps=20, seed=seed)[0].key_vectors() for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_a_batch_without_a_neighbour_teaches_nothing():
    model, _ = trained(steps=1)
    batch = WindowBatch(context=torch.tensor([[-1, -1]]), targets=torch.tensor([3]))
    assert model(batch).tolist() == [0.0]


ASKED = WindowBatch(context=torch.tensor([[1]]), targets=torch.tensor([-1]))


def small():
    return EGES.create(torch.ones(6), item_features=features_of(SIDE), dimension=4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SideInformationEncoder(SIDE, [3, 4], 5), "side"),
        (lambda: SideInformationEncoder(SIDE, [3, 3, 2], 5), r"side\[:, 1\]"),
        (lambda: SideInformationEncoder(SIDE - 1, NUM_VALUES, 5), r"side\[:, 0\]"),
        (lambda: SideInformationEncoder(SIDE, [3, 4, 0], 5), "num_values"),
        (lambda: SideInformationEncoder(SIDE[:0], NUM_VALUES, 5), "side"),
        (lambda: SideInformationEncoder(SIDE, NUM_VALUES, 0), "dimension"),
        (lambda: SideInformationEncoder(SIDE, NUM_VALUES, 5, seen=SEEN[:2]), "seen"),
        (lambda: random_encoder()(torch.tensor([6])), "ids"),
        (lambda: random_encoder().vectors_of(torch.tensor([[1, 4, 0]])), "side"),
        (lambda: EGES.create(torch.ones(2), item_features=features_of(SIDE)), "item_features"),
        (lambda: small().topk(ASKED, 7), "k must"),
        (lambda: small().topk(ASKED, 1, exclude=torch.tensor([1])), "exclude"),
        (lambda: small().topk(ASKED, 1, exclude=torch.tensor([[6]])), "exclude"),
        (lambda: small().encode(torch.tensor([[6]])), "context"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
