"""What of a source is trained on, what chooses, and what is asked at the end."""

import pytest
import torch

import widemax as wm
from widemax.data import Sequences, Source
from widemax.runs.source import split_source
from widemax.vocabulary import Vocabulary


def source_of(lists, kind="log"):
    sequences = Sequences.from_lists(lists)
    counts = torch.bincount(sequences.values)
    keys = [f"i{i}" for i in range(len(counts))]
    vocabulary = Vocabulary.from_counts(keys, counts.clamp(min=1))
    return Source(kind=kind, sequences=sequences, vocabulary=vocabulary)


def log_of(num_users, length=3):
    """Each user has items of his own, so that each tells whose it is."""
    return source_of([[length * user + i for i in range(length)] for user in range(num_users)])


def targets(windows):
    return set(windows.batch(torch.arange(len(windows))).targets.tolist())


@pytest.mark.parametrize(
    ("num_users", "validation_size", "test_size", "expected"),
    [
        (100, 20, 30, (20, 30)),
        (100, 2000, 10_000, (50, 50)),
        (101, 2000, 10_000, (51, 50)),
        (100, 80, 30, (70, 30)),
        (100, 20, 1000, (20, 80)),
        (100, 0, 1000, (0, 100)),
        (100, 2000, 0, (100, 0)),
        (1, 2000, 10_000, (1, 0)),
        (100, 0, 0, (0, 0)),
    ],
)
def test_users_are_asked_about_in_one_part_only(num_users, validation_size, test_size, expected):
    config = wm.Config(validation_size=validation_size, test_size=test_size)
    split = split_source(config, log_of(num_users))
    asked = [set() if part is None else targets(part) for part in (split.validation, split.test)]
    assert (len(asked[0]), len(asked[1])) == expected
    assert not asked[0] & asked[1]
    trained_on = set(split.sequences.values.tolist())
    lasts = {3 * user + 2 for user in range(num_users)}
    # Each value is trained on or asked for; only the last of a user is.
    assert asked[0] | asked[1] == set(range(3 * num_users)) - trained_on <= lasts


def test_the_questions_of_the_test_have_all_that_came_before():
    split = split_source(wm.Config(validation_size=4, test_size=5, max_history=1), log_of(12))
    assert set(split.holdout.targets.values.tolist()) == targets(split.test)
    for row, user in enumerate(split.holdout.users.tolist()):
        history = split.holdout.histories.chosen(torch.tensor([row])).values.tolist()
        assert history == [3 * user, 3 * user + 1]


def test_users_with_one_item_are_only_trained_on():
    split = split_source(wm.Config(), source_of([[0], [1, 2], [3], [4, 5]]))
    assert targets(split.validation) | targets(split.test) == {2, 5}
    assert {0, 3} <= set(split.sequences.values.tolist())


def timed_log():
    """Users 0 to 9 choose one item a day, user u from day u on, ten days long."""
    lists = [[10 * user + i for i in range(10)] for user in range(10)]
    times = torch.tensor([float(user + i) for user in range(10) for i in range(10)])
    source = source_of(lists)
    sequences = Sequences(source.sequences.values, source.sequences.offsets, times=times)
    return Source(**{**source.__dict__, "sequences": sequences}), times


def test_split_by_time_tells_the_future_from_the_past():
    source, times = timed_log()
    split = split_source(wm.Config(split="time"), source)
    # Choice 80 of 100 falls on day 13, choice 90 on day 15.
    assert set(split.sequences.values.tolist()) == {item for item in range(100) if times[item] < 13}
    for windows, moment in ((split.validation, 13), (split.test, 15)):
        batch = windows.batch(torch.arange(len(windows)))
        for context, target, user in zip(
            batch.context, batch.targets.tolist(), batch.users.tolist(), strict=True
        ):
            own = [10 * user + i for i in range(10)]
            before = [item for item in own if times[item] < moment]
            assert context[context >= 0].tolist() == before
            assert target == before[-1] + 1
    histories, targets_ = split.holdout.histories, split.holdout.targets
    for row, user in enumerate(split.holdout.users.tolist()):
        own = [10 * user + i for i in range(10)]
        assert histories.chosen(torch.tensor([row])).values.tolist() == [
            item for item in own if times[item] < 15
        ]
        assert targets_.chosen(torch.tensor([row])).values.tolist() == [
            item for item in own if times[item] >= 15
        ]


def test_split_by_time_asks_no_more_than_it_may():
    source, _ = timed_log()
    split = split_source(wm.Config(split="time", validation_size=0, test_size=2), source)
    assert split.validation is None
    assert len(split.test) == len(split.holdout) == 2
    with pytest.raises(ValueError, match="time_column"):
        split_source(wm.Config(split="time"), log_of(3))


def test_split_by_user_trains_on_nothing_of_those_who_are_asked():
    split = split_source(wm.Config(split="user", validation_size=4, test_size=99), log_of(50))
    asked = targets(split.validation) | targets(split.test)
    assert len(asked) == 10
    users = {target // 3 for target in asked}
    assert {item // 3 for item in split.sequences.values.tolist()} == set(range(50)) - users
    # Users keep their number, by which what is known of them is found.
    assert len(split.sequences) == 50
    assert {3 * user + 2 for user in split.holdout.users.tolist()} == targets(split.test)
    assert split.holdout.histories.lengths.tolist() == [2] * 6


def test_goals_move_with_what_is_trained_on():
    source = log_of(4)
    goals = torch.zeros(12, dtype=torch.bool)
    goals[::3] = True
    goals[2] = True
    with_goals = Source(**{**source.__dict__, "goals": goals})
    split = split_source(wm.Config(validation_size=2, test_size=2), with_goals)
    assert split.goals.tolist() == [True, False] * 4


def test_sentences_of_a_text_are_in_one_part_only():
    lists = [[10 * line + word for word in range(10)] for line in range(200)]
    config = wm.Config(model="nnlm", validation_size=60, test_size=90)
    split = split_source(config, source_of(lists, "text"))
    lines = [
        {value // 10 for value in part.values.tolist()}
        for part in (split.sequences, split.validation.sequences, split.test.sequences)
    ]
    assert [len(part) for part in lines] == [185, 6, 9]
    assert not lines[0] & lines[1] | lines[0] & lines[2] | lines[1] & lines[2]


def test_at_most_a_tenth_of_a_text_is_held_out():
    lists = [[10 * line + word for word in range(10)] for line in range(200)]
    split = split_source(wm.Config(model="nnlm"), source_of(lists, "text"))
    parts = split.sequences, split.validation.sequences, split.test.sequences
    assert [len(part) for part in parts] == [180, 10, 10]


def test_long_sentences_count_by_their_words():
    lists = [[0] * 10] * 90 + [[1] * 100]
    split = split_source(wm.Config(model="nnlm"), source_of(lists, "text"))
    # The last sentence has more words than may be held out: it is trained on, as are all before.
    assert split.test is split.validation is None
    assert len(split.sequences.values) == 1000
