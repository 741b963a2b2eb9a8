"""Every sampler against the contract, and the contract against broken samplers."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.sampling.sampler_cases import COUNTS, NUM_CLASSES, SAMPLER_CASES, SamplerCase, frequency
from widemax.candidates import Candidates
from widemax.contracts.sampler import check_sampler
from widemax.declarations import declared
from widemax.declarations.table import load
from widemax.sampling import InBatchSampler, LearnedUnigramSampler, UniformSampler, UnigramSampler


@pytest.mark.parametrize("case", SAMPLER_CASES.values(), ids=SAMPLER_CASES.keys())
def test_every_sampler_keeps_the_contract(case: SamplerCase) -> None:
    check_sampler(
        case.build(),
        num_samples=case.num_samples,
        memory=case.memory,
        draw_targets=case.draw_targets,
        draws=1_000_000,
        generator=torch.Generator().manual_seed(1),
    )


ELSEWHERE = {
    "adaptive-n-gram": "test_adaptive_ngram.py",
    "market": "test_market_sampler.py",
    "n-gram": "test_ngram_sampler.py",
    # No log Q that a million draws could be held to.
    "hard-negatives": "test_hard_negatives.py",
    "batch-hard-negatives": "test_batch_hard_negatives.py",
}


def test_the_table_of_cases_is_complete() -> None:
    held = {type(case.build()) for case in SAMPLER_CASES.values()}
    missing = {name for name, each in declared("sampler").items() if load(each) not in held}
    assert missing == ELSEWHERE.keys(), "no case in sampler_cases.py, or one beside its own file"
    for file in ELSEWHERE.values():
        assert Path(__file__).with_name(file).exists()


class WrongProbability(UniformSampler):
    """Draws slightly more of the first half than it says."""

    def draw(self, shape, *, device=None, generator=None):
        ids = super().draw(shape, device=device, generator=generator)
        moved = torch.rand(shape, generator=generator) < 0.03
        return torch.where(moved, ids // 2, ids)


class Unnormalised(UniformSampler):
    def log_prob(self, ids: Tensor) -> Tensor:
        return super().log_prob(ids) + 0.01


class SinglePrecision(UniformSampler):
    def log_prob(self, ids: Tensor) -> Tensor:
        return super().log_prob(ids).float()


class GlobalRandomness(UniformSampler):
    def draw(self, shape, *, device=None, generator=None):
        return torch.randint(self.num_classes, shape)


class DropsHits(UniformSampler):
    def sample(self, num_samples, targets, *, hidden=None, generator=None) -> Candidates:
        candidates = super().sample(num_samples, targets, hidden=hidden, generator=generator)
        ids = candidates.ids
        while (hits := torch.isin(ids, targets)).any():
            redrawn = self.draw(tuple(ids.shape), generator=generator)
            ids = torch.where(hits, redrawn, ids)
        return dataclasses.replace(candidates, ids=ids)


class FlooredCorrection(UnigramSampler):
    """Probabilities floored as known libraries do, here at 2e-3 for 300 classes."""

    def sample(self, num_samples, targets, *, hidden=None, generator=None) -> Candidates:
        candidates = super().sample(num_samples, targets, hidden=hidden, generator=generator)
        floor = math.log(2e-3 * num_samples)
        return dataclasses.replace(
            candidates, log_expected_count=candidates.log_expected_count.clamp(min=floor)
        )


class CountsTargetsDifferently(UniformSampler):
    def sample(self, num_samples, targets, *, hidden=None, generator=None) -> Candidates:
        candidates = super().sample(num_samples, targets, hidden=hidden, generator=generator)
        target = candidates.target_log_expected_count
        return dataclasses.replace(
            candidates, target_log_expected_count=torch.where(targets < 0, target, target - 0.1)
        )


class UniqueKeepsSmallIds(UniformSampler):
    """The bug of ``unique()[:n]``: it sorts, and so keeps the popular ids only."""

    def sample(self, num_samples, targets, *, hidden=None, generator=None) -> Candidates:
        candidates = super().sample(2 * num_samples, targets, generator=generator)
        kept = candidates.ids.sort().values[:num_samples]
        return Candidates(
            ids=kept,
            log_expected_count=self.log_prob(kept) + math.log(num_samples),
            target_log_expected_count=candidates.target_log_expected_count
            - math.log(2) * (targets >= 0),
        )


class RepeatsWhenUnique(UniformSampler):
    def draw_distinct(self, shape, *, device=None, generator=None):
        ids, tries = super().draw_distinct(shape, device=device, generator=generator)
        ids[..., 0] = ids[..., 1]
        return ids, tries


class LearnsWhileEvaluated(LearnedUnigramSampler):
    def sample(self, num_samples, targets, *, hidden=None, generator=None) -> Candidates:
        candidates = super().sample(num_samples, targets, hidden=hidden, generator=generator)
        if not self.training:
            self.update(targets)
        return candidates


class ForgetsItsState(LearnedUnigramSampler):
    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self._non_persistent_buffers_set.add("tree")


class WrongRows(InBatchSampler):
    def pool(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        ids, rows = super().pool(targets)
        return ids, rows.flip(0)


class AcceptsAnyTarget(UniformSampler):
    def sample(self, num_samples, targets, *, hidden=None, generator=None) -> Candidates:
        targets = targets.clamp(max=self.num_classes - 1)
        return super().sample(num_samples, targets, hidden=hidden, generator=generator)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (WrongProbability(NUM_CLASSES), "do not follow log_prob"),
        (Unnormalised(NUM_CLASSES), "sum to 1"),
        (SinglePrecision(NUM_CLASSES), "float64"),
        (GlobalRandomness(NUM_CLASSES), "same seed"),
        (DropsHits(NUM_CLASSES), "must not drop hits"),
        (FlooredCorrection(NUM_CLASSES, COUNTS), "log_expected_count must follow"),
        (CountsTargetsDifferently(NUM_CLASSES), "target_log_expected_count must follow"),
        (UniqueKeepsSmallIds(NUM_CLASSES), "do not follow log_prob"),
        (RepeatsWhenUnique(NUM_CLASSES, unique=True), "distinct"),
        (LearnsWhileEvaluated(NUM_CLASSES), "eval mode"),
        (ForgetsItsState(NUM_CLASSES), "restored"),
        (WrongRows(NUM_CLASSES, frequency()), "rows must name"),
        (AcceptsAnyTarget(NUM_CLASSES), "must raise ValueError"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_the_contract_finds_what_is_broken(sampler, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_sampler(sampler, generator=torch.Generator().manual_seed(1))


def test_the_contract_refuses_what_it_cannot_sum() -> None:
    with pytest.raises(ValueError, match="num_classes must be at most"):
        check_sampler(UniformSampler(2**23))
