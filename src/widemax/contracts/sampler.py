"""The contract of a sampler, as a check anyone can run."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor

from widemax.candidates import Candidates
from widemax.contracts.distribution import check_distribution
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
    """Hold a sampler to its contract; raises AssertionError with what is broken.

    Formula: Σ_y exp(log_prob(y)) = 1; the candidates of many calls follow ``log_prob`` by a
    chi-square test over at least ``draws`` of them (bins expected below 5 are pooled); log Q is
    log(num_samples · p), or log(−expm1(T·log1p(−p))) with one whole T where ``sampler.unique``.
    Returns the p-value of the test; below 1e-6 is a failure.

    Shapes: ``draw_targets(generator)`` returns targets [B] for one call.

    Cost: O(V + draws); pass a sampler with up to 2^22 classes. The sampler is copied, never
    changed.

    Reference: Pearson 1900 (chi-square).

    Use when: you wrote a sampler. Avoid when: its candidates are no probability sample (hard
    negatives), or its log_prob is an estimate (``StreamingFrequency``).

    Candidates that come from the batch follow ``log_prob`` only if the targets do: by default they
    are drawn from it; give ``draw_targets`` where they must follow another law (a mixture with
    in-batch candidates). ``memory`` is the number of earlier batches that candidates may come from
    (a queue): calls share those, so that only every (memory + 1)-th is counted. ``num_samples`` of
    a mixture must be a number that its weights split without remainder.

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
        draw_targets = _targets_like(probability)
    if num_samples is None and sampler.available(draw_targets(generator)) is None:
        num_samples = min(16, getattr(sampler, "num_drawable", 16))
    targets = draw_targets(generator)
    for batch in _batches(targets, sampler.num_classes):
        _check_candidates(sampler, _asked(sampler, num_samples, batch), batch, generator)
        _check_seed(sampler, _asked(sampler, num_samples, batch), batch)
    _check_state(sampler, num_samples, draw_targets, generator)
    _check_expected_counts(sampler, num_samples, targets, generator)
    _check_errors(sampler, num_samples, targets)
    _check_hits(sampler, num_samples, targets, probability, generator)
    counts = _count_candidates(sampler, num_samples, draw_targets, memory, draws, generator)
    return check_distribution(counts, probability)


def _targets_like(probability: Tensor) -> Callable[[torch.Generator], Tensor]:
    def draw_targets(generator: torch.Generator) -> Tensor:
        return torch.multinomial(probability, _BATCH_SIZE, replacement=True, generator=generator)

    return draw_targets


def _check_log_prob(sampler: Sampler) -> Tensor:
    ids = torch.arange(sampler.num_classes)
    log_prob = sampler.log_prob(ids)
    assert log_prob.dtype == torch.float64, f"log_prob must be float64, got {log_prob.dtype}"
    assert log_prob.shape == ids.shape, f"log_prob must be like ids, got {list(log_prob.shape)}"
    assert sampler.log_prob(ids[:1].view(1, 1)).shape == (1, 1), "log_prob of [1, 1] must be [1, 1]"
    assert not bool(log_prob.isnan().any()), "log_prob must never be NaN"
    total = log_prob.exp().sum().item()
    assert abs(total - 1) <= 1e-5, f"probabilities must sum to 1, got {total:.8f}"
    return log_prob.exp()


def _batches(targets: Tensor, num_classes: int) -> list[Tensor]:
    """Return the batch as [B], [B, T] with absent positives, of one row and of none."""
    batches = [targets, targets[:1], targets[:0], targets[:, None]]
    if num_classes > 1:
        padded = torch.stack([targets, targets.roll(1)], dim=1)
        padded[::2, 1] = ABSENT
        batches += [padded, padded[:1], padded[:0]]
    return batches


def _asked(sampler: Sampler, num_samples: int | None, targets: Tensor) -> int | None:
    """Return ``num_samples``, or fewer where the batch does not hold as many."""
    available = sampler.available(targets)
    if num_samples is None or available is None:
        return num_samples
    return min(num_samples, available) or None


def _frozen(sampler: Sampler) -> Sampler:
    return copy.deepcopy(sampler).eval()


