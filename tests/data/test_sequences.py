"""Sequences and windows against loops over plain lists."""

import itertools

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.data.reading.numbering import Coded, Encoder, Limits, classes_of
from widemax.data.sequences import Sequences, Windows
from widemax.devices import plain_torch
from widemax.kernels.data.windows import read_examples, read_windows

PATIENT = settings(max_examples=100, deadline=None)
LISTS = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6)


def as_lists(sequences):
    return [sequences.sequence(index).tolist() for index in range(len(sequences))]


def windows_by_hand(lists, before, after):
    """Return every context and target, in the order of the values."""
    examples = []
    for values in lists:
        for place, target in enumerate(values):
            steps = [*range(-before, 0), *range(1, after + 1)]
            places = [place + step for step in steps]
            context = [values[at] if 0 <= at < len(values) else -1 for at in places]
            examples.append((context, target))
    return examples


@PATIENT
@given(LISTS)
def test_lists_come_back(lists):
    sequences = Sequences.from_lists(lists)
    assert as_lists(sequences) == lists
    assert sequences.lengths.tolist() == [len(values) for values in lists]
    assert len(sequences) == len(lists)


@PATIENT
@given(LISTS, st.integers(1, 3))
def test_split_last_holds_out_the_ends(lists, n):
    names = pl.Series([f"user {place}" for place in range(len(lists))], dtype=pl.String)
    train, targets = Sequences.from_lists(lists, names=names).split_last(n)
    assert as_lists(train) == [part[:-n] if len(part) > n else part for part in lists]
    assert targets.tolist() == [part[-n:] if len(part) > n else [-1] * n for part in lists]
    assert train.names is not None
    assert train.names.to_list() == names.to_list()


@PATIENT
@given(LISTS, st.floats(0, 1, exclude_max=True))
def test_split_cuts_between_sequences(lists, fraction):
    names = list(range(len(lists)))
    first, last = Sequences.from_lists(lists, names=names).split(fraction)
    assert as_lists(first) + as_lists(last) == lists
    assert len(last) == round(fraction * len(lists))
    assert first.names.to_list() + last.names.to_list() == names


@PATIENT
@given(LISTS, st.integers(0, 4), st.integers(0, 4), st.randoms(use_true_random=False))
def test_windows_by_hand(lists, before, after, random):
    if not before + after:
        after = 1
    expected = windows_by_hand(lists, before, after)
    windows = Windows(Sequences.from_lists(lists), before, after)
    assert len(windows) == len(expected)
    rows = [random.randrange(len(expected)) for _ in range(7)] if expected else []
    batch = windows.batch(torch.tensor(rows, dtype=torch.long))
    assert batch.context.shape == (len(rows), before + after)
    found = list(zip(batch.context.tolist(), batch.targets.tolist(), strict=True))
    assert found == [expected[row] for row in rows]


@PATIENT
@given(LISTS, st.integers(0, 4), st.integers(0, 4), st.randoms(use_true_random=False))
def test_windows_by_a_kernel_are_those_without(lists, before, after, random):
    sequences = Sequences.from_lists(lists)
    total = len(sequences.values)
    places = torch.tensor([random.randrange(total) for _ in range(20) if total], dtype=torch.long)
    arrays = (each.numpy() for each in (sequences.values, sequences.offsets, places))
    context, users = map(torch.from_numpy, read_windows(*arrays, before, after + 1))
    with plain_torch():
        plain = Windows(sequences, before, after + 1).batch(places)
    assert torch.equal(context, plain.context)
    assert torch.equal(users, plain.users)


@PATIENT
@given(LISTS, st.booleans(), st.randoms(use_true_random=False))
def test_examples_by_a_kernel_are_those_without(lists, some, random):
    sequences = Sequences.from_lists(lists)
    chosen = torch.arange(0, len(sequences.values), 2) if some else torch.empty(0, dtype=torch.long)
    total = len(chosen) or len(sequences.values)
    rows = torch.tensor([random.randrange(total) for _ in range(20) if total], dtype=torch.long)
    arrays = (each.numpy() for each in (sequences.values, sequences.offsets, chosen, rows))
    found = map(torch.from_numpy, read_examples(*arrays, 3, 1))
    with plain_torch():
        plain = Windows(sequences, 3, 1, chosen if len(chosen) else None).batch(rows)
    for own, other in zip(found, (plain.context, plain.targets, plain.users), strict=True):
        assert torch.equal(own, other)


