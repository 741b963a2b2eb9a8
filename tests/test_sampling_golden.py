"""Expected counts against the figures TensorFlow 2.21 reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from widemax.sampling import DrawnSampler, LogUniformSampler, UniformSampler, UnigramSampler
from widemax.sampling.base import log_inclusion

FIGURES = json.loads((Path(__file__).parent / "data" / "samplers.json").read_text())
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


@pytest.mark.parametrize("name", ["uniform", "log_uniform"])
def test_expected_counts_of_distinct_draws(name: str) -> None:
    ids, counts = golden(name, unique=True)
    log_prob = build(name).log_prob(ids)
    rarest = log_prob.argmin()
    tries = (torch.log1p(-counts[rarest]) / torch.log1p(-log_prob[rarest].exp())).item()
    assert abs(tries - round(tries)) < 1e-3
    assert round(tries) > NUM_SAMPLES
    expected = log_inclusion(log_prob, torch.tensor(round(tries))).exp()
    torch.testing.assert_close(expected, counts, rtol=0, atol=1e-6)


def test_expected_counts_of_distinct_draws_without_a_repeat() -> None:
    # TensorFlow reports num_samples · p when the first num_samples tries were all distinct. We
    # keep to one formula for every T, so that no count exceeds 1; here they differ by up to 20 %.
    ids, counts = golden("fixed_unigram", unique=True)
    log_prob = build("fixed_unigram").log_prob(ids)
    torch.testing.assert_close(NUM_SAMPLES * log_prob.exp(), counts, rtol=0, atol=1e-6)
    ours = log_inclusion(log_prob, torch.tensor(NUM_SAMPLES)).exp()
    assert bool((ours < counts).all())
    torch.testing.assert_close(ours, counts, rtol=0.25, atol=0)
