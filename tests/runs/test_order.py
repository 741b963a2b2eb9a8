"""What order is worth, found on small logs that were planted to have it, or not to."""

import time

import pytest
import torch

from widemax.data import Holdout, Sequences
from widemax.evaluation import evaluate_recommendations
from widemax.models import NextItem
from widemax.models.options import LAST_FEW, LENGTHS
from widemax.runs.training import order
from widemax.runs.training.order import OrderTest

GROUPS, IN_GROUP = 12, 15
NUM_CLASSES = GROUPS * IN_GROUP


def generator():
    return torch.Generator().manual_seed(0)


def drawn(number, high, generator):
    return torch.randint(high, (number,), generator=generator)


def of_groups(groups, generator):
    """A log of an item at random of the group [N, T] of each moment."""
    number, length = groups.shape
    within = drawn(number * length, IN_GROUP, generator).view(number, length)
    return Sequences((groups * IN_GROUP + within).flatten(), torch.arange(number + 1) * length)


def lasting_tastes(number=400, length=40):
    """Three groups a user, from any of which comes the next item, whenever it was."""
    g = generator()
    tastes = torch.rand(number, GROUPS, generator=g).argsort(1)[:, :3]
    return of_groups(tastes.gather(1, drawn(number * length, 3, g).view(number, length)), g)


