"""What of a source is trained on, what chooses, and what is asked at the end."""

import pytest
import torch

import widemax as wm
from widemax.data import Holdout, Sequences, Source
from widemax.runs.source.splitting import split_source
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


def targets(asked):
    if isinstance(asked, Holdout):
        return set(asked.targets.values.tolist())
    return set(asked.batch(torch.arange(len(asked))).targets.tolist())


def history(asked, row):
    return asked.histories.chosen(torch.tensor([row])).values.tolist()


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
def test_some_users_are_asked_about_in_one_part_only(
    num_users, validation_size, test_size, expected
):
    config = wm.Config(split="last-of-some", validation_size=validation_size, test_size=test_size)
    split = split_source(config, log_of(num_users))
    asked = [set() if part is None else targets(part) for part in (split.validation, split.test)]
    assert (len(asked[0]), len(asked[1])) == expected
    assert not asked[0] & asked[1]
    trained_on = set(split.sequences.values.tolist())
    lasts = {3 * user + 2 for user in range(num_users)}
    # Each value is trained on or asked for; only the last of a user is.
    assert asked[0] | asked[1] == set(range(3 * num_users)) - trained_on <= lasts
    assert set(split.final.values.tolist()) == trained_on | asked[0]


def test_every_user_is_asked_for_the_last_item_and_the_one_before():
    split = split_source(wm.Config(split="last"), log_of(12))
    assert targets(split.test) == {3 * user + 2 for user in range(12)}
    assert targets(split.validation) == {3 * user + 1 for user in range(12)}
    assert set(split.sequences.values.tolist()) == {3 * user for user in range(12)}
    assert split.final.lengths.tolist() == [2] * 12
    for row, user in enumerate(split.test.users.tolist()):
        # What validates is known when the test asks.
        assert history(split.test, row) == [3 * user, 3 * user + 1]
        assert history(split.validation, row) == [3 * user]


@pytest.mark.parametrize(("validation_size", "test_size"), [(4, 5), (0, 5), (4, 0), (0, 0)])
def test_of_every_user_some_are_asked_and_all_held_out(validation_size, test_size):
    config = wm.Config(split="last", validation_size=validation_size, test_size=test_size)
    split = split_source(config, log_of(12))
    for part, size in ((split.validation, validation_size), (split.test, test_size)):
        assert (len(part) if part is not None else 0) == size
    held = (validation_size > 0) + (test_size > 0)
    assert split.sequences.lengths.tolist() == [3 - held] * 12


def test_short_histories_are_asked_about_in_the_test_first():
    split = split_source(wm.Config(split="last"), source_of([[0], [1, 2], [3], [4, 5, 6]]))
    assert (targets(split.validation), targets(split.test)) == ({5}, {2, 6})
    assert set(split.sequences.values.tolist()) == {0, 1, 3, 4}


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
    for asked, moment, end in ((split.validation, 13, 15), (split.test, 15, 99)):
        for row, user in enumerate(asked.users.tolist()):
            own = [10 * user + i for i in range(10)]
            assert history(asked, row) == [item for item in own if times[item] < moment]
            chosen = asked.targets.chosen(torch.tensor([row])).values.tolist()
            assert chosen == [item for item in own if moment <= times[item] < end]


def test_split_by_time_asks_no_more_than_it_may():
    source, _ = timed_log()
    split = split_source(wm.Config(split="time", validation_size=0, test_size=2), source)
    assert split.validation is None
    assert len(split.test) == 2
    with pytest.raises(ValueError, match="time_column"):
        split_source(wm.Config(split="time"), log_of(3))


def test_split_by_time_counts_users_who_came_too_late_to_be_asked():
    # Ten users begin on day 0 to 9 and choose daily; two more come on the last day.
    source, times = timed_log()
    values = torch.cat([source.sequences.values, torch.tensor([0, 1])])
    offsets = torch.cat([source.sequences.offsets, torch.tensor([101, 102])])
    late = Sequences(values, offsets, times=torch.cat([times, torch.tensor([18.0, 18.0])]))
    split = split_source(wm.Config(split="time"), Source(**{**source.__dict__, "sequences": late}))
    assert split.skipped_users == 2
    assert split_source(wm.Config(split="time"), source).skipped_users == 0


