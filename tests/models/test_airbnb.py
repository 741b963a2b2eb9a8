"""Airbnb: the pairs of its loss, bookings come nearer, the items of a market are separated."""

import pytest
import torch
from torch.nn.functional import logsigmoid, normalize

from tests.models.feature_tables import features_of
from widemax.data import Sequences, WindowBatch
from widemax.models.embeddings.airbnb import Airbnb, GoalWindows
from widemax.models.embeddings.item2vec import Item2Vec
from widemax.optim import RowAdagrad
from widemax.training.gradients.steps import GradientSteps


def train(model, sessions, *, window, steps=80, rate=0.3, seed=0, **options):
    windows = model.windows(sessions, max_history=1, window=window, **options)
    optimizer = RowAdagrad(model.parameters(), lr=rate)
    taken = GradientSteps(model, optimizer, windows, batch_size=256, seed=seed)
    for step in range(steps):
        taken.take(step, rate)
    return model


def with_markets(counts, markets, **options):
    """Return the model of items of which nothing is known but their market."""
    return Airbnb.create(counts, item_features=features_of(markets[:, None]), **options)


def without_markets(counts, **options):
    """The same model with negatives from everywhere alone."""
    plain = Item2Vec.create(counts, **options)
    return Airbnb(plain.encoder, plain.head)


# --- goals ---------------------------------------------------------------------------------------


def goals_by_hand(lists, booked):
    """The first booking at or after each place of its own session."""
    found = []
    for items, marks in zip(lists, booked, strict=True):
        for place, item in enumerate(items):
            later = [y for y, mark in zip(items[place:], marks[place:], strict=True) if mark]
            found.append(later[0] if later and later[0] != item else -1)
    return found


def test_goals_equal_looking_ahead_by_hand():
    generator = torch.Generator().manual_seed(0)
    lists, booked = [], []
    for length in torch.randint(2, 8, (60,), generator=generator).tolist():
        lists.append(torch.randint(6, (length,), generator=generator).tolist())
        booked.append((torch.rand(length, generator=generator) < 0.25).tolist())
    marks = torch.tensor([mark for row in booked for mark in row])
    windows = GoalWindows(Sequences.from_lists(lists), window=2, goals=marks)
    batch = windows.batch(torch.arange(len(windows)))
    assert batch.goals.tolist() == goals_by_hand(lists, booked)


def test_without_marks_the_last_of_a_session_is_booked():
    sessions = Sequences.from_lists([[4, 0, 2], [], [7], [1, 3]])
    windows = Airbnb.windows(sessions, max_history=1, window=1)
    batch = windows.batch(torch.arange(len(windows)))
    assert batch.targets.tolist() == [4, 0, 2, 1, 3], "a session of one click has no pair"
    assert batch.goals.tolist() == [2, 2, -1, 3, -1]


def test_a_model_without_goals_in_its_batch_is_skip_gram():
    model = without_markets(torch.ones(9), dimension=4)
    batch = WindowBatch(context=torch.tensor([[3, 5], [-1, 2]]), targets=torch.tensor([1, 7]))
    losses = [
        each(model, batch, generator=torch.Generator().manual_seed(0))
        for each in (Airbnb.forward, Item2Vec.forward)
    ]
    assert torch.equal(*losses)


# --- the loss ------------------------------------------------------------------------------------


def test_losses_equal_brute_force_over_pairs_and_their_negatives():
    counts, markets = torch.arange(12, 0, -1), torch.arange(12) % 3
    torch.manual_seed(0)
    model = with_markets(
        counts, markets, dimension=5, mixture="unigram=2, market=3", num_samples=5
    ).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    sessions = Sequences.from_lists([[4, 1, 7, 9], [2, 3]])
    # A window of one place has a reach of one: nothing but negatives is left to chance.
    windows = model.windows(sessions, max_history=1, window=1)
    drawn = []
    sample = model.head.sampler.sample

    def watched(*arguments, **options):
        drawn.append(sample(*arguments, **options))
        return drawn[-1]

    model.head.sampler.sample = watched
    losses = model(windows.batch(torch.arange(6)), generator=torch.Generator().manual_seed(0))

    around = [(1, 4), (4, 1), (7, 1), (1, 7), (9, 7), (7, 9), (3, 2), (2, 3)]
    led = [(4, 9), (1, 9), (7, 9), (2, 3), (9, 4), (9, 1), (9, 7), (3, 2)]
    negatives = torch.cat([candidates.ids for candidates in drawn])
    inputs, outputs = model.encoder.weight, model.head.scorer.weight
    for place, (known, target) in enumerate(around + led):
        loss = -logsigmoid(inputs[known] @ outputs[target])
        for each in negatives[place].tolist():
            loss = loss - logsigmoid(-(inputs[known] @ outputs[each]))
        torch.testing.assert_close(losses[place], loss)
        assert (markets[negatives[place, 2:]] == markets[target]).all()
    assert len(losses) == len(around + led)


