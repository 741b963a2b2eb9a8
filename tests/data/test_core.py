"""The core of a log, users' order and sessions, each against a plain loop."""

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.data.reading.numbering import Encoder, core_of
from widemax.data.reading.source import read_source
from widemax.data.sequences import Sequences, offsets_of
from widemax.data.sessions import sessions_of
from widemax.kernels.data.grouping import grouped
from widemax.kernels.data.k_core import k_core_reference, peeled

PATIENT = settings(max_examples=100, deadline=None)
LISTS = st.lists(st.lists(st.integers(0, 6), max_size=6), min_size=1, max_size=8)


@PATIENT
@given(LISTS, st.integers(0, 4))
def test_core_is_what_counting_again_leaves(lists, core):
    sequences = Sequences.from_lists(lists)
    arrays = sequences.values.numpy(), sequences.offsets.numpy(), 7, core
    assert peeled(*arrays).kept.tolist() == k_core_reference(*arrays).tolist()


def test_a_long_chain_is_peeled_to_its_end():
    """User i has items i and i + 1: once the first goes, all go, one after the other."""
    chain = np.repeat(np.arange(100_000), 2)[1:-1]  # the last item has one user only
    offsets = np.arange(0, len(chain) + 1, 2)
    assert not peeled(chain, offsets, 100_000, 2).kept.any()
    ring = np.concatenate([chain, [99_999, 0]])
    assert peeled(ring, np.append(offsets, len(ring)), 100_000, 2).kept.all()


def test_an_item_of_many_goes_with_its_users():
    """Thirty users have nothing but item 0, and two have items 1 and 2 besides."""
    lists = [[0]] * 30 + [[1, 2, 0], [2, 1]]
    sequences = Sequences.from_lists(lists)
    arrays = sequences.values.numpy(), sequences.offsets.numpy(), 3, 2
    assert peeled(*arrays).kept.tolist() == [False] * 30 + [True, True, False, True, True]
    assert peeled(*arrays).kept.tolist() == k_core_reference(*arrays).tolist()


def test_a_core_of_nothing_is_an_error(tmp_path):
    sequences = Sequences.from_lists([[0, 1], [1]])
    with pytest.raises(ValueError, match="core = 3 leaves no interaction of 3"):
        core_of(sequences, 3)
    with pytest.raises(ValueError, match="core must be between 0 and"):
        core_of(sequences, -1)
    path = tmp_path / "log"
    path.write_text("u1 i1\nu1 i2\n")
    with pytest.raises(ValueError, match="core = 2 leaves no interaction of 2"):
        read_source(path, kind="pairs", core=2)
    with pytest.raises(ValueError, match=r"core must be a whole number, got 2\.5"):
        read_source(path, kind="pairs", core=2.5)


def test_what_is_not_in_the_core_is_no_class(tmp_path):
    path = tmp_path / "log"
    path.write_text("a1 x1\na1 y1\nb1 y1\nb1 x1\nc1 x1\nc1 z1\n")
    read = read_source(path, kind="pairs", core=2, min_count=0)
    assert read.vocabulary.keys.to_list() == ["x1", "y1"]
    assert read.sequences.names.to_list() == ["a1", "b1"]
    assert read.vocabulary.counts.tolist() == [2, 2]


@PATIENT
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3))), st.booleans(), st.booleans())
def test_order_is_that_of_a_stable_sort(rows, timed, fractional):
    groups = np.array([group for group, _ in rows], np.int32)
    times = np.array([time for _, time in rows], float if fractional else np.int64)
    marks = np.arange(len(rows), dtype=np.int32)
    order, _, offsets, unsorted = grouped(groups, 5, marks, times if timed else None)
    key = (lambda row: rows[row]) if timed else (lambda row: rows[row][0])
    assert order.tolist() == sorted(range(len(rows)), key=key)
    assert offsets.tolist() == [sum(group < code for group, _ in rows) for code in range(6)]
    by_group = [[time for group, time in rows if group == code] for code in range(5)]
    assert unsorted == (sum(part != sorted(part) for part in by_group) if timed else 0)


@PATIENT
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)))
def test_numbers_get_codes_in_order_of_appearance(ids):
    encoder = Encoder(pl.Int64())
    codes = encoder.encode(pl.Series(ids, dtype=pl.Int64)).tolist()
    assert encoder.keys.to_list() == list(dict.fromkeys(ids))
    assert [encoder.keys[code] for code in codes] == ids
    again = encoder.encode(pl.Series([*ids[:1], 77], dtype=pl.Int64)).tolist()
    assert [encoder.keys[code] for code in again] == [*ids[:1], 77]


@PATIENT
@given(
    st.lists(st.lists(st.integers(0, 20), max_size=6).map(sorted), max_size=5), st.integers(1, 5)
)
def test_sessions_by_hand(times, gap):
    lengths = torch.tensor([len(part) for part in times], dtype=torch.long)
    flat = torch.tensor([time for part in times for time in part], dtype=torch.float64)
    values = torch.arange(len(flat))
    log = Sequences(values, offsets_of(lengths), times=flat)
    sessions, owners = sessions_of(log, gap=gap)
    expected = []
    for owner, part in enumerate(times):
        for place, time in enumerate(part):
            if place == 0 or time - part[place - 1] > gap:
                expected.append((owner, []))
            expected[-1][1].append(float(time))
    found = [
        (int(owner), sessions.times[start:stop].tolist())
        for owner, start, stop in zip(owners, sessions.offsets, sessions.offsets[1:], strict=False)
    ]
    assert found == expected
    assert sessions.values.tolist() == values.tolist()


def test_bad_sessions():
    log = Sequences.from_lists([[1, 2]])
    with pytest.raises(ValueError, match="sequences must have times"):
        sessions_of(log, gap=5)
    timed = Sequences(log.values, log.offsets, times=torch.tensor([2.0, 1.0]))
    with pytest.raises(ValueError, match=r"times must not fall within a sequence, .* value 1"):
        sessions_of(timed, gap=5)
    for gap in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="gap must be a finite number above 0"):
            sessions_of(timed, gap=gap)


@pytest.mark.parametrize("core", [1, 3, 6])
def test_what_is_left_of_users_and_items_is_counted(core):
    rng = np.random.default_rng(core)
    lengths = rng.integers(0, 12, 40)
    offsets = np.append(0, lengths.cumsum())
    items = rng.integers(0, 30, offsets[-1])
    left = peeled(items, offsets, 31, core)
    users = np.repeat(np.arange(40), lengths)
    assert left.user_counts.tolist() == np.bincount(users[left.kept], minlength=40).tolist()
    assert left.item_counts.tolist() == np.bincount(items[left.kept], minlength=31).tolist()
