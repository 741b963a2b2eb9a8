"""MIND against its routing in plain loops, and on users with more than one interest."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from widemax.data import Sequences, WindowBatch
from widemax.data.splitting.holdout import Holdout
from widemax.encoders.mind import MINDEncoder
from widemax.encoders.routing import squash
from widemax.heads import FullHead
from widemax.models.retrieval.mind import MIND
from widemax.optim import RowAdam
from widemax.scoring import TableScorer
from widemax.training.gradients.steps import GradientSteps

NUM_CLASSES = 12
CONTEXT = torch.tensor(
    [
        [-1, -1, -1, -1, -1, -1, -1, -1, 3],
        [-1, -1, -1, -1, -1, -1, -1, -1, -1],
        [-1, -1, -1, 0, -1, 11, 2, 2, 4],
        [7, 6, 5, 4, 3, 2, 1, 0, 11],
    ]
)
USERS = torch.tensor([1, -1, 0, 2])
BEST_ALONE = 1000.0


class Known(nn.Module):
    """Three numbers for each of three users, others for one who is not known."""

    output_dimension = 3

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 3))

    def forward(self, users):
        return self.table[users]


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def softmax(scores):
    top = max(scores)
    shares = [math.exp(score - top) for score in scores]
    return [share / sum(shares) for share in shares]


def routed(encoder, items):
    """Plain loops: the interests of one user before the tower."""
    count = 1
    if items:
        count = max(1, min(encoder.num_interests, math.floor(math.log2(len(items)))))
    table, bilinear = encoder.items.weight.tolist(), encoder.bilinear.tolist()
    mapped = [[dot(row, table[item]) for row in bilinear] for item in items]
    start = encoder.routing.tolist()
    logits = [start[len(items) - 1 - place][:count] for place in range(len(items))]
    for _ in range(encoder.iterations):
        weights = [softmax(row) for row in logits]
        interests = []
        for k in range(count):
            z = [
                sum(w[k] * c[d] for w, c in zip(weights, mapped, strict=True))
                for d in range(encoder.dimension)
            ]
            length = math.sqrt(dot(z, z))
            interests.append([length / (1 + length**2) * each for each in z])
        logits = [
            [b + dot(x, c) for b, x in zip(row, interests, strict=True)]
            for row, c in zip(logits, mapped, strict=True)
        ]
    return interests


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("interests", [1, 2, 5])
@pytest.mark.parametrize("features", [False, True])
def test_interests_are_the_formula_in_plain_loops(iterations, interests, features):
    encoder = MINDEncoder(
        NUM_CLASSES,
        4,
        (6,) if features else (),
        num_interests=interests,
        iterations=iterations,
        user_features=Known() if features else None,
    ).double()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter)
    found = encoder(CONTEXT, USERS)
    assert found.shape == (4, interests, 4)
    for row, user in enumerate(USERS.tolist()):
        expected = routed(encoder, [item for item in CONTEXT[row].tolist() if item >= 0])
        # Those that a user has not are copies of the first.
        expected += expected[:1] * (interests - len(expected))
        vectors = torch.tensor(expected, dtype=torch.float64) * encoder.gain
        if features:
            known = encoder.user_features.table[user].expand(interests, -1)
            first, last = encoder.tower.layers
            inside = torch.cat([vectors, known], 1) @ first.weight.T + first.bias
            vectors = inside.clamp(min=0) @ last.weight.T + last.bias
        torch.testing.assert_close(found[row], vectors, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("items", "expected"),
    [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2), (7, 2), (8, 3), (15, 3), (16, 4)],
)
def test_users_have_as_many_interests_as_their_items_allow(items, expected):
    encoder = MINDEncoder(NUM_CLASSES, 4, num_interests=4)
    context = torch.arange(items)[None] % NUM_CLASSES
    assert len(encoder(context)[0].unique(dim=0)) == expected


@given(
    st.lists(st.lists(st.integers(-1, NUM_CLASSES - 1), max_size=9), max_size=4), st.integers(0, 4)
)
@settings(max_examples=50, deadline=None)
def test_padding_anywhere_changes_nothing(rows, more):
    encoder = MINDEncoder(NUM_CLASSES, 4, num_interests=3).double()
    width = max((len(row) for row in rows), default=0)
    wide = [[-1] * (width - len(row) + more) + row for row in rows]
    packed = [[item for item in row if item >= 0] for row in rows]
    tight = [[-1] * (width - len(row)) + row for row in packed]
    found = encoder(torch.tensor(wide, dtype=torch.int64).view(len(rows), width + more))
    expected = encoder(torch.tensor(tight, dtype=torch.int64).view(len(rows), width))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_interests_that_a_user_has_not_never_win():
    model, alone = (
        MIND.create(
            torch.ones(NUM_CLASSES), dimension=4, num_interests=count, num_layers=1, hidden_size=6
        )
        for count in (5, 1)
    )
    state = {**model.state_dict(), "encoder.routing": alone.encoder.routing}
    alone.load_state_dict(state)
    few = torch.tensor([[-1, 3, 5, 7], [-1, -1, -1, -1]])
    batch = WindowBatch(context=few, targets=torch.tensor([1, 2]))
    torch.testing.assert_close(model.scores(batch), alone.scores(batch))
    assert torch.equal(model.topk(batch, 5).ids, alone.topk(batch, 5).ids)
    torch.testing.assert_close(
        model.attend(model.hidden(batch), batch.targets), alone.encode(few)[:, 0]
    )


def test_one_interest_points_where_the_mapped_mean_does():
    encoder = MINDEncoder(NUM_CLASSES, 4, num_interests=1).double()
    items = torch.tensor([[1, 5, 7, 2, 9]])
    mean = encoder.items.weight[items[0]].mean(0) @ encoder.bilinear.T
    assert torch.cosine_similarity(encoder(items)[0], mean[None]).item() == pytest.approx(
        1, abs=1e-12
    )


@pytest.mark.parametrize("power", [0.0, 1.0, 2.5, math.inf])
def test_label_attention_is_its_formula(power):
    scorer = TableScorer(NUM_CLASSES, 4).double()
    model = MIND(MINDEncoder(NUM_CLASSES, 4, num_interests=3), FullHead(scorer), power=power)
    interests, targets = torch.randn(5, 3, 4).double(), torch.tensor([0, 3, 3, 7, 11])
    found = model.attend(interests, targets)
    for row in range(5):
        scores = [dot(x, scorer.weight[targets[row]].tolist()) for x in interests[row].tolist()]
        if power == math.inf:
            weights = [float(score == max(scores)) for score in scores]
        else:
            weights = softmax([power * score for score in scores])
        expected = torch.tensor(weights).double() @ interests[row]
        assert weights == pytest.approx([1 / 3] * 3) or power > 0
        torch.testing.assert_close(found[row], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("power", [1.0, BEST_ALONE])
def test_scores_of_any_size_give_finite_gradients(power):
    model = MIND.create(
        torch.ones(NUM_CLASSES), dimension=4, num_interests=3, attention_power=power
    )
    interests = (torch.randn(5, 3, 4) * 1e8).requires_grad_()
    model.attend(interests, torch.arange(5)).sum().backward()
    assert bool(interests.grad.isfinite().all())


@pytest.mark.parametrize("power", [1.0, BEST_ALONE])
def test_gradients_flow_to_items_map_and_tower(power):
    model = MIND.create(
        torch.ones(NUM_CLASSES),
        dimension=4,
        num_interests=2,
        num_layers=1,
        hidden_size=6,
        attention_power=power,
        tied=False,
    )
    batch = WindowBatch(context=CONTEXT, targets=torch.tensor([1, 2, 3, 4]))
    model(batch, generator=torch.Generator().manual_seed(0)).sum().backward()
    for name, parameter in model.named_parameters():
        assert bool(parameter.grad.to_dense().isfinite().all()), name
        assert float(parameter.grad.to_dense().abs().sum()) > 0, name
    touched = model.encoder.items.weight.grad.coalesce().indices()[0]
    assert torch.equal(touched, CONTEXT[CONTEXT >= 0].unique())


def test_gradient_takes_the_routing_as_given():
    """The weights of the last round are numbers: behaviours get their gradient by them alone."""
    encoder = MINDEncoder(NUM_CLASSES, 4, num_interests=2).double()
    out = torch.randn(1, 2, 4).double()
    (encoder(CONTEXT[3:]) * out).sum().backward()
    found = encoder.bilinear.grad.clone()
    items = CONTEXT[3]
    behaviours = (encoder.items.weight[items] @ encoder.bilinear.T).detach()
    logits = encoder.routing[torch.arange(8, -1, -1)]
    for _ in range(2):
        interests = squash(logits.softmax(-1).T @ behaviours)
        logits = logits + behaviours @ interests.T
    bilinear = encoder.bilinear.detach().clone().requires_grad_()
    mapped = encoder.items.weight[items].detach() @ bilinear.T
    (encoder.gain.detach() * squash(logits.softmax(-1).T @ mapped) * out[0]).sum().backward()
    torch.testing.assert_close(found, bilinear.grad, rtol=0, atol=1e-12)


def test_squash_is_smooth_at_0():
    z = torch.zeros(2, 3, requires_grad=True)
    squash(z).sum().backward()
    assert z.grad.tolist() == [[0.0] * 3] * 2


def test_states_go_round_with_the_routing():
    make = {"dimension": 4, "num_interests": 3, "num_layers": 1, "hidden_size": 6}
    model = MIND.create(torch.ones(NUM_CLASSES), **make)
    other = MIND.create(torch.ones(NUM_CLASSES), **make)
    assert not torch.equal(model.encode(CONTEXT), other.encode(CONTEXT))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model.encode(CONTEXT), other.encode(CONTEXT))
    one, two = (
        MINDEncoder(9, 4, generator=torch.Generator().manual_seed(7)).routing for _ in range(2)
    )
    assert torch.equal(one, two)


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("places", [0, 1, 5])
@pytest.mark.parametrize("power", [2.0, BEST_ALONE])
def test_empty_batches_and_empty_histories_are_defined(rows, places, power):
    model = MIND.create(
        torch.ones(3), dimension=4, num_samples=1, attention_power=power, dropout=0.5
    )
    batch = WindowBatch(
        context=torch.full((rows, places), -1), targets=torch.zeros(rows, dtype=torch.int64)
    )
    losses = model(batch, generator=torch.Generator().manual_seed(0))
    assert losses.shape == (rows,)
    assert bool(losses.isfinite().all())
    losses.sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is None or bool(parameter.grad.to_dense().isfinite().all())
    assert model.topk(batch, 2).ids.shape == (rows, 2)


def test_histories_longer_than_the_stored_routing_are_read():
    encoder = MINDEncoder(NUM_CLASSES, 4, num_interests=2)
    interests = encoder(torch.arange(1200)[None] % NUM_CLASSES)
    assert bool(interests.isfinite().all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "num_classes must be between 1"),
        ({"num_interests": 0}, "num_interests must be between 1"),
        ({"iterations": 0}, "iterations must be between 1"),
        ({"layers": [0]}, r"layers\[0\] must be between 1"),
    ],
)
def test_wrong_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MINDEncoder(**{"num_classes": 10, "dimension": 4, **options})


@pytest.mark.parametrize("power", [-1.0, math.nan])
def test_wrong_powers_are_refused(power):
    with pytest.raises(ValueError, match="power must be a finite number of at least 0"):
        MIND(MINDEncoder(10, 4), FullHead(TableScorer(10, 4)), power=power)
    with pytest.raises(ValueError, match="attention_power must be a number between 0 and 1000"):
        MIND.create(torch.ones(10), attention_power=power)


def test_settings_reach_the_routing_and_the_attention():
    usual = MIND.create(torch.ones(10))
    assert (usual.encoder.iterations, usual.power) == (3, math.inf)
    for power in (0.0, 2.5, 999.0):
        model = MIND.create(torch.ones(10), attention_power=power, routing_iterations=7)
        assert (model.encoder.iterations, model.power) == (7, power)


# Scores that serve are those that are trained

# Cosines are usual; these tests are of the lengths that interests have, and of plain products.
DOTS = {"similarity": "dot", "temperature": 1.0, "bias": False, "sampler": "uniform"}


def all_at_once(num_classes, power=BEST_ALONE, **settings):
    """A model in float64 whose proposal is every class, at log-count 0."""
    return MIND.create(
        torch.ones(num_classes),
        dimension=4,
        num_interests=3,
        attention_power=power,
        **{name: DOTS[name] for name in ("similarity", "temperature")},
        bias=True,
        **settings,
    ).double()


HEADS = [{"head": "full"}, {"head": "sampled", "sampler": "all"}]


@pytest.mark.parametrize("settings", HEADS)
def test_the_loss_is_that_of_the_scores_that_serve(settings):
    model = all_at_once(NUM_CLASSES, **settings)
    nn.init.normal_(model.head.scorer.bias)
    targets = torch.tensor([1, 2, 3, 4])
    batch = WindowBatch(context=CONTEXT, targets=targets)
    table, biases = model.head.scorer.weight.tolist(), model.head.scorer.bias.tolist()
    served = model.scores(batch)
    losses = model(batch, generator=torch.Generator().manual_seed(0))
    for row, interests in enumerate(model.encode(CONTEXT).tolist()):
        scores = [
            max(dot(x, vector) for x in interests) + bias
            for vector, bias in zip(table, biases, strict=True)
        ]
        assert served[row].tolist() == pytest.approx(scores, abs=1e-12)
        expected = -math.log(softmax(scores)[targets[row]])
        assert losses[row].item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("scorer", ["differentiated", "table"])
def test_every_scorer_is_trained_on_the_scores_that_serve(scorer):
    model = MIND.create(
        torch.arange(60, 0, -1), dimension=32, num_interests=3, head="full", scorer=scorer
    ).double()
    batch = WindowBatch(context=CONTEXT, targets=torch.tensor([1, 59, 30, 4]))
    expected = nn.functional.cross_entropy(model.scores(batch), batch.targets, reduction="none")
    torch.testing.assert_close(model(batch), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("settings", HEADS)
@pytest.mark.parametrize("power", [0.0, 2.0])
def test_a_target_scores_by_the_attention_and_all_others_by_the_best(settings, power):
    model = all_at_once(NUM_CLASSES, power, **settings)
    batch = WindowBatch(context=CONTEXT, targets=torch.tensor([1, 2, 3, 4]))
    rows, targets = torch.arange(4), batch.targets
    user = model.attend(model.hidden(batch), targets)
    scores = model.scores(batch).clone()
    scores[rows, targets] = model.head.scores(user, targets[:, None])[:, 0]
    expected = nn.functional.cross_entropy(scores, targets, reduction="none")
    torch.testing.assert_close(model(batch), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("settings", [*HEADS, {"per_example": True, "num_samples": 5}])
def test_ignored_targets_have_no_loss(settings):
    model = all_at_once(NUM_CLASSES, **settings)
    targets = torch.tensor([1, -100, 3, 4])
    losses = model(WindowBatch(context=CONTEXT, targets=targets))
    assert losses[1] == 0
    assert bool((losses[[0, 2, 3]] > 0).all())
    nothing = model(WindowBatch(context=CONTEXT, targets=torch.full((4,), -100)))
    assert nothing.tolist() == [0.0] * 4


def test_classes_in_tiles_give_the_same_loss_and_gradient(monkeypatch):
    model = all_at_once(NUM_CLASSES, head="full")
    batch = WindowBatch(context=CONTEXT, targets=torch.tensor([1, 2, 3, 4]))

    def gradients():
        model.zero_grad()
        losses = model(batch)
        losses.sum().backward()
        return [losses.detach(), *(each.grad.to_dense() for each in model.parameters())]

    whole = gradients()
    monkeypatch.setattr("widemax.heads.interests._TILE_SCORES", 60)
    for part, expected in zip(gradients(), whole, strict=True):
        torch.testing.assert_close(part, expected, rtol=0, atol=1e-12)


def test_label_smoothing_reads_the_best_scores_too():
    scorer = TableScorer(NUM_CLASSES, 4).double()
    interests, targets = torch.randn(5, 3, 4).double(), torch.tensor([0, 3, 3, 7, 11])
    head = FullHead(scorer, label_smoothing=0.2)
    best = torch.stack([scorer(each) for each in interests.unbind(1)]).amax(0)
    expected = nn.functional.cross_entropy(best, targets, label_smoothing=0.2, reduction="none")
    model = MIND(MINDEncoder(NUM_CLASSES, 4, num_interests=3), head)
    found = head.interest_losses(interests, model.attend(interests, targets), targets)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 3, 5), (3, 3, 4), (2, 0, 4), (2, 4)])
@pytest.mark.parametrize("settings", HEADS)
def test_wrong_interests_are_refused(settings, shape):
    head = MIND.create(torch.ones(NUM_CLASSES), dimension=4, **settings).head
    with pytest.raises(ValueError, match=r"interests must have shape \[2, K, 4\]"):
        head.interest_losses(torch.zeros(shape), torch.zeros(2, 4), torch.tensor([0, 1]))


@pytest.mark.parametrize("settings", HEADS)
def test_several_targets_of_a_user_are_refused(settings):
    head = MIND.create(torch.ones(NUM_CLASSES), dimension=4, **settings).head
    with pytest.raises(ValueError, match=r"targets must have shape \[2\], one for each user, got"):
        head.interest_losses(torch.zeros(2, 3, 4), torch.zeros(2, 4), torch.zeros(2, 2).long())


# How sharp a softmax can become


def two_of_many(num_classes=400, rows=1000):
    """Users who took two items twice each, and who take one of them again."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.rand(rows, num_classes, generator=generator).argsort(1)[:, :2]
    turn = torch.randint(2, (rows, 1), generator=generator)
    return WindowBatch(context=pairs.repeat_interleave(2, 1), targets=pairs.gather(1, turn)[:, 0])