def test_the_same_seed_gives_the_same_bits():
    sessions = Sequences.from_lists([[4, 1, 7, 9], [2, 3]] * 20)

    def trained(seed):
        torch.manual_seed(0)
        model = with_markets(torch.ones(12), torch.arange(12) % 3, dimension=5)
        return train(model, sessions, window=2, steps=20, seed=seed).key_vectors()

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))


# --- what it is for ------------------------------------------------------------------------------

GROUPS, EARLY, LATE = 10, 5, 8
"""Items: one booked in each group, then the early clicks of each group, then late ones of all."""


def booking_log(num_sessions=800, seed=0):
    """Three clicks of a group, two that say nothing, and the booking of the group."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(limit, size):
        return torch.randint(limit, (num_sessions, size), generator=generator)

    group = drawn(GROUPS, 1)
    early = GROUPS + group * EARLY + drawn(EARLY, 3)
    late = GROUPS * (1 + EARLY) + drawn(LATE, 2)
    sessions = torch.cat([early, late, group], dim=1)
    return Sequences(sessions.flatten(), torch.arange(num_sessions + 1) * 6)


def share_of_own_booking(model):
    """How often the booking nearest to an early click is that of its group."""
    unit = normalize(model.key_vectors().detach(), dim=1)
    early = unit[GROUPS : GROUPS * (1 + EARLY)]
    nearest = (early @ unit[:GROUPS].T).argmax(1)
    return float((nearest == torch.arange(GROUPS).repeat_interleave(EARLY)).double().mean())


def test_bookings_come_nearer_to_the_clicks_that_led_to_them():
    """Two late clicks stand in between, and no window reaches over both."""
    log = booking_log()
    counts = torch.bincount(log.values)
    torch.manual_seed(0)
    plain = train(Item2Vec.create(counts, dimension=16), log, window=1)
    torch.manual_seed(0)
    booked = train(without_markets(counts, dimension=16), log, window=1)
    assert share_of_own_booking(plain) < 0.4, "by chance 0.1"
    assert share_of_own_booking(booked) > 0.9


NUM_MARKETS, STYLES, ALIKE = 30, 3, 4


def market_log(num_sessions=1200, seed=0):
    """Sessions of one market; each click is of the session's style, or one in three of any."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(limit, size):
        return torch.randint(limit, (num_sessions, size), generator=generator)

    market, style = drawn(NUM_MARKETS, 1), drawn(STYLES, 1)
    styles = torch.where(drawn(3, 6) == 0, drawn(STYLES, 6), style)
    sessions = (market * STYLES + styles) * ALIKE + drawn(ALIKE, 6)
    return Sequences(sessions.flatten(), torch.arange(num_sessions + 1) * 6)


def separation_within_markets(model):
    """Mean cosine of items of one style less that of styles of the same market."""
    unit = normalize(model.key_vectors().detach(), dim=1).view(NUM_MARKETS, STYLES * ALIKE, -1)
    cosines = unit @ unit.transpose(1, 2)
    style = torch.arange(STYLES * ALIKE) // ALIKE
    alike = style[:, None] == style
    alone = torch.eye(len(style), dtype=torch.bool)
    return float(cosines[:, alike & ~alone].mean() - cosines[:, ~alike].mean())


def test_market_negatives_tell_the_items_of_a_market_apart():
    """With as many negatives in all."""
    log = market_log()
    counts = torch.bincount(log.values, minlength=NUM_MARKETS * STYLES * ALIKE)
    markets = torch.arange(len(counts)) // (STYLES * ALIKE)
    torch.manual_seed(0)
    anywhere = train(without_markets(counts, dimension=16, num_samples=10), log, window=2)
    torch.manual_seed(0)
    nearby = train(with_markets(counts, markets, dimension=16), log, window=2)
    assert separation_within_markets(nearby) > 2 * separation_within_markets(anywhere)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: with_markets(torch.ones(3), torch.arange(2)), "item_features"),
        (lambda: with_markets(torch.ones(3), torch.arange(3), num_samples=0), "num_samples"),
        (
            lambda: with_markets(torch.ones(3), torch.arange(3), mixture="unigram=1, market=0"),
            "mixture: weight",
        ),
        (
            lambda: GoalWindows(
                Sequences.from_lists([[0, 1]]), window=1, goals=torch.tensor([True])
            ),
            "goals",
        ),
        (
            lambda: GoalWindows(Sequences.from_lists([[0, 1]]), window=1, goals=torch.ones(2)),
            "goals",
        ),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
