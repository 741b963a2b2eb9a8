"""Expected counts against the figures TensorFlow 2.21 reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from widemax.sampling import DrawnSampler, LogUniformSampler, UniformSampler, UnigramSampler
from widemax.sampling.base import log_expected_count

FIGURES = json.loads((Path(__file__).parents[1] / "golden" / "samplers.json").read_text())
NUM_CLASSES, NUM_SAMPLES = 50, 12
TARGETS = {"uniform": [0, 7, 49], "log_uniform": [0, 7, 49], "fixed_unigram": [2, 7, 49]}


def build(name: str) -> DrawnSampler:
    if name == "uniform":
        return UniformSampler(NUM_CLASSES)
    if name == "log_uniform":
        return LogUniformSampler(NUM_CLASSES)
    counts = [0.0, 0.0, *FIGURES["unigrams"]]
    return UnigramSampler(NUM_CLASSES, counts, distortion=0.75, num_reserved_ids=2)


def golden(name: str, unique: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and their expected counts, sampled and true ones together."""
    case = FIGURES[f"{name}/unique={unique}"]
    ids = torch.tensor(case["sampled"] + TARGETS[name])
    counts = torch.tensor(case["sampled_expected"] + case["true_expected"], dtype=torch.float64)
    return ids, counts


@pytest.mark.parametrize("name", TARGETS)
def test_expected_counts_with_replacement(name: str) -> None:
    ids, counts = golden(name, unique=False)
    candidates = build(name).sample(NUM_SAMPLES, ids)
    torch.testing.assert_close(
        candidates.target_log_expected_count.exp(), counts, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("name", TARGETS)
def test_expected_counts_of_distinct_draws(name: str) -> None:
    """All counts of a call follow from one whole number of tries."""
    ids, counts = golden(name, unique=True)
    log_prob = build(name).log_prob(ids)
    fitting = [
        tries
        for tries in range(NUM_SAMPLES, 100)
        if torch.allclose(
            log_expected_count(log_prob, NUM_SAMPLES, torch.tensor(tries)).exp(),
            counts,
            rtol=0,
            atol=1e-6,
        )
    ]
    assert len(fitting) == 1
    repeats_were_drawn = {"uniform": True, "log_uniform": True, "fixed_unigram": False}
    assert (fitting[0] > NUM_SAMPLES) == repeats_were_drawn[name]


def test_sample_reports_the_counts_of_its_own_tries() -> None:
    """Few samples of many classes seldom repeat, many of few do: both branches are met."""
    met = set()
    for seed in range(40):
        sampler = UniformSampler(NUM_CLASSES, unique=True)
        _, tries = sampler.draw_distinct((6,), generator=torch.Generator().manual_seed(seed))
        candidates = sampler.sample(
            6, torch.tensor([1]), generator=torch.Generator().manual_seed(seed)
        )
        expected = 6 / 50 if int(tries) == 6 else 1 - (1 - 1 / 50) ** int(tries)
        assert candidates.log_expected_count.exp().tolist() == pytest.approx([expected] * 6)
        assert candidates.target_log_expected_count.exp().item() == pytest.approx(expected)
        met.add(int(tries) == 6)
    assert met == {True, False}
