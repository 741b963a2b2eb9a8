"""Each kernel against the plain reference beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from widemax.kernels.sampling import alias, distinct, partition
from widemax.sampling.base import DrawnSampler, first_distinct_by_sorting
from widemax.sampling.log_uniform import LogUniformSampler
from widemax.sampling.unigram import UnigramSampler, look_up_in_torch

WEIGHTS = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.integers(1, 5).map(float)),
    min_size=1,
    max_size=60,
).filter(any)


@settings(max_examples=300, deadline=None)
@given(WEIGHTS)
def test_alias_table_holds_the_weights(weights: list[float]) -> None:
    scaled = alias.scaled_weights(np.array(weights))
    expected = scaled / len(scaled)
    for build in (alias.build_alias_table, alias.build_alias_table_reference):
        table = build(scaled)
        probability = alias.table_probability(table)
        # float32 thresholds: relative to the larger of the class and one column.
        np.testing.assert_allclose(probability, expected, rtol=2e-7 * len(weights), atol=1e-12)
    assert (alias.table_probability(alias.build_alias_table(scaled))[expected == 0] == 0).all()


@settings(max_examples=100, deadline=None)
@given(WEIGHTS)
def test_the_alias_table_of_plain_python_is_that_of_the_kernel(weights: list[float]) -> None:
    """Where Numba is not loaded yet the same function runs as it is written."""
    scaled = alias.scaled_weights(np.array(weights))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(alias, "is_loaded", lambda: False)
        written = alias.build_alias_table(scaled)
        patched.setattr(alias, "is_loaded", lambda: True)
        assert np.array_equal(alias.build_alias_table(scaled), written)


def test_alias_table_keeps_rare_classes_to_single_precision() -> None:
    weights = np.full(100_000, 1e-9)
    weights[::1000] = np.arange(1, 101)
    expected = weights / weights.sum()
    probability = alias.table_probability(alias.build_alias_table(alias.scaled_weights(weights)))
    np.testing.assert_allclose(probability, expected, rtol=1e-6)


def test_equal_weights_whose_rounding_leaves_no_heavy_class() -> None:
    # 1/49 · 49 rounds below 1: every class is light, and none may be lost.
    scaled = np.full(49, 49 * (1 / 49))
    assert scaled[0] < 1
    probability = alias.table_probability(alias.build_alias_table(scaled))
    np.testing.assert_allclose(probability, 1 / 49, rtol=1e-6)


def test_mass_that_rounding_leaves_over_never_reaches_a_weightless_class() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random(100_001) ** 8
    weights[rng.random(len(weights)) < 0.5] = 0.0
    table = alias.build_alias_table(alias.scaled_weights(weights))
    assert (weights[table[:, 1]] > 0).all()
    assert (table.view(np.float32)[weights == 0, 0] == 0).all()
    # Rounding at its worst: so much mass is lost that the heavy class runs out first.
    table = alias.build_alias_table(np.array([0.0, 1.0, 0.0]))
    assert table[:, 1].tolist() == [1, 1, 1]


def test_look_up_is_the_torch_look_up() -> None:
    sampler = UnigramSampler(1000, torch.arange(1000) % 7)
    generator = torch.Generator().manual_seed(0)
    drawn = sampler.draw((5000,), generator=generator)
    generator.manual_seed(0)
    column = torch.randint(1000, (5000,), generator=generator)
    uniform = torch.rand(5000, dtype=torch.float64, generator=generator)
    assert torch.equal(drawn, look_up_in_torch(sampler._table, column, uniform))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=80), st.integers(1, 13))
def test_partition_starts_as_the_reference(targets: list[int], max_classes: int) -> None:
    array = np.array(targets)
    expected = partition.partition_starts_reference(array, 13, max_classes)
    assert partition.partition_starts(array, 13, max_classes).tolist() == expected.tolist()


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 2**40), min_size=6 * width, max_size=6 * width),
            min_size=0,
            max_size=3,
        )
    ),
    st.integers(1, 6),
    st.integers(1, 9),
)
def test_first_distinct_as_both_references(
    rows: list[list[int]], num_samples: int, modulus: int
) -> None:
    drawn = np.array(rows, dtype=np.int64).reshape(len(rows), -1 if rows else 6)
    drawn = drawn % modulus * (2**36 + 1)  # many repeats, and ids that need 40 bits
    ids, tries, found = distinct.first_distinct(drawn, num_samples)
    expected = distinct.first_distinct_reference(drawn, num_samples)
    sorted_ids, *sorted_rest = first_distinct_by_sorting(torch.from_numpy(drawn), num_samples)
    assert tries.tolist() == expected[1].tolist() == sorted_rest[0].tolist()
    assert found.tolist() == expected[2].tolist() == sorted_rest[1].tolist()
    for row, size in enumerate(found):
        assert ids[row, :size].tolist() == expected[0][row, :size].tolist()
    assert sorted_ids.tolist() == expected[0].tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_first_distinct_reads_no_more_than_it_needs(size: int) -> None:
    ids, tries, found = distinct.first_distinct(np.arange(size)[None, :].repeat(2, 0), size)
    assert tries.tolist() == found.tolist() == [size, size]
    assert ids.tolist() == [list(range(size))] * 2


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_rows_among_equals_isin(size):
    generator = np.random.default_rng(size)
    ids = generator.integers(0, 2000, size)
    classes = generator.integers(0, 2000, 3000)
    expected = np.flatnonzero(np.isin(classes, ids))
    assert distinct.rows_among(classes, ids).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("num_classes", "size"), [(50, 25), (1000, 100), (10**6, 1024), (10**9, 3)]
)
def test_distinct_log_uniform_equals_the_plain_way(num_classes, size):
    sampler = LogUniformSampler(num_classes, unique=True)
    targets = torch.randint(num_classes, (40,), generator=torch.Generator().manual_seed(0))
    for seed in range(20):
        kernel, plain = (
            sample(sampler, size, targets, generator=torch.Generator().manual_seed(seed))
            for sample in (LogUniformSampler.sample, DrawnSampler.sample)
        )
        assert torch.equal(kernel.ids, plain.ids)
        for name in ("log_expected_count", "target_log_expected_count"):
            mine, reference = getattr(kernel, name), getattr(plain, name)
            torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-9)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 30), max_size=25),
    st.integers(0, 7).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(-1, 30), min_size=width, max_size=width), max_size=6
        ).map(lambda rows: np.array(rows, np.int64).reshape(len(rows), width))
    ),
    st.sampled_from([1, 2**40]),
)
def test_marks_are_those_of_plain_python(
    ids: list[int], classes: NDArray[np.int64], scale: int
) -> None:
    wide = np.where(classes < 0, classes, classes * scale)
    found = distinct.mark_among(wide, np.array(ids, np.int64) * scale)
    expected = [[id in row for id in ids] for row in classes.tolist()]
    assert found.shape == (len(classes), len(ids))
    assert found.tolist() == expected
