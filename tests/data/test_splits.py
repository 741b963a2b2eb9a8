"""Splits against plain loops: what is asked for is nowhere in what was seen before it."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.data.reading.source import read_source
from widemax.data.sequences import Sequences, offsets_of
from widemax.data.splitting.log_split import split_by_parts
from widemax.data.splitting.splits import (
    leave_one_out,
    read_split,
    split_at_times,
    split_by_time,
    split_by_user,
)
from widemax.vocabulary import Vocabulary

PATIENT = settings(max_examples=80, deadline=None)
LISTS = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6)
# Each value is chosen at most once over all, so that a leak cannot hide behind an equal item.
TIMED = st.lists(
    st.lists(st.integers(0, 12), max_size=6).map(sorted), min_size=1, max_size=6
).filter(any)
DATA = Path(os.environ.get("WIDEMAX_DATA", Path(__file__).parents[3] / "shared" / "data"))


def as_lists(sequences):
    return [sequences.sequence(index).tolist() for index in range(len(sequences))]


def questions(holdout):
    parts = holdout.users.tolist(), as_lists(holdout.histories), as_lists(holdout.targets)
    return list(zip(*parts, strict=True))


def timed_log(times):
    lengths = torch.tensor([len(part) for part in times], dtype=torch.long)
    flat = torch.tensor([time for part in times for time in part], dtype=torch.float64)
    names = [f"user {row}" for row in range(len(times))]
    log = Sequences(torch.arange(len(flat)), offsets_of(lengths), times=flat)
    return Sequences.from_lists(as_lists(log), names=names), flat, log


@PATIENT
@given(LISTS.filter(any))
def test_leave_one_out_by_hand(lists):
    split = leave_one_out(Sequences.from_lists(lists, names=list(range(len(lists)))))
    expected_train, validation, test = [], [], []
    for user, items in enumerate(lists):
        if len(items) > 1:
            test.append((user, items[:-1], items[-1:]))
        if len(items) > 2:
            validation.append((user, items[:-2], items[-2:-1]))
        expected_train.append(items[: max(1, len(items) - 2)])
    assert as_lists(split.train) == expected_train
    assert questions(split.validation) == validation
    assert questions(split.test) == test
    assert as_lists(split.final) == [part[:-1] if len(part) > 1 else part for part in lists]
    assert split.train.names.to_list() == list(range(len(lists)))
    assert split.skipped_users == split.skipped_targets == (0, 0)


def check_moments(split, log, first, second):
    """Nothing of a part is older than what it is asked from; what is skipped is counted."""
    times = log.times
    rows = [[(value, float(times[value])) for value in items] for items in as_lists(log)]
    assert as_lists(split.train) == [[v for v, t in row if t < first] for row in rows]
    assert as_lists(split.final) == [[v for v, t in row if t < second] for row in rows]
    for part, (start, stop) in enumerate([(first, second), (second, float("inf"))]):
        expected, skipped = [], 0
        for user, row in enumerate(rows):
            history = [v for v, t in row if t < start]
            targets = [v for v, t in row if start <= t < stop]
            if targets and history:
                expected.append((user, history, targets))
            skipped += bool(targets and not history)
        assert questions((split.validation, split.test)[part]) == expected
        assert split.skipped_users[part] == skipped


@PATIENT
@given(TIMED, st.integers(1, 12), st.integers(0, 6))
def test_split_at_times_by_hand(times, first, further):
    _, _, log = timed_log(times)
    if not (log.times < first).any():
        with pytest.raises(ValueError, match="leaves nothing for training"):
            split_at_times(log, validation=first, test=first + further)
        return
    split = split_at_times(log, validation=first, test=first + further)
    check_moments(split, log, first, first + further)


@PATIENT
@given(TIMED, st.floats(0, 0.45), st.floats(0, 0.45))
def test_split_by_time_holds_out_at_least_what_was_asked(times, validation, test):
    _, flat, log = timed_log(times)
    total = len(flat)
    try:
        split = split_by_time(log, validation=validation, test=test)
    except ValueError as error:
        assert "leaves nothing for training" in str(error)  # noqa: PT017
        assert (flat == flat.min()).sum() > round((1 - validation - test) * total)
        return
    assert total - len(split.final.values) >= total - round((1 - test) * total)
    train_times = flat[split.train.values]
    held = torch.ones(total, dtype=torch.bool)
    held[split.train.values] = False
    if held.any():
        assert train_times.max() < flat[held].min()
    last = torch.ones(total, dtype=torch.bool)
    last[split.final.values] = False
    if last.any():
        assert flat[split.final.values].max() < flat[last].min()


@PATIENT
@given(LISTS, st.floats(0, 0.5), st.floats(0, 0.45), st.floats(0, 0.9), st.integers(0, 99))
def test_split_by_user_keeps_users_apart(lists, validation, test, last, seed):
    lists = [*lists, [3]]
    log = Sequences.from_lists(lists, names=list(range(len(lists))))
    options = {"validation": validation, "test": test, "last": last}
    split = split_by_user(log, **options, generator=torch.Generator().manual_seed(seed))
    able = sum(len(items) > 1 for items in lists)
    assert len(split.test) == round(test * able)
    assert len(split.validation) == min(round(validation * able), able - len(split.test))
    groups = [split.train.names, split.validation.histories.names, split.test.histories.names]
    names = [name for group in groups for name in group.to_list()]
    assert sorted(names) == list(range(len(lists)))
    assert as_lists(split.train) == [lists[name] for name in split.train.names]
    for holdout in (split.validation, split.test):
        assert holdout.users.tolist() == [-1] * len(holdout)
        users = holdout.histories.names.to_list()
        for user, (_, history, targets) in zip(users, questions(holdout), strict=True):
            rest = lists[user][len(history) :]
            assert history == lists[user][: len(history)]
            assert history
            assert targets == list(dict.fromkeys(rest))
            wanted = max(1, round(last * len(lists[user])))
            assert len(rest) == min(wanted, len(lists[user]) - 1)
    assert as_lists(split.final)[: len(split.train)] == as_lists(split.train)
    joined = [lists[name] for name in split.validation.histories.names]
    assert as_lists(split.final)[len(split.train) :] == joined
    again = split_by_user(log, **options, generator=torch.Generator().manual_seed(seed))
    assert questions(again.test) == questions(split.test)


def test_targets_of_one_question_are_distinct():
    log = Sequences.from_lists([[1, 2, 3, 2, 3], [2, 2, 2]])
    parts = torch.tensor([0, 0, 2, 2, 2, 0, 2, 2], dtype=torch.uint8)
    split = split_by_parts(log, parts)
    assert questions(split.test) == [(0, [1, 2], [3, 2]), (1, [2], [2])]


def test_training_classes_know_nothing_of_the_test():
    vocabulary = Vocabulary.from_counts(list("abcd"), [4, 3, 2, 1])
    log = Sequences.from_lists([[1, 2, 0, 0], [1, 3], [0, 3, 0]])
    parts = torch.tensor([0, 0, 1, 2, 0, 2, 1, 1, 2], dtype=torch.uint8)
    split, own = split_by_parts(log, parts).with_training_classes(vocabulary)
    assert own.table.rows() == [("b", 2), ("c", 1)]
    assert as_lists(split.train) == [[0, 1], [0], []]
    assert as_lists(split.final) == [[0, 1], [0], []]
    assert questions(split.validation) == questions(split.test) == []
    # User 2 was skipped for want of a history, then the targets a and d went, and their users.
    assert split.skipped_users == (2, 3)
    assert split.skipped_targets == (1, 3)


@PATIENT
@given(LISTS.filter(any))
def test_training_classes_rename_and_drop_only(lists):
    vocabulary = Vocabulary.from_counts([f"k{key}" for key in range(10)], list(range(20, 10, -1)))
    split = leave_one_out(Sequences.from_lists(lists))
    renamed, own = split.with_training_classes(vocabulary)
    assert own.ordered
    counts = torch.bincount(renamed.train.values, minlength=len(own))
    assert own.counts.tolist() == counts.tolist()
    assert own.decode(renamed.train.values) == vocabulary.decode(split.train.values)
    expected = [
        (user, [f"k{key}" for key in history if f"k{key}" in own], [f"k{target[0]}"])
        for user, history, target in questions(split.test)
        if f"k{target[0]}" in own
    ]
    found = [(u, own.decode(h), own.decode(t)) for u, h, t in questions(renamed.test)]
    assert found == [row for row in expected if row[1]]


def write_three(folder, texts, suffix=""):
    paths = [folder / f"{name}{suffix}" for name in ("train", "valid", "test")]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def test_given_lists(tmp_path):
    texts = ("10 5 6\n11 6\n", "11 5\n12 6\n13 9\n", "10\n11 7 6\n12 5\n13 6\n14 5\n")
    split, vocabulary = read_split(*write_three(tmp_path, texts), kind="lists")
    assert vocabulary.table.rows() == [(6, 2), (5, 1)]
    names = split.train.names.to_list()
    assert names == [10, 11, 12, 13, 14]
    six, five = 0, 1
    assert as_lists(split.train) == [[five, six], [six], [], [], []]
    assert questions(split.validation) == [(1, [six], [five])]
    assert questions(split.test) == [(1, [six, five], [six]), (2, [six], [five])]
    # 12 and 13 are new in the validation, 14 in the test, where 13 has had an item of no class.
    assert split.skipped_users == (2, 2)
    assert split.skipped_targets == (0, 1)


def test_given_files_with_times_are_sorted_within_each_part(tmp_path):
    header = "user,item,time\n"
    texts = [header + rows for rows in ("u,b,20\nu,a,10\n", "u,a,5\nu,b,4\n", "u,b,2\nu,a,1\n")]
    split, vocabulary = read_split(*write_three(tmp_path, texts))
    decoded = [(vocabulary.decode(h), vocabulary.decode(t)) for h, t in (
        (split.validation.histories.values, split.validation.targets.values),
        (split.test.histories.values, split.test.targets.values),
    )]  # fmt: skip
    assert decoded == [(["a", "b"], ["b", "a"]), (["a", "b", "b", "a"], ["a", "b"])]


def test_bad_given_files(tmp_path):
    paths = write_three(tmp_path, ("user,item\n1,2\n", "user,item\n1,\n", "user,item\n1,2\n"))
    with pytest.raises(ValueError, match="valid, column item, row 1: the id is missing"):
        read_split(*paths)
    with pytest.raises(ValueError, match=r"kind must be one of atomic, .* got 'text'"):
        read_split(*paths, kind="text")
    paths[0].write_text("good morning to you\n")
    with pytest.raises(ValueError, match="holds text, which is no log"):
        read_split(*paths)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda log: split_by_time(log, validation=0.5, test=0.5), "validation \\+ test must be"),
        (lambda log: split_by_time(log, test=-0.1), "test must be at least 0 and below 1"),
        (lambda log: split_by_user(log, validation=1.0), "validation must be at least 0"),
        (lambda log: split_by_user(log, last=1.0), "last must be at least 0 and below 1"),
        (lambda log: split_at_times(log, validation=3, test=2), "the first not later, got 3, 2"),
        (lambda log: split_at_times(log, validation=0, test=float("nan")), "must be finite"),
        (lambda log: split_at_times(log, validation=0, test=9), "leaves nothing for training"),
        (lambda log: split_by_parts(log, torch.zeros(3)), r"parts must be uint8 \[3\]"),
        (
            lambda log: split_by_parts(log, torch.tensor([0, 3, 0], dtype=torch.uint8)),
            "parts must lie between 0 and 2, got 3",
        ),
        (
            lambda log: split_by_parts(log, torch.tensor([1, 0, 0], dtype=torch.uint8)),
            "parts must not fall within a sequence, they do at value 1",
        ),
    ],
)
def test_bad_splits(call, message):
    times = torch.tensor([1.0, 2.0, 1.0])
    log = Sequences(torch.tensor([4, 5, 6]), torch.tensor([0, 2, 3]), times=times)
    with pytest.raises(ValueError, match=message):
        call(log)


def test_times_are_needed_for_splits_by_time():
    log = Sequences.from_lists([[1, 2], [3]])
    for split in (split_by_time, lambda log: split_at_times(log, validation=1, test=2)):
        with pytest.raises(ValueError, match="sequences must have times"):
            split(log)


def test_lists_of_a_user_and_his_items(tmp_path):
    path = tmp_path / "log"
    path.write_text("0 5 6 5\n3\n1\t6\r\n")
    source = read_source(path)
    assert source.kind == "lists"
    decoded = [source.vocabulary.decode(source.sequences.sequence(row)) for row in range(2)]
    assert dict(zip(source.sequences.names, decoded, strict=True)) == {0: [5, 6, 5], 1: [6]}
    assert source.sequences.times is None
    path.write_text("0\n3\n")
    with pytest.raises(ValueError, match="is empty: it has the columns 'user', 'item'"):
        read_source(path, kind="lists")


@pytest.mark.skipif(not (DATA / "gowalla").is_dir(), reason="needs gowalla in WIDEMAX_DATA")
def test_gowalla_is_read_whole():
    split, vocabulary = read_split(
        *(DATA / "gowalla" / f"{n}.txt" for n in ("train", "valid", "test"))
    )
    lines = [line.split() for line in (DATA / "gowalla" / "train.txt").read_text().splitlines()]
    assert len(split.train.values) == sum(len(line) - 1 for line in lines)
    assert vocabulary.decode(split.train.sequence(7)) == [int(word) for word in lines[7][1:]]
    assert len(vocabulary) == len({item for line in lines for item in line[1:]})