def drifting_tastes(number=400, length=60):
    """One group at a time, and another after twelve items."""
    g = generator()
    phases = drawn(number * (length // 12), GROUPS, g).view(number, -1)
    return of_groups(phases.repeat_interleave(12, 1), g)


def ring(number=300, num_classes=60):
    """Each item is followed by the next one of a ring, and nobody has one twice."""
    g = generator()
    starts, lengths = (drawn(number, high, g).tolist() for high in (num_classes, 17))
    return Sequences.from_lists(
        [
            [(start + place) % num_classes for place in range(4 + length)]
            for start, length in zip(starts, lengths, strict=True)
        ]
    )


def chain(number=400, length=12, num_classes=60):
    """Each item is followed by one of three, at random: a Markov chain with a direction."""
    g = generator()
    followers = drawn(num_classes * 3, num_classes, g).view(num_classes, 3)
    values = [drawn(number, num_classes, g)]
    for _ in range(length - 1):
        values.append(followers[values[-1], drawn(number, 3, g)])
    return Sequences(torch.stack(values, 1).flatten(), torch.arange(number + 1) * length)


def neighbours_on_a_ring(number=400, length=12, num_classes=60):
    """A walk that goes up as often as down: what follows an item also comes before it."""
    g = generator()
    walk = (2 * drawn(number * length, 2, g) - 1).view(number, length).cumsum(1)
    values = (drawn(number, num_classes, g)[:, None] + walk) % num_classes
    return Sequences(values.flatten(), torch.arange(number + 1) * length)


def popular_alone(number=400, length=12, num_classes=60):
    """Everybody chooses by one popularity, whatever they had before."""
    chances = 1 / torch.arange(1.0, num_classes + 1)
    values = torch.multinomial(chances, number * length, replacement=True, generator=generator())
    return Sequences(values, torch.arange(number + 1) * length)


def found_in(log, num_classes, *, with_seen=False):
    train, asked = Holdout.of_last(log)
    return order.tested_order(train, asked, num_classes, with_seen=with_seen)


def test_all_of_a_taste_that_lasts_is_read():
    assert found_in(lasting_tastes(), NUM_CLASSES) == OrderTest(max(LENGTHS), directed=False)


def test_the_end_of_a_history_is_read_where_tastes_drift():
    found = found_in(drifting_tastes(), NUM_CLASSES)
    assert found.history in (3, 5, 10)  # of a phase of twelve
    assert not found.directed


def test_the_last_item_alone_is_read_where_it_says_all():
    assert found_in(chain(), 60).history == 1


@pytest.mark.parametrize("with_seen", [True, False])
def test_what_follows_has_a_direction(with_seen):
    assert found_in(chain(), 60, with_seen=with_seen).directed


@pytest.mark.parametrize("with_seen", [True, False])
def test_what_was_had_may_be_all_that_comes_before(with_seen):
    """Left out of the answers, it is none of them: one table tells what follows."""
    found = found_in(ring(), 60, with_seen=with_seen)
    assert found.directed == with_seen
    assert found.history < 10


def test_rare_items_have_one_table_whatever_follows_them():
    train, asked = Holdout.of_last(chain())
    many = len(train.values) // 9  # classes that are chosen nine times each, most of them never
    assert not order.tested_order(train, asked, many, with_seen=False).directed


def test_turned_around_it_has_one_too():
    assert found_in(order._reversed(chain()), 60).directed


@pytest.mark.parametrize("with_seen", [True, False])
def test_what_comes_before_as_often_as_behind_has_none(with_seen):
    assert not found_in(neighbours_on_a_ring(), 60, with_seen=with_seen).directed


def test_where_popularity_is_all_histories_say_nothing():
    assert found_in(popular_alone(), 60, with_seen=True).popular


@pytest.mark.parametrize("log", [chain, ring, neighbours_on_a_ring, lasting_tastes])
def test_where_histories_say_something_popularity_is_not_all(log):
    assert not found_in(log(), max(60, NUM_CLASSES)).popular


def test_the_same_log_gives_the_same_answer_whatever_was_drawn_before(monkeypatch):
    monkeypatch.setattr(order, "_MOST_INTERACTIONS", 2000)
    log, samples, found = chain(), [], []
    for seed in (1, 2):
        torch.manual_seed(seed)
        samples.append(order._some(log).values)
        found.append(found_in(log, 60))
    assert torch.equal(*samples)
    assert found[0] == found[1]


def test_of_a_long_log_whole_users_are_counted(monkeypatch):
    monkeypatch.setattr(order, "_MOST_INTERACTIONS", 1000)
    log = chain()
    some = order._some(log)
    assert 1000 - 12 < len(some.values) <= 1000
    users = {tuple(each.tolist()) for each in log.values.view(-1, 12)}
    assert {tuple(each.tolist()) for each in some.values.view(-1, 12)} <= users
    assert found_in(log, 60).directed


def test_one_user_with_more_than_all_that_is_counted_hides_nobody(monkeypatch):
    monkeypatch.setattr(order, "_MOST_INTERACTIONS", 1000)
    lists = [[0] * 1001] * 50 + chain().values.view(-1, 12)[:83].tolist()
    assert order._some(Sequences.from_lists(lists)).lengths.tolist() == [12] * 83


def test_of_a_large_catalogue_few_questions_are_asked(monkeypatch):
    monkeypatch.setattr(order, "_MOST_SCORES", 60 * 40)
    asked = []
    real = order._ndcg
    monkeypatch.setattr(order, "_ndcg", lambda scores, questions, *rest: (
        asked.append(len(questions)) or real(scores, questions, *rest)
    ))  # fmt: skip
    assert found_in(chain(), 60).directed
    assert set(asked) == {40}


def test_a_catalogue_beyond_the_limit_is_not_counted(monkeypatch):
    monkeypatch.setattr(order, "ItemKNN", lambda *sizes, **more: pytest.fail("was counted"))
    train, asked = Holdout.of_last(chain())
    found = order.tested_order(train, asked, 2**20 + 1, with_seen=False)
    assert found == OrderTest(LAST_FEW, directed=False)


@pytest.mark.parametrize("questions", [0, 1])
@pytest.mark.filterwarnings("error")
def test_too_few_questions_prove_nothing(questions):
    train, asked = Holdout.of_last(ring())
    found = order.tested_order(train, asked.chosen(torch.arange(questions)), 60, with_seen=False)
    assert found == OrderTest(max(LENGTHS) if questions else LAST_FEW, directed=False)


def test_one_question_is_answered_without_counting(monkeypatch):
    monkeypatch.setattr(order, "ItemKNN", lambda *sizes, **more: pytest.fail("was counted"))
    # A user alone with 90,000 different items took five minutes, for an answer that was known.
    assert found_in(Sequences.from_lists([list(range(9))]), 9).history == max(LENGTHS)


@pytest.mark.parametrize("with_seen", [True, False])
def test_it_ranks_as_validation_does(with_seen):
    torch.manual_seed(0)
    model = NextItem.create(torch.ones(60), dimension=4, num_samples=9).eval()
    log = Sequences.from_lists(
        [[1, 2, 3, 4], [5, 6, 7, 5], [0, 8], *[[i, 9, i + 1] for i in range(50)]]
    )
    _, asked = Holdout.of_last(log)
    scores = lambda context: model.head.scores(model.encode(context)).detach()  # noqa: E731
    judged = evaluate_recommendations(
        model.topk, asked, ks=(20,), max_history=2, exclude_seen=not with_seen, keep_per_user=True
    )
    found = order._ndcg(scores, asked, 2, with_seen)
    torch.testing.assert_close(found, judged.per_user["ndcg@20"].double())
    assert 0 < int((found == 0).sum()) < len(found)


def test_of_items_that_score_alike_half_are_ahead():
    asked = Holdout.of_last(Sequences.from_lists([[0, 1], [0, 1]]))[1]
    scores = torch.tensor([[0.0, 1.0, 1.0, 1.0, 2.0], [9.0, 5.0, 0.0, 0.0, 0.0]])
    found = order._ndcg(lambda context: scores, asked, 1, False)
    # Behind one of them and half of two others; the first, as what was had does not count.
    torch.testing.assert_close(found, torch.tensor([0.5, 1.0], dtype=torch.float64))


def test_half_a_million_interactions_take_seconds():
    log = lasting_tastes(number=30_000, length=40)  # 1.2 million
    started = time.process_time()
    assert found_in(log, NUM_CLASSES).history == max(LENGTHS)
    assert time.process_time() - started < 60