@PATIENT
@given(LISTS, st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_windows_without_context_are_dropped(lists, before, after, some):
    before = before or 1 - min(after, 1)
    expected = windows_by_hand(lists, before, after)
    chosen = list(range(0, len(expected), 2 if some else 1))
    windows = Windows(
        Sequences.from_lists(lists), before, after,
        torch.tensor(chosen, dtype=torch.long) if some else None, require_context=True,
    )  # fmt: skip
    batch = windows.batch(torch.arange(len(windows)))
    found = list(zip(batch.context.tolist(), batch.targets.tolist(), strict=True))
    assert found == [expected[row] for row in chosen if max(expected[row][0]) >= 0]


@pytest.mark.parametrize(
    ("values", "offsets", "message"),
    [
        ([1, 2], [0, 1], "offsets must start at 0 and end at 2"),
        ([1, 2], [1, 2], "offsets must start at 0"),
        ([1, 2], [], "offsets must start at 0"),
        ([1, 2], [0, 3, 2], r"offsets must never fall, got \[3, 2\]"),
        ([1, -1], [0, 2], "values must be at least 0, got -1"),
        ([[1]], [0, 1], r"values must have one dimension, got \[1, 1\]"),
        ([1.0], [0, 1], "values must hold whole numbers"),
    ],
)
def test_bad_sequences(values, offsets, message):
    with pytest.raises(ValueError, match=message):
        Sequences(torch.tensor(values), torch.tensor(offsets, dtype=torch.long))


def test_bad_names():
    with pytest.raises(ValueError, match="names must be as many as the sequences, 1, got 2"):
        Sequences.from_lists([[1]], names=["a", "b"])
    with pytest.raises(ValueError, match=r"names\[0\] is null"):
        Sequences.from_lists([[1]], names=pl.Series([None], dtype=pl.String))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"before": 0}, r"before \+ after must be at least 1"),
        ({"before": -1}, "before must be between 0 and"),
        ({"after": 2**40}, "after must be between 0 and"),
        ({"positions": torch.tensor([3])}, "positions must be between 0 and 2, got 3"),
        ({"positions": torch.tensor([-1])}, "positions must be between 0 and 2, got -1"),
        ({"positions": torch.tensor([0.5])}, "positions must hold whole numbers"),
    ],
)
def test_bad_windows(arguments, message):
    with pytest.raises(ValueError, match=message):
        Windows(Sequences.from_lists([[1, 2, 3]]), **arguments)


@PATIENT
@given(LISTS, st.integers(0, 2), st.integers(1, 3), st.booleans())
def test_of_each_sequence_some_examples_are_left(lists, after, count, require_context):
    sequences = Sequences.from_lists(lists)
    windows = Windows(sequences, 2, after, require_context=require_context)
    positions = windows.positions
    if positions is None:
        positions = torch.arange(len(sequences.values))
    fewer = windows.at_most(count, generator=torch.Generator().manual_seed(3))
    left = fewer.positions.tolist()
    assert left == sorted(set(left))
    assert set(left) <= set(positions.tolist())
    for start, end in itertools.pairwise(sequences.offsets.tolist()):
        before = sum(start <= place < end for place in positions.tolist())
        assert sum(start <= place < end for place in left) == min(count, before)
    again = windows.at_most(count, generator=torch.Generator().manual_seed(3))
    assert again.positions.tolist() == left
    assert (fewer.before, fewer.after) == (2, after)


def test_every_example_of_a_sequence_is_as_likely_to_be_left():
    windows = Windows(Sequences.from_lists([[1, 1, 1, 1, 1]]), 2)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.cat([windows.at_most(2, generator=generator).positions for _ in range(2000)])
    shares = drawn.bincount(minlength=5) / 2000
    # Each is left with probability 2/5, with a standard error of 0.011.
    assert float((shares - 0.4).abs().max()) < 0.05


def test_at_least_one_example_must_be_left():
    with pytest.raises(ValueError, match="count must be between 1"):
        Windows(Sequences.from_lists([[1, 2]]), 2).at_most(0)


def test_bad_rows_and_splits():
    sequences = Sequences.from_lists([[1, 2, 3]])
    with pytest.raises(ValueError, match="rows must be between 0 and 2, got 3"):
        Windows(sequences).batch(torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="index must be between 0 and 0, got 1"):
        sequences.sequence(1)
    with pytest.raises(ValueError, match="n must be between 1"):
        sequences.split_last(0)
    with pytest.raises(ValueError, match="fraction must be at least 0 and below 1"):
        sequences.split(1.0)


@PATIENT
@given(st.lists(st.lists(st.sampled_from(["a", "bé", "", "a long name of a thing"]), max_size=5)))
def test_encoder_over_blocks_is_the_encoder_at_once(blocks):
    encoder = Encoder(pl.String())
    codes = [encoder.encode(pl.Series(block, dtype=pl.String)).tolist() for block in blocks]
    everything = [key for block in blocks for key in block]
    assert encoder.keys.to_list() == list(dict.fromkeys(everything))
    assert [encoder.keys[code] for part in codes for code in part] == everything


@PATIENT
@given(LISTS, st.integers(1, 3), st.integers(1, 3), st.sampled_from([None, "?"]))
def test_what_is_left_is_what_is_counted(lists, min_count, min_length, unknown):
    keys = [f"k{value}" for part in lists for value in part]
    counts = {key: keys.count(key) for key in keys}
    common = {key for key, count in counts.items() if count >= min_count}
    words = [[f"k{value}" for value in part] for part in lists]
    mapped = [[key if key in common else unknown for key in part] for part in words]
    kept = [[key for key in part if key] for part in mapped]
    kept = [part for part in kept if len(part) >= min_length]
    encoder = Encoder(pl.String())
    codes = encoder.encode(pl.Series(keys, dtype=pl.String))
    coded = Coded(codes, np.cumsum([0, *(len(part) for part in lists)]))
    limits = Limits(min_count=min_count, min_length=min_length, unknown=unknown)
    if not kept:
        with pytest.raises(ValueError, match=r"leaves no|no keys"):
            classes_of(coded, encoder.keys, limits)
        return
    sequences, vocabulary, _ = classes_of(coded, encoder.keys, limits)
    assert [vocabulary.decode(part) for part in as_lists(sequences)] == kept
    counted = np.bincount(sequences.values.numpy(), minlength=len(vocabulary))
    assert vocabulary.counts.tolist() == counted.tolist()
    assert vocabulary.ordered