def test_split_by_user_trains_on_nothing_of_those_who_are_asked():
    split = split_source(wm.Config(split="user", validation_size=4, test_size=99), log_of(50))
    asked = targets(split.validation) | targets(split.test)
    assert len(asked) == 10
    users = {target // 3 for target in asked}
    assert {item // 3 for item in split.sequences.values.tolist()} == set(range(50)) - users
    # Users keep their number, by which what is known of them is found.
    assert len(split.sequences) == 50
    assert {3 * user + 2 for user in split.test.users.tolist()} == targets(split.test)
    assert split.test.histories.lengths.tolist() == [2] * 6


def test_goals_move_with_what_is_trained_on():
    source = log_of(4)
    goals = torch.zeros(12, dtype=torch.bool)
    goals[::3] = True
    goals[2] = True
    with_goals = Source(**{**source.__dict__, "goals": goals})
    some = wm.Config(split="last-of-some", validation_size=2, test_size=2)
    split = split_source(some, with_goals)
    assert split.goals.tolist() == [True, False] * 4
    assert split_source(wm.Config(split="last"), with_goals).goals.tolist() == [True] * 4


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
    for across in (False, True):
        config = wm.Config(model="nnlm", across_lines=across)
        split = split_source(config, source_of(lists, "text"))
        parts = split.sequences, split.validation.sequences, split.test.sequences
        assert [len(part.values) for part in parts] == [1800, 100, 100]
        assert [len(part) for part in parts] == ([1, 1, 1] if across else [180, 10, 10])


def test_long_sentences_count_by_their_words():
    lists = [[0] * 10] * 90 + [[1] * 100]
    split = split_source(wm.Config(model="nnlm"), source_of(lists, "text"))
    # The last sentence has more words than may be held out: it is trained on, as are all before.
    assert split.test is split.validation is None
    assert len(split.sequences.values) == 1000


def write_parts(folder, suffix=".txt", **parts):
    for name, text in parts.items():
        (folder / f"{name}{suffix}").write_text(text)


def test_files_say_what_is_trained_on_and_what_is_asked(tmp_path):
    write_parts(tmp_path, train="1 7 8 9\n2 7 9\n", valid="1 9 7\n", test="1 10\n2 8\n")
    run = wm.train(
        tmp_path, wm.Config(model="popularity", split="files", kind="lists"), folder=tmp_path / "r"
    )
    # 10 is in the catalogue, and nothing was learned of it.
    assert dict(zip(run.vocabulary.keys, run.vocabulary.counts.tolist(), strict=True)) == {
        7: 2, 9: 2, 8: 1, 10: 0,
    }  # fmt: skip
    report = run.evaluate_recommendations(ks=(1, 2))
    assert (report.users, report.targets) == (2, 2)
    assert [found.key for found in run.history(1)] == [7, 8, 9, 9, 7, 10]


def test_a_file_may_be_named_and_the_validation_left_out(tmp_path):
    (tmp_path / "old.csv").write_text("user,item\n" + "ann,tea\nann,rum\nbob,tea\nbob,gin\n")
    (tmp_path / "new.csv").write_text("user,item\nann,gin\nbob,rum\n")
    config = wm.Config(model="popularity", test_file=str(tmp_path / "new.csv"))
    run = wm.train(tmp_path / "old.csv", config, folder=tmp_path / "run")
    assert run.config.split == "files"
    assert run.evaluate_recommendations(ks=(1,)).targets == 2
    # The last of each user's training part has validated.
    assert run.vocabulary.total == 2


def test_a_text_in_files(tmp_path):
    lines = {name: f"the {name} road\n" * 9 for name in ("train", "valid", "test")}
    write_parts(tmp_path, **lines)
    config = wm.Config(model="n-gram", split="files", min_count=1, order=2)
    run = wm.train(tmp_path, config, folder=tmp_path / "run")
    assert {"train", "<unk>"} <= {*run.vocabulary.keys} - {"valid", "test"}
    # Four words a line with its end; none of the validation's.
    assert run.evaluate().examples == 36


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"split": "files"}, r"has no file for the test: .* or name it by test_file \(--test-file"),
        ({"split": "time", "test_file": "x"}, "test_file has no effect with split = 'time'"),
        ({"split": "user"}, "split = 'user' is for a log"),
    ],
)
def test_a_split_that_cannot_be_made(settings, named, tmp_path):
    (tmp_path / "train.txt").write_text("a b c d\n" * 20)
    with pytest.raises(ValueError, match=named):
        wm.train(tmp_path / "train.txt", wm.Config(**settings), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
