"""A table divided over processes against the whole table in one: memory, answers, bytes moved.

Each process is started on its own; peaks are those that the system reports of it (ru_maxrss).
"""

from __future__ import annotations

import multiprocessing
import resource
import socket
from typing import Any

import torch
import torch.distributed as dist

import widemax as wm
from _harness import Report, command_line
from widemax.distributed import JoinedBatches, SlicedSampledHead, SlicedTableScorer, Wire

STEPS, ROWS, SAMPLES, K = 3, 256, 1024, 10


def work(rank: int, ranks: int, classes: int, dimension: int, port: int, answers: Any) -> None:
    """Train some steps, ask for the best classes; report the peak."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sampler = wm.LogUniformSampler(classes)
    generator, wire = torch.Generator().manual_seed(0), None
    if ranks == 1:
        scorer = wm.TableScorer(classes, dimension, sparse=True)
        head = wm.SampledHead(scorer, sampler, num_samples=SAMPLES)
    else:
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks
        )
        wire = Wire()
        scorer = SlicedTableScorer(classes, dimension, wire)
        head = SlicedSampledHead(scorer, sampler, num_samples=SAMPLES)
        head.joined = JoinedBatches(wire, generator)
    rule = wm.optim.RowwiseAdagrad  # the usual one for large tables: one value a row
    optimizer = wm.optimizer_for(head, table_rule=rule, table_lr=0.05)
    drawn = torch.Generator().manual_seed(1)
    own = torch.tensor_split(torch.arange(ROWS), ranks)[rank]
    moved = 0
    for _ in range(STEPS):
        hidden = torch.randn(ROWS, dimension, generator=drawn)[own]
        targets = torch.randint(classes, (ROWS,), generator=drawn)[own]
        optimizer.zero_grad()
        before = 0 if wire is None else wire.bytes_sent
        (head(hidden, targets, generator=generator).sum() / ROWS).backward()
        moved = 0 if wire is None else wire.bytes_sent - before
        optimizer.step()
    asked = torch.randn(32, dimension, generator=drawn)
    found = head.topk(asked[torch.tensor_split(torch.arange(32), ranks)[rank]], K).ids
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    answers.put((rank, peak, moved, found.tolist()))
    if wire is not None:
        dist.barrier()
        dist.destroy_process_group()


def measured(ranks: int, classes: int, dimension: int) -> list[tuple[int, int, int, list]]:
    """Return what each process reports, by rank."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        context.Process(target=work, args=(rank, ranks, classes, dimension, port, answers))
        for rank in range(ranks)
    ]
    for each in started:
        each.start()
    found = sorted(answers.get(timeout=3000) for _ in started)
    for each in started:
        each.join()
    return found


def main() -> None:
    """Measure one process, then several."""
    parser = command_line(__doc__)
    parser.add_argument("--classes", type=int, default=20_000_000)
    parser.add_argument("--dimension", type=int, default=96)
    parser.add_argument("--processes", type=int, default=4)
    arguments = parser.parse_args()
    report = Report(arguments)
    sizes = (arguments.classes, arguments.dimension)
    ((_, whole, _, expected),) = measured(1, *sizes)
    parts = measured(arguments.processes, *sizes)
    found = [row for _, _, _, rows in parts for row in rows]
    same = sum(a == b for a, b in zip(found, expected, strict=True)) / len(expected)
    largest = max(peak for _, peak, _, _ in parts)
    report.add("peak of one process, GB", whole / 1e9)
    report.add(f"largest peak of {arguments.processes} processes, GB", largest / 1e9)
    report.add("their ratio", largest / whole, 0.30, "at most")
    report.add("rows whose best classes are the same", same, 1.0)
    report.add(
        "most bytes that a process sends in a step, MB", max(m for _, _, m, _ in parts) / 1e6
    )
    report.finish()


if __name__ == "__main__":
    main()