def _check_candidates(
    sampler: Sampler, num_samples: int | None, targets: Tensor, generator: torch.Generator
) -> None:
    of = f"for targets {list(targets.shape)}"
    candidates = _frozen(sampler).sample(num_samples, targets, generator=generator)
    ids, log_count = candidates.ids, candidates.log_expected_count
    target_log_count = candidates.target_log_expected_count
    size = sampler.available(targets) if num_samples is None else num_samples
    assert ids.shape in ((size,), (len(targets), size)), (
        f"ids must be [S] or [B, S] with S = {size} {of}, got {list(ids.shape)}"
    )
    assert ids.dtype == torch.int64, f"ids must be int64, got {ids.dtype}"
    assert bool(((ids >= 0) & (ids < sampler.num_classes)).all()), f"an id is out of range {of}"
    for name, value, like in (
        ("log_expected_count", log_count, ids),
        ("target_log_expected_count", target_log_count, targets),
    ):
        assert value.shape == like.shape, (
            f"{name} must be {list(like.shape)} {of}, got {list(value.shape)}"
        )
        assert value.dtype == torch.float64, f"{name} must be float64, got {value.dtype}"
        assert value.device == targets.device, f"{name} must be on {targets.device} {of}"
        assert not bool(value.isnan().any()), f"{name} must never be NaN {of}"
    assert bool(log_count.isfinite().all()), f"log_expected_count must be finite {of}"
    assert bool((target_log_count[targets == ABSENT] == 0).all()), (
        "target_log_expected_count must be 0 where a positive is absent"
    )
    _check_rows(candidates, targets)


def _check_rows(candidates: Candidates, targets: Tensor) -> None:
    rows = candidates.rows
    if rows is None:
        return
    assert rows.shape == candidates.ids.shape, f"rows must be like ids, got {list(rows.shape)}"
    from_batch = rows != ABSENT
    own = (targets.unsqueeze(-1) if targets.dim() == 1 else targets)[rows[from_batch]]
    assert bool((own == candidates.ids[from_batch].unsqueeze(-1)).any(-1).all()), (
        "rows must name a row of the batch that has the candidate as its target"
    )


def _same(left: Candidates, right: Candidates) -> bool:
    return (
        torch.equal(left.ids, right.ids)
        and torch.equal(left.log_expected_count, right.log_expected_count)
        and torch.equal(left.target_log_expected_count, right.target_log_expected_count)
    )


def _check_seed(sampler: Sampler, num_samples: int | None, targets: Tensor) -> None:
    state = torch.get_rng_state()
    first, second = (
        copy.deepcopy(sampler).sample(
            num_samples, targets, generator=torch.Generator().manual_seed(7)
        )
        for _ in range(2)
    )
    assert _same(first, second), "the same seed must give the same bits"
    assert torch.equal(state, torch.get_rng_state()), (
        "randomness must come from the generator that is passed, not from the global one"
    )


def _check_expected_counts(
    sampler: Sampler, num_samples: int | None, targets: Tensor, generator: torch.Generator
) -> None:
    sampler = _frozen(sampler)
    candidates = sampler.sample(num_samples, targets, generator=generator)
    assert candidates.ids.shape[-1], f"no candidate was given for {len(targets):,} targets"
    log_prob = sampler.log_prob(candidates.ids)
    target_log_prob = sampler.log_prob(targets)
    size, tries, target_tries = candidates.ids.shape[-1], None, None
    if sampler.unique:
        ordered = candidates.ids.sort(-1).values
        assert bool((ordered[..., 1:] != ordered[..., :-1]).all()), "unique ids must be distinct"
        tries = _solve_tries(candidates.log_expected_count, log_prob)
        target_tries = tries.squeeze(-1)
    expected = log_expected_count(log_prob, size, tries)
    target_expected = log_expected_count(target_log_prob, size, target_tries)
    _check_close("log_expected_count", candidates.log_expected_count, expected)
    _check_close("target_log_expected_count", candidates.target_log_expected_count, target_expected)


def _solve_tries(log_count: Tensor, log_prob: Tensor) -> Tensor:
    """Return the tries T [..., 1] that explain the expected count of each row's rarest id."""
    rarest = log_prob.argmin(-1, keepdim=True)
    count = log_count.gather(-1, rarest).exp()
    probability = log_prob.gather(-1, rarest).exp()
    assert bool(((count > 0) & (count <= 1)).all()), "unique expected counts must lie in (0, 1]"
    tries = torch.log1p(-count) / torch.log1p(-probability)
    # Without a repeat the count is num_samples · p; a certain class is found at the first try.
    num_samples = log_prob.shape[-1]
    without_repeat = (count - num_samples * probability).abs() <= _TOLERANCE * count
    tries = torch.where(without_repeat | (probability == 1), float(num_samples), tries)
    assert bool(((tries - tries.round()).abs() < 1e-3 * tries).all()), (
        f"unique expected counts must follow from a whole number of tries, got {tries.tolist()}"
    )
    assert bool((tries.round() >= num_samples).all()), (
        "unique expected counts must follow from at least as many tries as samples"
    )
    return tries.round()


