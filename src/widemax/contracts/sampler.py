"""The contract of a sampler, as a check anyone can run."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from widemax.candidates import Candidates
from widemax.contracts.distribution import check_distribution
from widemax.contracts.requirements import require, require_close, require_error
from widemax.sampling.base import DrawnSampler, Sampler, log_expected_count
from widemax.validation import ABSENT

_MOST_CLASSES = 2**22
_BATCH_SIZE = 256
_DRAWS_PER_CALL = 2**17
_TOLERANCE = 1e-6


def check_sampler(
    sampler: Sampler,
    *,
    draw_targets: Callable[[torch.Generator], Tensor] | None = None,
    num_samples: int | None = None,
    memory: int = 0,
    draws: int = 1_000_000,
    generator: torch.Generator | None = None,
) -> float:
    """Check a sampler against its contract; raises AssertionError that says what is broken.

    Σ_y exp(log_prob(y)) = 1; the candidates of many calls follow ``log_prob`` by a chi-square test
    over at least ``draws`` of them (bins expected below 5 are pooled); log Q is
    log(num_samples · p), or log(−expm1(T·log1p(−p))) with one integer T where ``sampler.unique``.
    Returns the p-value of the test; below 1e-6 is a failure. At most 2^22 classes; the sampler is
    copied, never changed. It cannot hold for candidates that are no probability sample (hard
    negatives), nor for an estimated log_prob (``StreamingFrequency``).

    Candidates that come from the batch follow ``log_prob`` only if the targets do: by default they
    are drawn from it. Where they must follow another law (a mixture with in-batch candidates),
    ``draw_targets(generator)`` returns targets [B] for one call. ``memory`` is the number of
    earlier batches that candidates may come from (a queue): calls share those, so that only every
    (memory + 1)-th is counted. The weights of a mixture must split ``num_samples`` without
    remainder.

    >>> from widemax.sampling import UniformSampler
    >>> check_sampler(UniformSampler(10), draws=10_000) > 1e-6
    True
    """
    if sampler.num_classes > _MOST_CLASSES:
        raise ValueError(
            f"num_classes must be at most {_MOST_CLASSES:,} to be checked, "
            f"got {sampler.num_classes:,}"
        )
    generator = generator or torch.Generator().manual_seed(0)
    probability = _check_log_prob(sampler)
    if draw_targets is None:
        draw_targets = partial(_draw_from, probability)
    if num_samples is None and sampler.available(draw_targets(generator)) is None:
        num_samples = min(16, getattr(sampler, "num_drawable", 16))
    case = _Case(sampler, num_samples, draw_targets, generator)
    targets = draw_targets(generator)
    for batch in _batches(targets, sampler.num_classes):
        _check_candidates(case, batch)
        _check_seed(case, batch)
    _check_state(case)
    _check_expected_counts(case, targets)
    _check_errors(case, targets)
    _check_hits(case, targets, probability)
    return check_distribution(_count_candidates(case, memory, draws), probability)


class _Case(NamedTuple):
    """A sampler, and how it is called."""

    sampler: Sampler
    num_samples: int | None
    draw_targets: Callable[[torch.Generator], Tensor]
    generator: torch.Generator

    def frozen(self) -> Sampler:
        return copy.deepcopy(self.sampler).eval()

    def size(self, targets: Tensor) -> int | None:
        """Return ``num_samples``, or fewer where the batch does not hold as many."""
        available = self.sampler.available(targets)
        if self.num_samples is None or available is None:
            return self.num_samples
        return min(self.num_samples, available) or None

    def seeded(self, sampler: Sampler, targets: Tensor) -> Candidates:
        return sampler.sample(
            self.size(targets), targets, generator=torch.Generator().manual_seed(7)
        )


def _draw_from(probability: Tensor, generator: torch.Generator) -> Tensor:
    return torch.multinomial(probability, _BATCH_SIZE, replacement=True, generator=generator)


def _check_log_prob(sampler: Sampler) -> Tensor:
    ids = torch.arange(sampler.num_classes)
    log_prob = sampler.log_prob(ids)
    require(log_prob.dtype == torch.float64, f"log_prob must be float64, got {log_prob.dtype}")
    require(log_prob.shape == ids.shape, f"log_prob must be like ids, got {list(log_prob.shape)}")
    one = sampler.log_prob(ids[:1].view(1, 1))
    require(one.shape == (1, 1), f"log_prob of ids [1, 1] must be [1, 1], got {list(one.shape)}")
    require(~log_prob.isnan(), "log_prob must never be NaN")
    total = log_prob.exp().sum().item()
    require(abs(total - 1) <= 1e-5, f"probabilities must sum to 1, got {total:.8f}")
    return log_prob.exp()


def _batches(targets: Tensor, num_classes: int) -> list[Tensor]:
    """Return the batch as [B], [B, T] with absent positives, of one row and of none."""
    batches = [targets, targets[:1], targets[:0], targets[:, None]]
    if num_classes > 1:
        padded = torch.stack([targets, targets.roll(1)], dim=1)
        padded[::2, 1] = ABSENT
        batches += [padded, padded[:1], padded[:0]]
    return batches


def _check_candidates(case: _Case, targets: Tensor) -> None:
    sampler, num_samples = case.sampler, case.size(targets)
    of = f"for targets {list(targets.shape)}"
    candidates = case.frozen().sample(num_samples, targets, generator=case.generator)
    ids, log_count = candidates.ids, candidates.log_expected_count
    target_log_count = candidates.target_log_expected_count
    size = sampler.available(targets) if num_samples is None else num_samples
    require(
        ids.shape in ((size,), (len(targets), size)),
        f"ids must be [S] or [B, S] with S = {size} {of}, got {list(ids.shape)}",
    )
    require(ids.dtype == torch.int64, f"ids must be int64, got {ids.dtype}")
    require((ids >= 0) & (ids < sampler.num_classes), f"an id is out of range {of}")
    for name, value, like in (
        ("log_expected_count", log_count, ids),
        ("target_log_expected_count", target_log_count, targets),
    ):
        require(
            value.shape == like.shape,
            f"{name} must be {list(like.shape)} {of}, got {list(value.shape)}",
        )
        require(value.dtype == torch.float64, f"{name} must be float64, got {value.dtype}")
        require(value.device == targets.device, f"{name} must be on {targets.device} {of}")
        require(~value.isnan(), f"{name} must never be NaN {of}")
    require(log_count.isfinite(), f"log_expected_count must be finite {of}")
    require(
        target_log_count[targets == ABSENT] == 0,
        "target_log_expected_count must be 0 where a positive is absent",
    )
    rows = candidates.rows
    if rows is None:
        return
    require(rows.shape == ids.shape, f"rows must be like ids, got {list(rows.shape)}")
    from_batch = rows != ABSENT
    own = (targets.unsqueeze(-1) if targets.dim() == 1 else targets)[rows[from_batch]]
    require(
        (own == ids[from_batch].unsqueeze(-1)).any(-1),
        "rows must name a row of the batch that has the candidate as its target",
    )


def _same(left: Candidates, right: Candidates) -> bool:
    return (
        torch.equal(left.ids, right.ids)
        and torch.equal(left.log_expected_count, right.log_expected_count)
        and torch.equal(left.target_log_expected_count, right.target_log_expected_count)
    )


def _check_seed(case: _Case, targets: Tensor) -> None:
    state = torch.get_rng_state()
    first, second = (case.seeded(copy.deepcopy(case.sampler), targets) for _ in range(2))
    require(_same(first, second), "the same seed must give the same bits")
    require(
        torch.equal(state, torch.get_rng_state()),
        "randomness must come from the generator that is passed, not from the global one",
    )


def _check_expected_counts(case: _Case, targets: Tensor) -> None:
    sampler = case.frozen()
    candidates = sampler.sample(case.num_samples, targets, generator=case.generator)
    size, tries, target_tries = candidates.ids.shape[-1], None, None
    require(size > 0, f"no candidate was given for {len(targets):,} targets")
    log_prob = sampler.log_prob(candidates.ids)
    if sampler.unique:
        ordered = candidates.ids.sort(-1).values
        require(ordered[..., 1:] != ordered[..., :-1], "unique ids must be distinct")
        tries = _solve_tries(candidates.log_expected_count, log_prob)
        target_tries = tries.squeeze(-1)
    expected = log_expected_count(log_prob, size, tries)
    target_expected = log_expected_count(sampler.log_prob(targets), size, target_tries)
    follows = "must follow from log_prob and the number of samples"
    require_close(candidates.log_expected_count, expected, f"log_expected_count {follows}")
    require_close(
        candidates.target_log_expected_count,
        target_expected,
        f"target_log_expected_count {follows}",
    )


def _solve_tries(log_count: Tensor, log_prob: Tensor) -> Tensor:
    """Return the tries T [..., 1] that explain the expected count of each row's rarest id."""
    rarest = log_prob.argmin(-1, keepdim=True)
    count = log_count.gather(-1, rarest).exp()
    probability = log_prob.gather(-1, rarest).exp()
    require((count > 0) & (count <= 1), "unique expected counts must lie in (0, 1]")
    tries = torch.log1p(-count) / torch.log1p(-probability)
    # Without a repeat the count is num_samples · p; a certain class is found at the first try.
    num_samples = log_prob.shape[-1]
    without_repeat = (count - num_samples * probability).abs() <= _TOLERANCE * count
    tries = torch.where(without_repeat | (probability == 1), float(num_samples), tries)
    require(
        (tries - tries.round()).abs() < 1e-3 * tries,
        f"unique expected counts must follow from a whole number of tries, got {tries.tolist()}",
    )
    require(
        tries.round() >= num_samples,
        "unique expected counts must follow from at least as many tries as samples",
    )
    return tries.round()


