"""The time of a step that a plan predicts for four processes, fitted to steps of one and of two.

A step's time is the processor's, of the process that takes most, so that other programs do not
count. Four processes on two cores take turns: by the clock their steps take twice that time, which
is held to the clock too where the machine had nothing else to do.
"""

from __future__ import annotations

import os
import resource
import time
import warnings
from pathlib import Path

from _harness import Report, command_line
from widemax.planning.costs import OPERATIONS
from widemax.planning.measuring import default_cases, fit, this_machine, time_steps
from widemax.planning.plan import arrangement

FITTED, PREDICTED = (1, 2), 4
FACTOR = 1.5
IDLE = 0.1
"""The share of the cores that other programs may take before a clock says nothing."""


def busy_seconds() -> tuple[float, float]:
    """Return the processor's time of all programs, and of this one with what it started."""
    numbers = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq = (int(each) for each in numbers[:7])
    ticks = os.sysconf("SC_CLK_TCK")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(each.ru_utime + each.ru_stime for each in used)
    return (user + nice + system + irq + softirq) / ticks, own


def main() -> None:
    """Measure, fit, predict."""
    report = Report(command_line(__doc__).parse_args())
    warnings.simplefilter("ignore")
    cases = default_cases()
    before, start = busy_seconds(), time.perf_counter()
    found = {count: time_steps(cases, count) for count in (*FITTED, PREDICTED)}
    passed, after = time.perf_counter() - start, busy_seconds()
    others = (after[0] - before[0]) - (after[1] - before[1])
    share = max(0.0, others / passed / (os.cpu_count() or 1))
    costs = fit(cases, {count: found[count] for count in FITTED})
    ratios: dict[str, list[float]] = {"processor": [], "clock": [], "bytes": []}
    own, here = this_machine(1), this_machine(PREDICTED)
    print(f"{'step of four processes':<44}{'predicted':>12}{'measured':>12}{'by clock':>12}")
    for case, timed in zip(cases, found[PREDICTED], strict=True):
        made = arrangement(case.load, here, costs, divided=case.divided)
        cpu = made.step_seconds / here.sharing * own.sharing
        load = case.load
        name = f"{load.sampler}, {load.batch_size} targets of {load.dimension}"
        name += ", divided" if case.divided else ""
        print(f"{name:<44}{cpu:>11.4f}s{timed.seconds:>11.4f}s{timed.by_clock:>11.4f}s")
        ratios["processor"].append(cpu / timed.seconds)
        ratios["clock"].append(made.step_seconds / timed.by_clock)
        ratios["bytes"].append(made.traffic.total / timed.sent)
        assert made.traffic.rounds == timed.rounds, (name, made.traffic.rounds, timed.rounds)
    worst = {name: max(max(each, 1 / each) for each in values) for name, values in ratios.items()}
    for name in OPERATIONS:
        report.add(f"fitted: {name}, microseconds", costs.each[name] * 1e6)
    report.add("share of the cores that other programs took", share)
    report.add("steps of four processes: worst factor", worst["processor"], FACTOR, "at most")
    if share <= IDLE:
        report.add("by the clock: worst factor", worst["clock"], FACTOR, "at most")
    else:
        print(f"\nother programs took {share:.0%} of the cores: the clock is no measure")
        report.add("by the clock, with other programs: worst factor", worst["clock"])
    report.add("expected bytes of a step: worst factor", worst["bytes"], 1.15, "at most")
    report.finish()


if __name__ == "__main__":
    main()
