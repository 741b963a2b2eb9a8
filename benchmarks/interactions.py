"""Preparing a log: read, 5-core, sessions, leave-one-out split, encoded; against pandas.

Ten million rows of Parquet in the order in which they were logged: items fall in frequency as Zipf
says, users come in bursts, and one row in a hundred arrives late. pandas (with pyarrow) does the
same in the idiomatic way, whole columns at a time; where it is missing, only our own figures are
given. Each side prepares the log in a process of its own, which reports its time, that of all its
threads together, and the most memory it ever held; the sides take turns.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from _harness import Report, command_line
from widemax.data.reading.source import read_source
from widemax.data.sequences import Sequences
from widemax.data.sessions import sessions_of
from widemax.data.source import Source
from widemax.data.splitting.log_split import LogSplit
from widemax.data.splitting.splits import leave_one_out

CORE, GAP = 5, 1800.0
OURS, PEER = "widemax", "pandas"
Result = Callable[[], dict[str, np.ndarray]]
"""Makes what is compared, after the clock and the memory were read."""

PARTS = ("user", "item", "target", "validation", "session")


def write_log(path: Path, rows: int) -> None:
    """Write users' bursts: a pause of days between them, a minute or so within."""
    rng = np.random.default_rng(0)
    num_users, num_items = max(10, rows // 20), max(10, rows // 50)
    bursts = rng.integers(0, num_users, rows // 4)
    start = rng.uniform(0, 86_400 * 365, len(bursts))
    burst = np.sort(rng.integers(0, len(bursts), rows))
    within = rng.exponential(90.0, rows).cumsum()
    first = np.flatnonzero(np.diff(burst, prepend=-1))
    within -= np.repeat(within[first], np.diff(np.append(first, rows)))
    seconds = 1_600_000_000 + (start[burst] + within).astype(np.int64)
    items = rng.permutation(num_items)[(rng.zipf(1.2, rows) - 1) % num_items]
    logged = seconds + np.where(rng.random(rows) < 0.01, rng.integers(0, 3600, rows), 0)
    order = np.argsort(logged, kind="stable")
    columns = {"user_id": bursts[burst], "item_id": items, "timestamp": seconds}
    pl.DataFrame({name: values[order] for name, values in columns.items()}).write_parquet(path)


class Taken(NamedTuple):
    """What one process took to prepare the log."""

    seconds: float
    cpu_seconds: float
    gigabytes: float


def widemax_prepares(path: Path) -> Result:
    source = read_source(path, core=CORE)
    sessions, _ = sessions_of(source.sequences, gap=GAP)
    split = leave_one_out(source.sequences)
    # Copied when it is asked for; what pandas cuts has its times too.
    assert split.train.times is not None
    return lambda: _our_result(source, sessions, split)


def _our_result(source: Source, sessions: Sequences, split: LogSplit) -> dict[str, np.ndarray]:
    log, keys = source.sequences, source.vocabulary.keys.to_numpy()
    names = log.names.to_numpy()
    return {
        "user": np.repeat(names, log.lengths.numpy()),
        "item": keys[log.values.numpy()],
        "target": np.stack([names[split.test.users], keys[split.test.targets.values]]),
        "validation": np.stack(
            [names[split.validation.users], keys[split.validation.targets.values]]
        ),
        "session": np.repeat(np.arange(len(sessions)), sessions.lengths.numpy()),
    }


def pandas_prepares(path: Path) -> Result:
    import pandas as pd

    log = pd.read_parquet(path)
    while True:
        users = log.groupby("user_id")["item_id"].transform("size")
        items = log.groupby("item_id")["user_id"].transform("size")
        enough = (users >= CORE) & (items >= CORE)
        if enough.all():
            break
        log = log[enough]
    log["user"] = pd.factorize(log["user_id"])[0]
    log = log.sort_values(["user", "timestamp"], kind="stable", ignore_index=True)
    counts = log["item_id"].value_counts()
    classes = pd.Series(np.arange(len(counts)), index=counts.index)
    log["class"] = log["item_id"].map(classes)
    pause = log.groupby("user")["timestamp"].diff()
    log["session"] = (pause.isna() | (pause > GAP)).cumsum() - 1
    from_end = log.groupby("user").cumcount(ascending=False)
    length = log.groupby("user")["class"].transform("size")
    test = log[(from_end == 0) & (length > 1)]
    validation = log[(from_end == 1) & (length > 2)]
    train = log[(from_end > 1) | (length == 1) | ((length == 2) & (from_end == 1))]

    def result() -> dict[str, np.ndarray]:
        assert len(train) + len(validation) + len(test) == len(log)
        return {
            "user": log["user_id"].to_numpy(),
            "item": counts.index.to_numpy()[log["class"].to_numpy()],
            "target": test[["user_id", "item_id"]].to_numpy().T,
            "validation": validation[["user_id", "item_id"]].to_numpy().T,
            "session": log["session"].to_numpy(),
        }

    return result


PREPARES: dict[str, Callable[[Path], Result]] = {
    OURS: widemax_prepares,
    PEER: pandas_prepares,
}


def check_results(path: Path) -> None:
    """What is timed is right: both keep the same rows in one order, and ask the same questions."""
    ours, theirs = (PREPARES[side](path)() for side in (OURS, PEER))
    for part in PARTS:
        # Users stand in order of appearance: in the whole log here, in what is left of it there.
        left, right = (_by_user(result, part) for result in (ours, theirs))
        assert np.array_equal(left, right), part


def _by_user(result: dict[str, np.ndarray], part: str) -> np.ndarray:
    if part in ("target", "validation"):
        return result[part][:, np.argsort(result[part][0], kind="stable")]
    order = np.argsort(result["user"], kind="stable")
    ordered = result[part][order]
    # Sessions are numbered along the log: where one begins is what must agree.
    return np.diff(ordered, prepend=-1) != 0 if part == "session" else ordered


def measured(side: str, path: Path) -> Taken:
    """Return the seconds and the most GB of one process that prepares the log."""
    command = [sys.executable, __file__, "--prepare", side, "--log", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Taken(**json.loads(done.stdout.splitlines()[-1]))


def prepare(side: str, path: Path) -> None:
    """Be such a process; the kernels are compiled, or loaded, before the clock starts."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.parquet"
        write_log(small, 20_000)
        PREPARES[side](small)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    prepared = PREPARES[side](path)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    print(json.dumps(Taken(seconds, cpu_seconds, most_memory())._asdict()))
    del prepared  # its memory is given back after the clock was read


def most_memory() -> float:
    """Return the most GB this process held; ru_maxrss begins with what its parent held."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def figures(report: Report, path: Path, repeats: int) -> None:
    runs: dict[str, list[Taken]] = {side: [] for side in PREPARES}
    for _ in range(repeats):
        for side, taken in runs.items():
            taken.append(measured(side, path))
    ours, theirs = typical(runs[OURS]), typical(runs[PEER])
    report.add("log prepared (s)", ours.seconds)
    report.add("log prepared, all threads together (s)", ours.cpu_seconds)
    report.add("most memory of the process (GB)", ours.gigabytes, 4.0, "at most")
    report.add("log prepared by pandas (s)", theirs.seconds)
    report.add("log prepared by pandas, all threads together (s)", theirs.cpu_seconds)
    report.add("most memory of pandas' process (GB)", theirs.gigabytes)
    report.add("pandas / ours", theirs.seconds / ours.seconds, 10.0)
    report.add("pandas / ours, all threads together", theirs.cpu_seconds / ours.cpu_seconds)


def typical(runs: list[Taken]) -> Taken:
    """Return the median of the times, and the most of the memory."""
    return Taken(
        statistics.median(run.seconds for run in runs),
        statistics.median(run.cpu_seconds for run in runs),
        max(run.gigabytes for run in runs),
    )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--prepare", choices=list(PREPARES), help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    report = Report(parser.parse_args())
    if report.arguments.prepare:
        prepare(report.arguments.prepare, report.arguments.log)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, report.arguments.rows)
        check_results(path)
        figures(report, path, report.arguments.repeats)
    report.finish()


if __name__ == "__main__":
    main()