def _check_state(case: _Case) -> None:
    frozen = case.frozen()
    before = copy.deepcopy(frozen.state_dict())
    frozen.sample(case.num_samples, case.draw_targets(case.generator), generator=case.generator)
    changed = [name for name, value in frozen.state_dict().items() if value.ne(before[name]).any()]
    require(not changed, f"state must not change in eval mode, but {changed} did")

    used = copy.deepcopy(case.sampler).train()
    for _ in range(3):
        used.sample(case.num_samples, case.draw_targets(case.generator), generator=case.generator)
    restored = copy.deepcopy(case.sampler).train()
    restored.load_state_dict(used.state_dict())
    targets = case.draw_targets(case.generator)
    for _ in range(2):
        first, second = case.seeded(used, targets), case.seeded(restored, targets)
        require(_same(first, second), "a sampler restored from state_dict must draw the same")


def _check_errors(case: _Case, targets: Tensor) -> None:
    sample = case.frozen().sample
    for wrong in (-1, -10, case.sampler.num_classes, 2**62):
        bad = targets.clone()
        bad[-1] = wrong
        require_error(partial(sample, case.num_samples, bad), f"target {wrong}")
    for size in (0, -1, 3590707793247644003):
        require_error(partial(sample, size, targets), f"num_samples = {size}")


