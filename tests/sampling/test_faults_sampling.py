"""Bad input to the samplers: a typed error that names argument, value and limit, at once."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.sampling.sampler_cases import NUM_CLASSES, SAMPLER_CASES, frequency
from widemax.sampling import (
    AllClassesSampler,
    InBatchSampler,
    LearnedUnigramSampler,
    LogUniformSampler,
    MixtureSampler,
    PartitionSampler,
    QueueSampler,
    StreamingFrequency,
    UniformSampler,
    UnigramSampler,
)

ABSURD = 3590707793247644003


@pytest.mark.parametrize("name", SAMPLER_CASES)
@pytest.mark.parametrize("row", [[0x100000, 1], [0, -10]])
def test_fault_01_targets_out_of_range(name: str, row: list[int]) -> None:
    sampler = SAMPLER_CASES[name].build()
    wrong = max(row) if max(row) > 1 else min(row)
    if sampler.num_classes == 1:
        row = row[:1] if row[0] else row[1:]
    with pytest.raises(
        ValueError, match=f"targets must lie .*{sampler.num_classes - 1:,}"
    ) as error:
        sampler.sample(SAMPLER_CASES[name].num_samples or 4, torch.tensor([row]))
    assert f"{wrong:,}" in str(error.value)


@pytest.mark.parametrize(
    "build",
    [
        UniformSampler,
        LogUniformSampler,
        AllClassesSampler,
        LearnedUnigramSampler,
        StreamingFrequency,
        lambda num_classes: UnigramSampler(num_classes, [1.0, 2.0]),
        lambda num_classes: PartitionSampler(num_classes, [torch.tensor([0])]),
        lambda num_classes: InBatchSampler(num_classes, UniformSampler(2)),
    ],
)
@pytest.mark.parametrize("num_classes", [0, -1, 3031324185113192368, 2.5, True])
def test_fault_02_absurd_number_of_classes(build, num_classes) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match="num_classes must be"):
        build(num_classes)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("num_classes", [2**31 - 1, 2**32 + 1])
def test_fault_02_number_of_classes_that_no_table_holds(num_classes: int) -> None:
    start = time.perf_counter()
    for build in (AllClassesSampler, LearnedUnigramSampler):
        with pytest.raises(ValueError, match=r"num_classes must be between 1 and 268,435,456"):
            build(num_classes)
    with pytest.raises(ValueError, match=r"counts must have shape|num_classes must be"):
        UnigramSampler(num_classes, [1.0, 2.0])
    assert time.perf_counter() - start < 1


def test_fault_02_without_a_table_any_size_is_right() -> None:
    for num_classes in (2**31 - 1, 2**32 + 1):
        for build in (UniformSampler, LogUniformSampler):
            generator = torch.Generator().manual_seed(0)
            ids = build(num_classes).sample(1000, torch.tensor([0]), generator=generator).ids
            assert 0.9 * num_classes < int(ids.max()) < num_classes


@pytest.mark.parametrize("name", SAMPLER_CASES)
@pytest.mark.parametrize("num_samples", [ABSURD, 0, -1, 2.0, True])
def test_fault_03_absurd_number_of_samples(name: str, num_samples) -> None:
    sampler = SAMPLER_CASES[name].build()
    with pytest.raises(ValueError, match="num_samples"):
        sampler.sample(num_samples, torch.empty(0, dtype=torch.int64))


def test_fault_03_absurd_number_of_positives() -> None:
    with pytest.raises(ValueError, match="targets must hold between 1 and num_classes = 10"):
        UniformSampler(10).sample(2, torch.empty((0, ABSURD), dtype=torch.int64))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1.0, 2.0], r"shape \[num_classes\] = \[3\], got \[2\]"),
        ([[1.0, 2.0, 3.0]], r"got \[1, 3\]"),
        ([1.0, math.nan, 1.0], "got nan for class 1"),
        ([1.0, 1.0, math.inf], "got inf for class 2"),
        ([-2.0, 1.0, 1.0], "got -2.0 for class 0"),
        ([0.0, 0.0, 0.0], "3 zeros"),
        (["1", "2", "x"], "must hold numbers"),
        (torch.tensor([True, False, True]), "must hold numbers"),
        (np.array([1, 2, None]), "must hold numbers"),
    ],
)
def test_fault_04_wrong_counts(counts, message: str) -> None:
    with pytest.raises(ValueError, match=f"counts.*{message}"):
        UnigramSampler(3, counts)
    with pytest.raises(ValueError, match=f"counts.*{message}"):
        LogUniformSampler(3, counts=counts)


def test_fault_04_counts_all_excluded() -> None:
    with pytest.raises(ValueError, match="num_reserved_ids = 2"):
        UnigramSampler(4, [1, 1, 0, 0], num_reserved_ids=2)
    with pytest.raises(ValueError, match="num_shards = 2"):
        UnigramSampler(4, [1, 0, 1, 0], num_shards=2, shard=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distortion": math.nan}, "distortion"),
        ({"distortion": -10.5}, "distortion must be a finite number between -10 and 10"),
        ({"distortion": 11.0}, "distortion must be a finite number between -10 and 10"),
        ({"num_reserved_ids": -1}, "num_reserved_ids must be between 0 and 2, got -1"),
        ({"num_reserved_ids": 3}, "num_reserved_ids"),
        ({"num_shards": 0}, "num_shards"),
        ({"num_shards": 2, "shard": 2}, "shard must be between 0 and 1, got 2"),
    ],
)
def test_fault_04_wrong_options(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UnigramSampler(3, [1, 2, 3], **options)


def test_fault_04_counts_not_in_falling_order() -> None:
    with pytest.raises(ValueError, match=r"falling count.*class 1.*class 2.*UnigramSampler"):
        LogUniformSampler(4, counts=[5, 3, 4, 1])
    LogUniformSampler(4, counts=torch.tensor([5, 3, 3, 0]))


def test_fault_06_distinct_draws_that_can_never_succeed() -> None:
    start = time.perf_counter()
    sampler = UnigramSampler(4, [1, 0, 0, 0], unique=True)
    with pytest.raises(ValueError, match=r"num_samples = 2 .* only 1 of 4 classes"):
        sampler.sample(2, torch.tensor([0]))
    with pytest.raises(ValueError, match=r"num_samples = 11 .* only 10 of 10"):
        UniformSampler(10, unique=True).sample(11, torch.tensor([0]))
    assert time.perf_counter() - start < 1


def test_fault_06_distinct_draws_that_would_hardly_ever_succeed() -> None:
    sampler = UnigramSampler(3, [1e30, 1, 1], distortion=1.0, unique=True)
    start = time.perf_counter()
    with pytest.raises(ValueError, match="too concentrated; ask for at most 1"):
        sampler.sample(2, torch.tensor([0]))
    assert time.perf_counter() - start < 10


def test_fault_07_target_with_proposal_probability_0() -> None:
    targets = torch.tensor([0, 1, 5])
    for unique in (False, True):
        sampler = UnigramSampler(10, torch.ones(10), num_reserved_ids=2, unique=unique)
        count = sampler.sample(4, targets).target_log_expected_count
        assert count[:2].tolist() == [-math.inf, -math.inf]
        assert math.isfinite(count[2])
    mixture = MixtureSampler([UnigramSampler(3, [0, 1, 1]), UnigramSampler(3, [0, 1, 2])], [1, 1])
    count = mixture.sample(4, torch.tensor([0])).target_log_expected_count
    assert count.tolist() == [-math.inf]


def test_fault_07_candidate_with_probability_0() -> None:
    reserved = UnigramSampler(10, torch.ones(10), num_reserved_ids=2)
    with pytest.raises(ValueError, match="probability 0 to class 1"):
        InBatchSampler(10, reserved).sample(None, torch.tensor([5, 1]))


def test_fault_07_target_outside_the_part() -> None:
    sampler = PartitionSampler(10, [torch.tensor([1, 2]), torch.tensor([3])])
    with pytest.raises(ValueError, match=r"part 0, which has 2 classes; 3 does not"):
        sampler.sample(None, torch.tensor([1, 3]))
    sampler.select(1)
    assert sampler.sample(None, torch.tensor([3])).ids.tolist() == [3]
    with pytest.raises(ValueError, match="part must be between 0 and 1, got 2"):
        sampler.select(2)


def test_fault_08_every_copy_of_a_hit_is_reported() -> None:
    # The objective removes hits; for that the sampler must hand over each copy as drawn.
    ids = UnigramSampler(3, [98, 1, 1]).sample(50, torch.tensor([0])).ids
    assert int((ids == 0).sum()) > 30
    candidates = InBatchSampler(3, UniformSampler(3)).sample(None, torch.tensor([2, 2, 1]))
    assert candidates.ids.tolist() == [2, 2, 1]


def test_fault_11_more_than_2_to_the_24_classes() -> None:
    num_classes = 2**25
    counts = torch.full((num_classes,), 2, dtype=torch.int8)
    counts[num_classes // 2 :] = 1
    counts[::8] = 0
    sampler = UnigramSampler(num_classes, counts, distortion=1.0)
    generator = torch.Generator().manual_seed(0)
    second_half = weightless = odd = 0
    for _ in range(10):
        ids = sampler.draw((1_000_000,), generator=generator)
        second_half += int((ids >= num_classes // 2).sum())
        weightless += int((ids % 8 == 0).sum())
        odd += int((ids % 2 == 1).sum())
    assert weightless == 0
    assert abs(second_half / 1e7 - 1 / 3) < 5 * math.sqrt(2 / 9 / 1e7)
    # Ids beyond 2^24 are distinguished: of every 7 classes drawn from, 4 are odd.
    assert abs(odd / 1e7 - 4 / 7) < 5 * math.sqrt(12 / 49 / 1e7)


@pytest.mark.parametrize("name", SAMPLER_CASES)
@pytest.mark.parametrize("batch_size", [0, 1])
def test_fault_13_empty_batch_and_batch_of_one(name: str, batch_size: int) -> None:
    case = SAMPLER_CASES[name]
    sampler = case.build()
    target = int(sampler.log_prob(torch.arange(sampler.num_classes)).argmax())
    targets = torch.full((batch_size,), target)
    limited = sampler.available(targets) is not None
    num_samples = None if limited else case.num_samples or min(4, sampler.num_classes)
    if name == "unigram one drawable":
        num_samples = 1
    candidates = sampler.sample(num_samples, targets)
    assert candidates.target_log_expected_count.shape == (batch_size,)
    assert bool(candidates.target_log_expected_count.isfinite().all())
    assert bool(candidates.log_expected_count.isfinite().all())


@pytest.mark.parametrize("unique", [False, True])
def test_fault_13_one_class(unique: bool) -> None:
    samplers = [
        UniformSampler(1, unique=unique),
        LogUniformSampler(1, unique=unique),
        UnigramSampler(1, [7], unique=unique),
        LearnedUnigramSampler(1, unique=unique),
    ]
    for sampler in samplers:
        candidates = sampler.sample(1, torch.tensor([0, 0]))
        assert candidates.ids.tolist() == [0]
        assert candidates.log_expected_count.tolist() == [0.0]
        assert candidates.target_log_expected_count.tolist() == [0.0, 0.0]


def test_fault_13_batch_with_every_positive_absent() -> None:
    targets = torch.full((3, 2), -1)
    for sampler in (
        InBatchSampler(NUM_CLASSES, StreamingFrequency(NUM_CLASSES)),
        QueueSampler(NUM_CLASSES, frequency(), capacity=4),
    ):
        candidates = sampler.sample(None, targets)
        assert candidates.ids.shape == (0,)
        assert candidates.target_log_expected_count.tolist() == [[0.0, 0.0]] * 3


class _NoFrequency:
    def probability(self, ids: Tensor) -> Tensor:
        return ids.double()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: InBatchSampler(10, None), "frequency must have a method log_prob"),
        (lambda: InBatchSampler(10, _NoFrequency()), "frequency must have a method log_prob"),
        (lambda: InBatchSampler(10, UniformSampler(11)), "num_classes = 10 classes, got 11"),
        (lambda: QueueSampler(10, UniformSampler(10), capacity=0), "capacity .* got 0"),
        (lambda: QueueSampler(10, UniformSampler(10), capacity=ABSURD), "capacity must be between"),
        (lambda: StreamingFrequency(10, rate=0.0), "rate"),
        (lambda: StreamingFrequency(10, rate=1.5), "rate"),
        (lambda: StreamingFrequency(10, num_buckets=ABSURD), "num_buckets"),
        (lambda: StreamingFrequency(10, num_hashes=0), "num_hashes"),
        (lambda: PartitionSampler(10, []), "parts"),
        (lambda: PartitionSampler(10, [torch.tensor([10])]), r"parts\[0\] must lie between"),
        (lambda: PartitionSampler(10, [torch.empty(0)]), r"parts\[0\]"),
        (
            lambda: PartitionSampler.from_targets(torch.tensor([1]), 10, max_classes=0),
            "max_classes",
        ),
        (
            lambda: PartitionSampler.from_targets(torch.tensor([10]), 10, max_classes=1),
            "targets must lie",
        ),
        (
            lambda: PartitionSampler.from_targets(torch.tensor([1]), 2**32, max_classes=1),
            "num_classes must be between 1 and 268,435,456",
        ),
        (lambda: MixtureSampler([], []), "one value per sampler, got 0 for 0"),
        (lambda: MixtureSampler([StreamingFrequency(2)], [1]), r"samplers\[0\] must be a Sampler"),
        (lambda: MixtureSampler([UniformSampler(2)], ["1"]), r"weights\[0\] must be a finite"),
        (lambda: StreamingFrequency(10, rate="fast"), "rate must be a finite number"),
        (lambda: StreamingFrequency(10, seed="x"), "seed must be a whole number, got 'x'"),
        (lambda: UnigramSampler(2, [1, 2], distortion=None), "distortion must be a finite"),
        (lambda: UniformSampler(2).sample(1, [0, 1]), "targets must be a tensor, got list"),
        (lambda: UniformSampler(2).sample(1, np.zeros(2, int)), "targets must be a tensor, got nd"),
        (lambda: PartitionSampler(10, [[1, 2]]), r"parts\[0\] must be a tensor, got list"),
        (lambda: MixtureSampler([UniformSampler(2)], [1, 1]), "got 2 for 1"),
        (lambda: MixtureSampler([UniformSampler(2)], [0.0]), r"weights\[0\]"),
        (lambda: MixtureSampler([UniformSampler(2)], [math.nan]), r"weights\[0\]"),
        (lambda: MixtureSampler([UniformSampler(2), UniformSampler(3)], [1, 1]), "share"),
        (lambda: MixtureSampler([UniformSampler(2, unique=True)], [1]), "must not be unique"),
        (
            lambda: MixtureSampler(
                [UniformSampler(2), UniformSampler(2, per_example=True)], [1, 1]
            ),
            "per_example",
        ),
        (
            lambda: MixtureSampler([MixtureSampler([UniformSampler(2)], [1])], [1]),
            "is a mixture",
        ),
    ],
)
def test_wrong_arguments_are_refused(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_numbers_of_numpy_and_small_dtypes_are_taken() -> None:
    """Sizes often come out of NumPy: max() + 1 of an array of ids, say."""
    five = np.int64(5)
    targets = torch.tensor([0, 4])
    for sampler in (
        UniformSampler(five),
        LogUniformSampler(five),
        LearnedUnigramSampler(five),
        UnigramSampler(five, torch.ones(5, dtype=torch.bfloat16)),
    ):
        assert type(sampler.num_classes) is int
        assert sampler.sample(np.int64(3), targets).ids.shape == (3,)
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.uint16, torch.uint32, torch.uint64):
        assert UniformSampler(5).sample(3, targets.to(dtype)).ids.dtype == torch.int64
        with pytest.raises(ValueError, match="targets must lie between 0 and 3"):
            UniformSampler(4).sample(3, targets.to(dtype))
