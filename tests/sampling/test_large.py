"""Samplers at sizes where 24, 32 or 53 bits run out."""

from __future__ import annotations

import math

import pytest
import torch

from widemax.sampling import LogUniformSampler, UniformSampler, UnigramSampler
from widemax.validation import MAX_CLASSES

DRAWS = 2_000_000


def largest_gap(ids: torch.Tensor, points: list[int], cdf: list[float]) -> float:
    """Return the worst distance, in standard errors, of the share of ids below each point."""
    worst = 0.0
    for point, probability in zip(points, cdf, strict=True):
        share = (ids < point).double().mean().item()
        error = math.sqrt(probability * (1 - probability) / len(ids))
        worst = max(worst, abs(share - probability) / error)
    return worst


@pytest.mark.parametrize("num_classes", [2**20, 2**31 - 1, 2**32 + 1, MAX_CLASSES])
def test_uniform_without_a_table(num_classes: int) -> None:
    sampler = UniformSampler(num_classes)
    ids = sampler.draw((DRAWS,), generator=torch.Generator().manual_seed(0))
    assert 0 <= int(ids.min()) <= int(ids.max()) < num_classes
    points = [num_classes // k for k in (1000, 10, 3, 2)] + [num_classes - num_classes // 100]
    assert largest_gap(ids, points, [point / num_classes for point in points]) < 5
    # The lowest bits are as random as the others.
    parity = (ids % 2).double().mean().item()
    assert abs(parity - 0.5) < 5 * 0.5 / math.sqrt(DRAWS)


@pytest.mark.parametrize("num_classes", [2**20, 2**31 - 1, 2**32 + 1, MAX_CLASSES])
def test_log_uniform_without_a_table(num_classes: int) -> None:
    sampler = LogUniformSampler(num_classes)
    ids = sampler.draw((DRAWS,), generator=torch.Generator().manual_seed(0))
    assert 0 <= int(ids.min()) <= int(ids.max()) < num_classes
    points = [1, 2, 10, 1000, 2**18, num_classes // 2, num_classes - num_classes // 50]
    cdf = [math.log1p(point) / math.log1p(num_classes) for point in points]
    assert largest_gap(ids, points, cdf) < 5
    # Among the last ids the grid of float64 is finer than one id: both parities come alike.
    last = ids[ids > num_classes // 2]
    parity = (last % 2).double().mean().item()
    assert abs(parity - 0.5) < 5 * 0.5 / math.sqrt(len(last))


@pytest.mark.parametrize("last", [MAX_CLASSES - 1, 3 * 2**38 + 7])
def test_log_uniform_probability_of_the_last_of_2_to_the_40(last: int) -> None:
    log_prob = LogUniformSampler(MAX_CLASSES).log_prob(torch.tensor([last])).item()
    # 1/(y + 3/2) is ln((y+2)/(y+1)) up to (1/12)/(y+1)^3. The difference of the logarithms, each
    # with an error of 4e-15, would have no more than three digits of the 1e-12.
    exact = -math.log(last + 1.5) - math.log(math.log1p(MAX_CLASSES))
    assert abs(log_prob - exact) < 1e-11


def test_no_floor_under_the_probability_of_a_rare_class() -> None:
    # Known libraries floor p at 1e-6 before the logarithm.
    counts = torch.ones(4_000_000)
    counts[0] = 1e9
    sampler = UnigramSampler(len(counts), counts, distortion=1.0)
    expected = -math.log(1e9 + len(counts) - 1)
    assert abs(sampler.log_prob(torch.tensor(5)).item() - expected) < 1e-6
    candidates = sampler.sample(10, torch.tensor([5]))
    assert abs(candidates.target_log_expected_count.item() - expected - math.log(10)) < 1e-6
    assert expected < math.log(1e-6) - 5


def test_tiny_thresholds_are_drawn_as_often_as_they_should() -> None:
    # Each light column has a threshold near 5e-9, far below the 2^-24 of a float32 uniform, which
    # would draw the light classes 12 times too often.
    counts = torch.ones(1000, dtype=torch.float64)
    counts[0] = 2e8
    sampler = UnigramSampler(1000, counts, distortion=1.0)
    generator = torch.Generator().manual_seed(0)
    light = sum(int((sampler.draw((4_000_000,), generator=generator) != 0).sum()) for _ in range(8))
    expected = 32_000_000 * 999 / (2e8 + 999)
    assert abs(light - expected) < 5 * math.sqrt(expected)