def _check_close(name: str, actual: Tensor, expected: Tensor) -> None:
    # Equal infinities are no difference.
    difference = torch.where(actual == expected, 0.0, (actual - expected).abs())
    worst = difference.max().item() if difference.numel() else 0.0
    assert worst <= _TOLERANCE, (
        f"{name} must follow from log_prob and the number of samples, differs by {worst:.3g}"
    )


def _check_state(
    sampler: Sampler,
    num_samples: int | None,
    draw_targets: Callable[[torch.Generator], Tensor],
    generator: torch.Generator,
) -> None:
    frozen = _frozen(sampler)
    before = copy.deepcopy(frozen.state_dict())
    frozen.sample(num_samples, draw_targets(generator), generator=generator)
    changed = [name for name, value in frozen.state_dict().items() if value.ne(before[name]).any()]
    assert not changed, f"state must not change in eval mode, but {changed} did"

    used = copy.deepcopy(sampler).train()
    for _ in range(3):
        used.sample(num_samples, draw_targets(generator), generator=generator)
    restored = copy.deepcopy(sampler).train()
    restored.load_state_dict(used.state_dict())
    targets = draw_targets(generator)
    for _ in range(2):
        first, second = (
            each.sample(num_samples, targets, generator=torch.Generator().manual_seed(7))
            for each in (used, restored)
        )
        assert _same(first, second), "a sampler restored from state_dict must draw the same"


def _check_errors(sampler: Sampler, num_samples: int | None, targets: Tensor) -> None:
    for wrong in (-1, -10, sampler.num_classes, 2**62):
        bad = targets.clone()
        bad[-1] = wrong
        _expect_error(sampler, num_samples, bad, f"target {wrong}")
    for size in (0, -1, 3590707793247644003):
        _expect_error(sampler, size, targets, f"num_samples = {size}")


def _expect_error(sampler: Sampler, num_samples: int | None, targets: Tensor, what: str) -> None:
    try:
        _frozen(sampler).sample(num_samples, targets)
    except ValueError:
        return
    raise AssertionError(f"{what} must raise ValueError")


def _independent(sampler: Sampler, num_samples: int | None, draws: int) -> int | None:
    """Let a sampler whose draws are independent make many of them in one call."""
    if not isinstance(sampler, DrawnSampler):
        return num_samples
    sampler.unique = False
    rows = _BATCH_SIZE if sampler.per_example else 1
    return math.ceil(min(draws, _DRAWS_PER_CALL) / rows)


def _check_hits(
    sampler: Sampler,
    num_samples: int | None,
    targets: Tensor,
    probability: Tensor,
    generator: torch.Generator,
) -> None:
    """Make the likeliest class every row's target: it must still be among the candidates."""
    likeliest = int(probability.argmax())
    sampler = _frozen(sampler)
    num_samples = _independent(sampler, num_samples, math.ceil(50 / float(probability[likeliest])))
    expected = 0.0
    while expected < 50:
        candidates = sampler.sample(
            num_samples, torch.full_like(targets, likeliest), generator=generator
        )
        if bool((candidates.ids == likeliest).any()):
            return
        expected += candidates.target_log_expected_count[0].exp().item()
    raise AssertionError(
        f"class {likeliest}, every row's target, was expected {expected:.0f} times and never "
        "drawn: a sampler must not drop hits"
    )


def _count_candidates(
    sampler: Sampler,
    num_samples: int | None,
    draw_targets: Callable[[torch.Generator], Tensor],
    memory: int,
    draws: int,
    generator: torch.Generator,
) -> Tensor:
    """Return how often each class was a candidate, over independent calls."""
    # A queue moves only in training mode; all others are held still.
    sampler = copy.deepcopy(sampler).train(memory > 0)
    num_samples = _independent(sampler, num_samples, draws)
    counts = torch.zeros(sampler.num_classes, dtype=torch.int64)
    call = 0
    while int(counts.sum()) < draws:
        ids = sampler.sample(num_samples, draw_targets(generator), generator=generator).ids
        if call % (memory + 1) == memory:
            counts += torch.bincount(ids.flatten(), minlength=sampler.num_classes)
        call += 1
    return counts
