"""What each sampler promises beyond the common contract."""

from __future__ import annotations

import math

import pytest
import torch

from tests.sampling.sampler_cases import COUNTS, NUM_CLASSES, frequency
from widemax.sampling import (
    AllClassesSampler,
    DrawnSampler,
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


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Distinct draws


@pytest.mark.parametrize(
    "sampler",
    [
        UniformSampler(60, unique=True),
        LogUniformSampler(60, unique=True),
        UnigramSampler(60, COUNTS[:60], unique=True),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_inclusion_frequencies_are_the_expected_counts(sampler: DrawnSampler) -> None:
    everything = torch.arange(60)
    calls = 4000
    included = torch.zeros(60, dtype=torch.float64)
    expected = torch.zeros(60, dtype=torch.float64)
    generator = seeded()
    for _ in range(calls):
        candidates = sampler.sample(20, everything, generator=generator)
        included[candidates.ids] += 1
        expected += candidates.target_log_expected_count.exp()
    # The formula is exact for a given T; that T depends on the draws biases it by a few per cent.
    noise = 5 * (expected.clamp(min=1) * (1 - expected / calls).clamp(min=0.01)).sqrt()
    assert bool(((included - expected).abs() <= noise + 0.04 * expected).all())


def test_distinct_draws_keep_the_order_of_drawing() -> None:
    # unique()[:n] sorts, and so keeps the popular ids only.
    sampler = LogUniformSampler(100_000, unique=True)
    ids = sampler.sample(1000, torch.tensor([0]), generator=seeded()).ids
    drawn = sampler.draw((2000,), generator=seeded()).tolist()
    assert ids.tolist() == list(dict.fromkeys(drawn))[:1000]
    biased = torch.unique(torch.tensor(drawn))[:1000]
    assert ids.double().mean() > 2 * biased.double().mean()


def test_distinct_draws_of_nearly_every_class_end() -> None:
    sampler = UniformSampler(500, unique=True, per_example=True)
    candidates = sampler.sample(500, torch.tensor([0, 1, 2]), generator=seeded())
    assert candidates.ids.sort(-1).values.tolist() == [list(range(500))] * 3


# Unigram


def test_unigram_reads_tensors_arrays_and_sequences_alike() -> None:
    ids = torch.arange(NUM_CLASSES)
    expected = torch.tensor(COUNTS).double().pow(0.75)
    expected = (expected / expected.sum()).log()
    tensor = torch.tensor(COUNTS)
    for counts in (COUNTS, tuple(COUNTS), tensor, tensor.float(), tensor.numpy()):
        log_prob = UnigramSampler(NUM_CLASSES, counts).log_prob(ids)
        torch.testing.assert_close(log_prob, expected, rtol=0, atol=1e-6)


def test_unigram_shards_share_the_classes_out() -> None:
    ids = torch.arange(NUM_CLASSES)
    for shard in range(3):
        sampler = UnigramSampler(NUM_CLASSES, COUNTS, num_shards=3, shard=shard)
        drawable = sampler.log_prob(ids).isfinite()
        assert torch.equal(drawable, ids % 3 == shard)
        assert sampler.num_drawable == NUM_CLASSES // 3


def test_unigram_distortion_0_is_uniform_over_the_classes_seen() -> None:
    sampler = UnigramSampler(4, [9, 0, 1, 0], distortion=0.0)
    assert sampler.log_prob(torch.arange(4)).exp().tolist() == [0.5, 0.0, 0.5, 0.0]
    assert set(sampler.draw((1000,), generator=seeded()).tolist()) == {0, 2}


@pytest.mark.parametrize("distortion", [-10.0, -1.0, -0.5, 0.5, 2.0, 10.0])
def test_unigram_draws_by_a_power_of_the_counts(distortion) -> None:
    counts = [100, 0, 25, 4, 5]
    sampler = UnigramSampler(5, counts, distortion=distortion)
    weights = [float(count) ** distortion if count else 0.0 for count in counts]
    expected = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    found = sampler.log_prob(torch.arange(5)).exp()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    drawn = torch.bincount(sampler.draw((100_000,), generator=seeded()), minlength=5) / 100_000
    assert drawn[1] == 0
    torch.testing.assert_close(drawn.double(), expected, rtol=0, atol=0.008)


@pytest.mark.parametrize("distortion", [-10.0, 10.0])
def test_unigram_counts_whose_powers_overflow_float64(distortion) -> None:
    sampler = UnigramSampler(3, [1e300, 1.0, 0.0], distortion=distortion)
    likely = [1.0, 0.0, 0.0] if distortion > 0 else [0.0, 1.0, 0.0]
    assert sampler.log_prob(torch.arange(3)).exp().tolist() == likely


def test_unigram_counts_that_overflow_float64_when_summed() -> None:
    sampler = UnigramSampler(3, [1e308, 1e308, 1e308], distortion=1.5)
    torch.testing.assert_close(
        sampler.log_prob(torch.arange(3)).exp(), torch.full((3,), 1 / 3, dtype=torch.float64)
    )


@pytest.mark.parametrize("cast", [torch.nn.Module.half, torch.nn.Module.double])
def test_casting_the_model_leaves_probabilities_alone(cast) -> None:
    counts = [1e9, 1.0, 1.0, 7.0]
    sampler = UnigramSampler(4, counts, distortion=1.0)
    before = sampler.log_prob(torch.arange(4))
    assert torch.equal(cast(sampler).log_prob(torch.arange(4)), before)
    streaming = StreamingFrequency(4)
    for _ in range(3000):
        streaming.update(torch.tensor([1]))
    streaming.update(torch.tensor([2]))
    before = streaming.log_prob(torch.arange(4))
    assert torch.equal(cast(streaming).log_prob(torch.arange(4)), before)
    streaming.update(torch.tensor([2]))


def test_table_is_not_part_of_the_state() -> None:
    assert UnigramSampler(4, [1, 2, 3, 4]).state_dict() == {}


# Learned unigram


@pytest.mark.parametrize("num_classes", [1, 2, 3, 7, 8, 9, 1000])
def test_learned_unigram_counts_targets(num_classes: int) -> None:
    sampler = LearnedUnigramSampler(num_classes)
    seen = torch.randint(num_classes, (50, 3), generator=seeded())
    seen[::3, 2] = -1
    sampler.sample(5, seen[:, :1], generator=seeded())
    sampler.update(seen)
    present = torch.cat([seen[:, 0], seen[seen >= 0]])
    counts = 1 + torch.bincount(present, minlength=num_classes).double()
    expected = (counts / counts.sum()).log()
    torch.testing.assert_close(sampler.log_prob(torch.arange(num_classes)), expected)
    assert int(sampler.tree[1]) == int(counts.sum())
    for node in range(1, len(sampler.tree) // 2):
        assert sampler.tree[node] == sampler.tree[2 * node] + sampler.tree[2 * node + 1]


def test_learned_unigram_learns_after_it_has_drawn() -> None:
    sampler = LearnedUnigramSampler(2)
    candidates = sampler.sample(4, torch.tensor([1, 1]), generator=seeded())
    assert candidates.target_log_expected_count.exp().tolist() == [2.0, 2.0]
    assert sampler.log_prob(torch.tensor(1)).exp().item() == pytest.approx(3 / 4)
    sampler.eval().sample(4, torch.tensor([1, 1]))
    assert sampler.log_prob(torch.tensor(1)).exp().item() == pytest.approx(3 / 4)


# Streaming frequency


def zipf_targets(num_classes: int, steps: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    probability = 1.0 / torch.arange(10, num_classes + 10, dtype=torch.float64)
    probability /= probability.sum()
    drawn = torch.multinomial(probability, steps * batch, replacement=True, generator=seeded())
    return drawn.view(steps, batch), probability


@pytest.mark.parametrize(
    ("num_buckets", "spread"), [(2**20, 1), (2**14, 2**31 + 11)], ids=["own bucket", "hashed"]
)
def test_streaming_estimates_the_frequency(num_buckets: int, spread: int) -> None:
    num_classes, steps, batch = 400, 6000, 8
    targets, probability = zipf_targets(num_classes, steps, batch)
    streaming = StreamingFrequency(num_classes * spread, num_buckets=num_buckets, rate=0.02)
    for row in targets * spread:
        streaming.update(row)
    estimate = streaming.log_prob(torch.arange(num_classes) * spread)
    error = estimate - probability.log()
    # One gap has a relative spread of 1, their average at this rate one of 0.1; rare classes,
    # visited some 40 times, still carry half of their first gap.
    assert abs(error[:100].mean().item()) < 0.05
    assert error[:100].std().item() < 0.2
    assert abs(error.mean().item()) < 0.25


def test_streaming_without_state_is_uniform() -> None:
    assert StreamingFrequency(8).log_prob(torch.tensor([[3]])).exp().item() == pytest.approx(1 / 8)


def test_streaming_follows_its_recurrence() -> None:
    streaming = StreamingFrequency(10, rate=0.25)
    for step in range(1, 10):
        streaming.update(
            torch.tensor({3: [0, 4, 4], 5: [0, 4, 4], 9: [[0, 4], [4, 4]]}.get(step, [0, -1]))
        )
    # Class 4: first gap 3, then 2 and 4, with 2 copies, 2 and 3. 9 + 2·2 + 3 targets in 9 steps.
    gap = 0.75 * (0.75 * 3 + 0.25 * 2) + 0.25 * 4
    copies = 0.75 * 2 + 0.25 * 3
    mean_batch = (6 * 1 + 2 * 3 + 4) / 9
    log_prob = streaming.log_prob(torch.tensor([0, 4, 7]))
    expected = [1 / mean_batch, copies / gap / mean_batch, 1 / 10 / mean_batch]
    assert log_prob.exp().tolist() == pytest.approx(expected)
    before = int(streaming.step)
    streaming.update(torch.tensor([[-1, -1]]))
    assert int(streaming.step) == before


def test_streaming_counts_every_copy_of_a_class() -> None:
    # Up to 50 copies in a batch: a visit a batch would be up to 4 nats too low.
    targets, probability = zipf_targets(400, 300, 2000)
    for spread, num_buckets in ((1, 2**20), (2**31 + 11, 2**14)):
        streaming = StreamingFrequency(400 * spread, num_buckets=num_buckets)
        for row in targets * spread:
            streaming.update(row)
        error = streaming.log_prob(torch.arange(400) * spread) - probability.log()
        assert (2000 * probability[0]).item() > 20
        # About twenty batches of one copy or more are averaged.
        assert abs(error[:50].mean().item()) < 0.02
        assert abs(error.mean().item()) < 0.05
        assert error.abs().max().item() < 0.6


def test_streaming_hashes_are_spread_and_independent() -> None:
    streaming = StreamingFrequency(2**40, num_buckets=1024, num_hashes=4)
    for ids in (
        torch.arange(100_000),
        torch.arange(100_000) << 20,
        2**40 - 1 - torch.arange(99_999),
    ):
        buckets = streaming._buckets(ids) - torch.arange(4).unsqueeze(1) * 1024
        assert 0 <= int(buckets.min()) <= int(buckets.max()) < 1024
        for row in buckets:
            load = torch.bincount(row, minlength=1024)
            assert load.min() > 40
            assert load.max() < 200
        collide = (buckets[0] == buckets[1]).double().mean().item()
        assert collide < 0.02


def test_streaming_takes_the_least_crowded_bucket() -> None:
    # With one hash a rare id that shares a bucket with a frequent one looks frequent.
    rare = torch.arange(1000, 1200)
    errors = {}
    for num_hashes in (1, 4):
        streaming = StreamingFrequency(2**40, num_buckets=256, num_hashes=num_hashes)
        for _ in range(50):
            streaming.update(torch.arange(60))
        errors[num_hashes] = int((streaming.log_prob(rare) > math.log(1 / 60 / 40)).sum())
    assert errors[4] < errors[1] / 4
    assert errors[1] > 20


# In-batch and queue


def test_in_batch_takes_the_targets_in_order() -> None:
    sampler = InBatchSampler(NUM_CLASSES, frequency())
    targets = torch.tensor([[5, -1], [7, 9], [-1, -1], [5, 2]])
    candidates = sampler.sample(None, targets)
    assert candidates.ids.tolist() == [5, 7, 9, 5, 2]
    assert candidates.rows is not None
    assert candidates.rows.tolist() == [0, 1, 1, 3, 3]
    expected = math.log(5) + sampler.frequency.log_prob(candidates.ids)
    assert torch.equal(candidates.log_expected_count, expected)
    assert sampler.available(targets) == 5
    with pytest.raises(ValueError, match=r"num_samples must be at most 5, .* got 6"):
        sampler.sample(6, targets)


def test_in_batch_subset_is_without_replacement() -> None:
    sampler = InBatchSampler(NUM_CLASSES, frequency())
    targets = torch.arange(50)
    candidates = sampler.sample(40, targets, generator=seeded())
    assert len(set(candidates.ids.tolist())) == 40
    assert candidates.ids.tolist() == targets[candidates.rows].tolist()
    assert candidates.ids.tolist() != sampler.sample(40, targets, generator=seeded(1)).ids.tolist()


def test_in_batch_updates_its_frequency_first_and_only_in_training() -> None:
    sampler = InBatchSampler(4, StreamingFrequency(4))
    targets = torch.tensor([1, 2])
    candidates = sampler.sample(None, targets)
    assert int(sampler.frequency.step) == 1
    assert candidates.log_expected_count.exp().tolist() == pytest.approx([1.0, 1.0])
    sampler.eval().sample(None, targets)
    assert int(sampler.frequency.step) == 1


def test_queue_holds_the_latest_targets_newest_first() -> None:
    sampler = QueueSampler(100, UniformSampler(100), capacity=4)
    history: list[int] = []
    start = 0
    for size in (1, 2, 3, 0, 6, 2, 4):
        batch = torch.arange(start, start + size)
        start += size
        candidates = sampler.sample(None, batch)
        assert candidates.ids.tolist() == batch.tolist() + history[::-1][:4]
        assert candidates.rows is not None
        expected_rows = list(range(size)) + [-1] * min(len(history), 4)
        assert candidates.rows.tolist() == expected_rows
        history += batch.tolist()
    before = sampler.queue.clone()
    sampler.eval().sample(None, torch.tensor([99]))
    assert torch.equal(sampler.queue, before)


# Mixture


def mixed(weights: list[float]) -> MixtureSampler:
    return MixtureSampler(
        [InBatchSampler(NUM_CLASSES, frequency()), UniformSampler(NUM_CLASSES)], weights
    )


def test_mixture_counts_are_those_of_the_whole() -> None:
    targets = torch.arange(10)
    candidates = mixed([0.3, 0.7]).sample(21, targets, generator=seeded())
    # 6.3 and 14.7: the larger remainder gets the odd one.
    expected = (6 * frequency().log_prob(candidates.ids).exp() + 15 / NUM_CLASSES).log()
    torch.testing.assert_close(candidates.log_expected_count, expected)
    target = (6 * frequency().log_prob(targets).exp() + 15 / NUM_CLASSES).log()
    torch.testing.assert_close(candidates.target_log_expected_count, target)
    assert candidates.rows is not None
    assert (candidates.rows[:6] >= 0).all()
    assert candidates.rows[6:].tolist() == [-1] * 15


def test_mixture_draws_more_where_the_batch_has_too_few() -> None:
    targets = torch.arange(4)
    candidates = mixed([0.5, 0.5]).sample(20, targets, generator=seeded())
    assert sorted(candidates.ids[:4].tolist()) == [0, 1, 2, 3]
    expected = (4 * frequency().log_prob(candidates.ids).exp() + 16 / NUM_CLASSES).log()
    torch.testing.assert_close(candidates.log_expected_count, expected)


def test_mixture_of_limited_samplers_takes_all() -> None:
    sampler = MixtureSampler(
        [InBatchSampler(5, UniformSampler(5)), AllClassesSampler(5)], [0.5, 0.5]
    )
    targets = torch.tensor([3, 3])
    assert sampler.available(targets) == 7
    candidates = sampler.sample(None, targets)
    assert candidates.ids.tolist() == [3, 3, 0, 1, 2, 3, 4]
    assert candidates.log_expected_count.exp().tolist() == pytest.approx([1.4] * 7)
    with pytest.raises(ValueError, match=r"num_samples must be at most 7: .*got 20"):
        sampler.sample(20, targets)


def test_mixture_refuses_to_starve_a_sampler() -> None:
    with pytest.raises(ValueError, match=r"samplers\[0\] at least one candidate, got 2"):
        mixed([0.01, 0.99]).sample(2, torch.arange(10))
    with pytest.raises(ValueError, match="num_samples must be given"):
        mixed([0.5, 0.5]).sample(None, torch.arange(10))


def test_mixture_reads_every_probability_before_any_sampler_learns() -> None:
    sampler = MixtureSampler([LearnedUnigramSampler(2), UniformSampler(2)], [0.5, 0.5])
    candidates = sampler.sample(8, torch.tensor([1, 1, 1, 1]), generator=seeded())
    assert candidates.log_expected_count.exp().tolist() == pytest.approx([4.0] * 8)
    learned = sampler.samplers[0]
    assert learned.log_prob(torch.tensor(1)).exp().item() == pytest.approx(5 / 6)


# Partition and all classes


def test_partition_of_a_long_corpus() -> None:
    targets = torch.randint(50_000, (10_000_000,), generator=seeded()).square_() // 50_000
    sampler = PartitionSampler.from_targets(targets, 50_000, max_classes=5000)
    stops = [stop for _, stop in sampler.ranges]
    starts = [start for start, _ in sampler.ranges]
    assert starts == [0, *stops[:-1]]
    assert stops[-1] == len(targets)
    for part in (0, 7, sampler.num_parts - 1):
        start, stop = sampler.ranges[part]
        sampler.select(part)
        candidates = sampler.sample(None, targets[start:stop])
        assert torch.equal(candidates.ids, torch.unique(targets[start:stop]))
        assert len(candidates.ids) == 5000 or part == sampler.num_parts - 1
        assert bool((candidates.log_expected_count == 0).all())
        assert bool((candidates.target_log_expected_count == 0).all())


def long_tailed_targets(num_classes: int, size: int) -> torch.Tensor:
    weights = 1 / torch.arange(1, num_classes + 1).double()
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(weights, size, replacement=True, generator=generator)
    return torch.cat([drawn, torch.arange(num_classes)])


def fitted_biases(targets: torch.Tensor, sampler: PartitionSampler) -> torch.Tensor:
    """Biases at which the expected gradient over all parts and targets is 0, by Newton's steps."""
    counts = torch.bincount(targets, minlength=sampler.num_classes).double()
    biases = (counts / counts.sum()).log()
    listed = []
    for part, (start, stop) in enumerate(sampler.ranges):
        sampler.select(part)
        candidates = sampler.sample(None, targets[start : start + 1])
        listed.append((candidates.ids, candidates.log_expected_count, stop - start))
    for _ in range(300):
        expected = torch.zeros_like(biases)
        for ids, log_count, size in listed:
            expected[ids] += size * (biases[ids] - log_count).softmax(0)
        biases += (counts / expected).log()
    assert (expected - counts).abs().max() < 1e-6 * counts.sum()
    return biases


def test_partition_learns_the_frequencies_with_the_share_of_parts_and_not_without() -> None:
    targets, num_classes = long_tailed_targets(2_000, 100_000), 2_000
    frequencies = torch.bincount(targets, minlength=num_classes).double() / len(targets)
    excess = {}
    for corrected in (False, True):
        sampler = PartitionSampler.from_targets(
            targets, num_classes, max_classes=300, share_correction=corrected
        )
        log_prob = fitted_biases(targets, sampler).log_softmax(0)
        excess[corrected] = math.expm1((frequencies * (frequencies.log() - log_prob)).sum().item())
    assert excess[True] < 0.002
    assert excess[False] > 0.2


def test_share_of_the_parts_that_hold_a_class() -> None:
    parts = [torch.tensor([0, 1]), torch.tensor([1, 2]), torch.tensor([1])]
    sampler = PartitionSampler(4, parts, sizes=[6, 3, 1], share_correction=True)
    sampler.select(1)
    candidates = sampler.sample(None, torch.tensor([[2, -1]]))
    expected = torch.tensor([1.0, 0.3], dtype=torch.float64).log()
    torch.testing.assert_close(candidates.log_expected_count, expected)
    found = candidates.target_log_expected_count
    torch.testing.assert_close(found, torch.tensor([[math.log(0.3), 0.0]], dtype=torch.float64))
    with pytest.raises(ValueError, match="sizes must have one number a part, 3, got 2"):
        PartitionSampler(4, parts, sizes=[1, 2], share_correction=True)


def test_partition_is_restored_with_its_part() -> None:
    parts = [torch.tensor([4, 1, 1]), torch.tensor([2])]
    sampler, restored = PartitionSampler(5, parts), PartitionSampler(5, parts)
    sampler.select(1)
    restored.load_state_dict(sampler.state_dict())
    assert restored.classes.tolist() == [2]
    assert restored.log_prob(torch.tensor([2, 1])).tolist() == [0.0, -math.inf]


def test_samplers_that_list_refuse_another_number() -> None:
    with pytest.raises(ValueError, match="num_samples must be None or 5, got 4"):
        AllClassesSampler(5).sample(4, torch.tensor([0]))
    with pytest.raises(ValueError, match="num_samples must be None or 2, got 3"):
        PartitionSampler(5, [torch.tensor([1, 4])]).sample(3, torch.tensor([1]))
    assert AllClassesSampler(5).sample(5, torch.tensor([0])).ids.tolist() == [0, 1, 2, 3, 4]