def test_interests_can_be_sure_among_many_items_of_length_1():
    """Squash alone keeps scores within ±1: no loss here could fall below log(1 + 399/e²) = 4.0."""
    batch = two_of_many()
    model = MIND.create(
        torch.ones(400),
        dimension=32,
        num_interests=2,
        head="full",
        similarity="dot",
        temperature=1.0,
        bias=False,
    )
    table = model.encoder.items.weight
    table.data = nn.functional.normalize(table.data, dim=1)
    table.requires_grad_(False)
    optimizer = RowAdam([each for each in model.parameters() if each.requires_grad], lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
    assert model(batch).mean().item() < math.log(2) + 0.1
    found = model.topk(batch, 2).ids
    assert (found == batch.targets[:, None]).any(1).float().mean().item() == 1.0
    assert model.encoder.gain.item() > 8.5


def test_the_gain_starts_where_told_and_is_part_of_the_state():
    assert MIND.create(torch.ones(10)).encoder.gain.item() == 8.0
    with pytest.raises(ValueError, match="initial_gain has no effect with similarity = 'cosine'"):
        MIND.create(torch.ones(10), initial_gain=3.0)
    model = MIND.create(torch.ones(10), initial_gain=3.0, **DOTS)
    assert model.encoder.gain.item() == 3.0
    assert model.state_dict()["encoder.gain"].item() == 3.0
    with pytest.raises(ValueError, match=r"initial_gain must be a number between 0\.001 and 1000"):
        MIND.create(torch.ones(10), initial_gain=0.0)
    with pytest.raises(ValueError, match="initial_gain must be"):
        MINDEncoder(10, 4, initial_gain=-1.0)


# Users with two interests


def two_interests(num_users=300, num_groups=12, size=6, length=17):
    """Each user takes from two groups of items, now from the one and now from the other."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.rand(num_users, num_groups, generator=generator).argsort(1)[:, :2]
    turn = torch.randint(2, (num_users, length), generator=generator)
    which = torch.randint(size, (num_users, length), generator=generator)
    items = groups.gather(1, turn) * size + which
    return Sequences(items.flatten(), torch.arange(num_users + 1) * length), num_groups * size


def both_found(num_interests):
    """Return how much of two groups is among the best items of users who took from both."""
    torch.manual_seed(0)
    log, num_classes = two_interests()
    train, held = Holdout.of_last(log)
    model = MIND.create(
        torch.ones(num_classes),
        dimension=4,
        num_interests=num_interests,
        num_samples=num_classes // 2,
        initial_gain=1.0,
        **DOTS,
    )
    examples = model.windows(train, max_history=20, window=1)
    steps = GradientSteps(model, RowAdam(model.parameters()), examples, batch_size=256)
    total = 8 * steps.per_epoch
    for step in range(total):
        steps.take(step, 0.03 * max(0.02, 1 - step / total))
    model.eval()
    batch = held.batch(torch.arange(len(held)), max_history=20)
    with torch.no_grad():
        found = model.topk(batch, 12).ids
    return float((found == held.targets.values[:, None]).any(1).float().mean())


def test_two_interests_find_what_one_vector_of_few_dimensions_cannot():
    one, two = both_found(1), both_found(2)
    assert two > one + 0.1
