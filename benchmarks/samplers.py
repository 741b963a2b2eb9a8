"""Draws a second of the alias table and of distinct log-uniform draws, against plain torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from _harness import Report, command_line, interleaved
from widemax.contracts.distribution import chi_square_p_value
from widemax.sampling import LogUniformSampler, UnigramSampler

NUM_SAMPLES = 1024
REPEATS = 300


def zipf_counts(num_classes: int) -> Tensor:
    """Counts by Zipf's law, shuffled: neighbours in the table are not neighbours in rank."""
    step = next(
        s for s in range(num_classes // 3 | 1, num_classes, 2) if math.gcd(s, num_classes) == 1
    )
    rank = torch.arange(num_classes).mul_(step).remainder_(num_classes).add_(1)
    return rank.float().reciprocal_().mul_(num_classes)


def check_draws(sampler: UnigramSampler, generator: torch.Generator) -> None:
    """The thousand likeliest classes, and all others together, come as often as they should."""
    log_prob = sampler.log_prob(torch.arange(sampler.num_classes))
    likely = log_prob.topk(1000).indices.sort().values
    probability = torch.cat([log_prob[likely].exp(), torch.zeros(1, dtype=torch.float64)])
    probability[-1] = 1 - probability.sum()
    ids = sampler.draw((2_000_000,), generator=generator)
    place = torch.searchsorted(likely, ids).clamp_(max=len(likely) - 1)
    bins = torch.where(likely[place] == ids, place, len(likely))
    counts = torch.bincount(bins, minlength=len(likely) + 1)
    p_value = chi_square_p_value(counts, len(ids) * probability)
    assert p_value > 1e-6, f"alias draws at V = {sampler.num_classes:,} are wrong, p = {p_value}"


def naive_distinct(
    sampler: LogUniformSampler, num_samples: int, batch: int, generator: torch.Generator
) -> tuple[Tensor, int]:
    """Draw with torch, keep what is new through a Python set, until there are enough."""
    seen: set[int] = set()
    kept: list[int] = []
    tries = 0
    while True:
        for drawn in sampler.draw((batch,), generator=generator).tolist():
            tries += 1
            if drawn not in seen:
                seen.add(drawn)
                kept.append(drawn)
                if len(kept) == num_samples:
                    return torch.tensor(kept), tries


def check_distinct(sampler: LogUniformSampler) -> None:
    """From the same seed and batch, both ways find the same ids in the same number of tries."""
    ids, tries = sampler.draw_distinct((NUM_SAMPLES,), generator=torch.Generator().manual_seed(5))
    expected, expected_tries = naive_distinct(
        sampler, NUM_SAMPLES, 2 * NUM_SAMPLES, torch.Generator().manual_seed(5)
    )
    assert torch.equal(ids, expected)
    assert int(tries) == expected_tries


def alias_figures(report: Report, generator: torch.Generator) -> None:
    small, large = 10**6, 10**8
    counts = zipf_counts(small)
    samplers = {size: UnigramSampler(size, zipf_counts(size)) for size in (small, large)}
    for sampler in samplers.values():
        check_draws(sampler, generator)
    weights = counts.double().pow(0.75)

    def draw_small() -> Tensor:
        return samplers[small].draw((NUM_SAMPLES,), generator=generator)

    def draw_large() -> Tensor:
        return samplers[large].draw((NUM_SAMPLES,), generator=generator)

    def multinomial() -> Tensor:
        return torch.multinomial(weights, NUM_SAMPLES, replacement=True, generator=generator)

    peers = interleaved({"alias": draw_small, "multinomial": multinomial}, REPEATS // 10, calls=10)
    # By themselves: after multinomial, the small table would be out of the cache too.
    sizes = interleaved({"small": draw_small, "large": draw_large}, REPEATS, calls=10)
    report.add("alias draws, V = 1e6 (µs)", 1e6 * sizes["small"])
    report.add("alias draws, V = 1e8 (µs)", 1e6 * sizes["large"])
    report.add("torch.multinomial, V = 1e6 (µs)", 1e6 * peers["multinomial"])
    report.add("multinomial / alias, V = 1e6", peers["multinomial"] / peers["alias"], 10)
    report.add("alias V = 1e8 / alias V = 1e6", sizes["large"] / sizes["small"], 2, "at most")


def distinct_figures(report: Report, generator: torch.Generator) -> None:
    sampler = LogUniformSampler(10**6, unique=True)
    check_distinct(sampler)
    seconds = interleaved(
        {
            "widemax": lambda: sampler.draw_distinct((NUM_SAMPLES,), generator=generator),
            "naive": lambda: naive_distinct(sampler, NUM_SAMPLES, NUM_SAMPLES, generator),
        },
        REPEATS,
    )
    one_by_one = interleaved(
        {"one": lambda: naive_distinct(sampler, NUM_SAMPLES, 1, generator)}, 5, warmup=1
    )
    report.add("distinct log-uniform draws (µs)", 1e6 * seconds["widemax"])
    report.add("naive loop / distinct draws", seconds["naive"] / seconds["widemax"], 3)
    report.add("one at a time / distinct draws", one_by_one["one"] / seconds["widemax"])


def main() -> None:
    report = Report(command_line(__doc__).parse_args())
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    alias_figures(report, generator)
    distinct_figures(report, generator)
    report.finish()


if __name__ == "__main__":
    main()
