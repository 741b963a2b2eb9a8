"""In several threads a log is prepared as in one, and as plain loops would do it."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import torch

from widemax.data.reading.numbering import Coded, classes_of
from widemax.data.reading.source import read_source
from widemax.data.sequences import Sequences
from widemax.data.sessions import sessions_of
from widemax.data.splitting.splits import leave_one_out
from widemax.kernels.data import blocks
from widemax.kernels.data.grouping import counted, grouped
from widemax.kernels.data.slices import joined_slices, kept_classes, kept_lengths, pauses


@pytest.fixture(params=[1, 3])
def threads(request, monkeypatch):
    """As many threads, each of which is content with a single value."""
    monkeypatch.setattr(blocks, "_VALUES_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
    return request.param


def random_log(seed, rows=500, users=12):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, users, rows).astype(np.int32)
    codes[codes == 3] = 4  # a user without rows, and one with more than sorting by insertion takes
    codes[: rows // 4] = 5
    return codes, rng.integers(0, 30, rows).astype(np.int32), rng.integers(0, 50, rows)


@pytest.mark.parametrize("time_type", [np.int64, np.float64])
def test_rows_move_as_a_stable_sort_moves_them(threads, time_type):
    codes, items, times = random_log(0)
    times = times.astype(time_type)
    order = np.lexsort([np.arange(len(codes)), times, codes])
    moved, moved_times, offsets, unsorted = grouped(codes, 12, items, times)
    assert moved.tolist() == items[order].tolist()
    assert moved_times.tolist() == times[order].tolist()
    assert offsets.tolist() == np.searchsorted(codes[order], np.arange(13)).tolist()
    falls = [(np.diff(times[codes == user]) < 0).any() for user in range(12)]
    assert unsorted == sum(falls)
    untimed, nothing, _, _ = grouped(codes, 12, items)
    assert untimed.tolist() == items[np.argsort(codes, kind="stable")].tolist()
    assert nothing is None


def test_counts_are_those_of_the_kept(threads):
    codes, items, _ = random_log(1)
    kept = codes > 5
    assert counted(items, 31).tolist() == np.bincount(items, minlength=31).tolist()
    assert counted(items, 31, kept).tolist() == np.bincount(items[kept], minlength=31).tolist()
    assert counted(items[:0], 2).tolist() == [0, 0]


def test_what_is_kept_is_copied_in_order(threads):
    rng = np.random.default_rng(2)
    offsets = np.array([0, 0, 7, 7, 30, 31, 100, 100])
    codes, times = rng.integers(0, 9, 100).astype(np.int32), rng.integers(0, 99, 100)
    class_of = np.array([4, -1, 3, 2, -1, 1, 0, 5, 6])
    kept = rng.random(100) < 0.7
    for mask in (kept, None):
        chosen = (class_of[codes] >= 0) & (True if mask is None else mask)
        rows = [np.flatnonzero(chosen[a:b]) + a for a, b in pairwise(offsets)]
        lengths = kept_lengths(codes, offsets, class_of, mask)
        assert lengths.tolist() == [len(row) for row in rows]
        lengths[1] = 0  # this sequence does not stay
        left = np.concatenate(rows[2:])
        places = np.append(0, lengths.cumsum())
        arrays = codes, offsets, class_of, mask, places
        values, seconds = kept_classes(*arrays, times, np.float64)
        assert values.tolist() == class_of[codes[left]].tolist()
        assert seconds.tolist() == times[left].tolist()
        assert kept_classes(*arrays, None, np.float64)[1] is None


def test_slices_and_pauses(threads):
    rng = np.random.default_rng(3)
    values, starts = rng.integers(0, 99, 60), np.array([0, 40, 10, 59, 0])
    lengths = np.array([20, 0, 30, 1, 3])
    parts = [values[a : a + n] for a, n in zip(starts, lengths, strict=True)]
    assert joined_slices(values, starts, lengths).tolist() == np.concatenate(parts).tolist()
    times, offsets = np.array([0.0, 5, 6, 1, 9, 9, 2]), np.array([0, 0, 3, 3, 6, 7, 7])
    begins, owners, falls = pauses(times, offsets, 4.0)
    assert (begins.tolist(), owners.tolist(), falls) == ([0, 1, 3, 4, 6, 7], [1, 1, 3, 3, 4], -1)
    times[[2, 5]] = 4.0, 8.0
    assert pauses(times, offsets, 4.0)[2] == 2
    assert pauses(times[:0], np.array([0, 0]), 1.0)[0].tolist() == [0]


@pytest.mark.parametrize("goal", ["", "goal"])
@pytest.mark.parametrize("kind", [pl.Int64, pl.String])
def test_a_log_is_the_same_in_any_number_of_threads(tmp_path, monkeypatch, goal, kind):
    users, items, times = random_log(4, rows=900, users=60)
    table = pl.DataFrame({"user": users, "item": items, "time": times, "goal": times % 2})
    table = table.with_columns(pl.col("user", "item").cast(kind))
    table.write_parquet(tmp_path / "log")
    prepared = []
    monkeypatch.setattr(blocks, "_VALUES_A_THREAD", 1)
    for count in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=count: count)
        read = read_source(
            tmp_path / "log", kind="parquet", core=13, goal_column=goal, min_length=14
        )
        split = leave_one_out(read.sequences)
        sessions, owners = sessions_of(read.sequences, gap=3.0)
        prepared.append(
            [read.vocabulary.keys.to_list(), read.sequences.names.to_list(), owners.tolist()]
            + [None if read.goals is None else read.goals.tolist()]
            + [
                tensor.tolist()
                for part in (read.sequences, sessions, split.train, split.test.targets, split.final)
                for tensor in (part.values, part.offsets, part.times)
            ]
        )
        assert torch.bincount(read.sequences.values).tolist() == read.vocabulary.counts.tolist()
        # What was not looked at when it was made is right all the same.
        for part in (read.sequences, sessions, split.train, split.final):
            Sequences(part.values, part.offsets, part.names, part.times)
            assert (part.values.dtype, part.offsets.dtype) == (torch.int64, torch.int64)
            assert part.times.dtype == torch.float64
    assert len(prepared[0][1]) < 60
    assert prepared[1] == prepared[0]
    assert prepared[2] == prepared[0]


def test_nanoseconds_beside_codes_become_seconds():
    numbers = np.array([1_700_000_000_250_000_000, 1_700_000_001_000_000_000])
    coded = Coded(np.zeros(2, np.int32), np.array([0, 2]), None, numbers, 1e9)
    sequences, _, _ = classes_of(coded, pl.Series(["tea"]))
    assert sequences.times.tolist() == [1_700_000_000.25, 1_700_000_001.0]


def test_an_error_in_a_thread_is_raised(threads):
    def fail(start, stop):
        raise ValueError(f"block {start}")

    with pytest.raises(ValueError, match="block 0"):
        blocks.in_blocks(fail, 10)
    assert sum(blocks.in_blocks(lambda start, stop: stop - start, 10)) == 10
    offsets = np.array([0, 0, 9, 9, 10, 10])
    assert sum(blocks.in_blocks(lambda start, stop: stop - start, 10, offsets)) == 5


@pytest.mark.parametrize("since", [None, -7])
def test_times_in_chunks_move_as_whole_ones_do(threads, since):
    codes, items, times = random_log(5)
    whole = grouped(codes, 12, items, times - 7)
    chunks = np.split(times - 7, [1, 1, 200, 477])
    moved, moved_times, offsets, unsorted = grouped(codes, 12, items, chunks, since)
    assert moved_times.dtype == (np.int64 if since is None else np.int32)
    assert moved.tolist() == whole[0].tolist()
    assert (moved_times + (since or 0)).tolist() == whole[1].tolist()
    assert (offsets.tolist(), unsorted) == (whole[2].tolist(), whole[3])


def test_times_that_lie_far_apart_are_kept_whole(tmp_path):
    times = [2**33, 5, 2**33 + 1, 6]
    table = pl.DataFrame({"user": [1, 1, 2, 2], "item": [3, 4, 3, 4], "time": times})
    table.write_parquet(tmp_path / "log")
    read = read_source(tmp_path / "log", kind="parquet")
    assert read.sequences.times.tolist() == [5, 2**33, 6, 2**33 + 1]


def test_what_train_and_validation_make_together_is_copied_when_it_is_asked_for():
    log = Sequences(torch.tensor([4, 0, 2, 3, 5]), torch.tensor([0, 3, 5]), times=torch.arange(5.0))
    split = leave_one_out(log)
    assert split.test.histories is split.final
    assert not {"values", "times"} & set(vars(split.final))
    assert split.final.values.tolist() == [4, 0, 3]
    assert split.final.values is split.final.values
    assert split.final.times.tolist() == [0, 1, 3]