def _independent(sampler: Sampler, num_samples: int | None, draws: int) -> int | None:
    """Let a sampler whose draws are independent make many of them in one call."""
    if not isinstance(sampler, DrawnSampler):
        return num_samples
    sampler.unique = False
    rows = _BATCH_SIZE if sampler.per_example else 1
    return math.ceil(min(draws, _DRAWS_PER_CALL) / rows)


def _check_hits(case: _Case, targets: Tensor, probability: Tensor) -> None:
    """Make the likeliest class every row's target: it must still be among the candidates."""
    likeliest, sampler = int(probability.argmax()), case.frozen()
    draws = math.ceil(50 / float(probability[likeliest]))
    num_samples = _independent(sampler, case.num_samples, draws)
    targets, expected = torch.full_like(targets, likeliest), 0.0
    while expected < 50:
        candidates = sampler.sample(num_samples, targets, generator=case.generator)
        if bool((candidates.ids == likeliest).any()):
            return
        expected += candidates.target_log_expected_count[0].exp().item()
    raise AssertionError(
        f"class {likeliest}, every row's target, was expected {expected:.0f} times and never "
        "drawn: a sampler must not drop hits"
    )


def _count_candidates(case: _Case, memory: int, draws: int) -> Tensor:
    """Return how often each class was a candidate, over independent calls."""
    # A queue moves only in training mode; all others are held still.
    sampler = copy.deepcopy(case.sampler).train(memory > 0)
    num_samples = _independent(sampler, case.num_samples, draws)
    counts = torch.zeros(sampler.num_classes, dtype=torch.int64)
    call = 0
    while int(counts.sum()) < draws:
        targets = case.draw_targets(case.generator)
        ids = sampler.sample(num_samples, targets, generator=case.generator).ids
        if call % (memory + 1) == memory:
            counts += torch.bincount(ids.flatten(), minlength=sampler.num_classes)
        call += 1
    return counts
