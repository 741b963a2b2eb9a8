"""Skip-gram by one process and by two of one thread each: worth of the vectors, and speed.

On the first words of 17 million of Wikipedia, with the settings of word2vec.py. A speed is words by
the processor's time of the process that takes most, so that a busy machine does not count: with a
core for each process it is that of the clock, which is printed too. What is sent between the
processes is on the processor's time, waiting for each other is not.

    python experiments/word2vec_ranks.py [--words N] [--epochs N] [--seeds N] [--json FILE]
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _harness import Report, command_line
from _words import KINDS, MIN_COUNT, WINDOW, quality_of, rate_of, unpack, untrained
from widemax.data import read_corpus
from widemax.distributed import Ranks
from widemax.models import Word2VecSteps

KIND = KINDS[0]
APART, SPEEDUP = 0.02, 1.6


def train(rank: int, size: int, port: int, path: Path, epochs: int, seed: int, out: Any) -> None:
    """Train as one of some processes; report times, and the vectors' worth if it is the first."""
    torch.set_num_threads(1)
    sequences, vocabulary = read_corpus(path, min_count=MIN_COUNT)
    model = untrained(KIND, vocabulary, seed)
    steps = Word2VecSteps(model, sequences, window=WINDOW, threads=1, seed=seed)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size
    )
    if size > 1:
        Ranks().attach(steps)
    steps.take(0, 0.0)  # loads kernels, as the meeting does
    steps.publish()
    dist.barrier()
    total = epochs * steps.per_epoch
    start, clock = time.process_time(), time.perf_counter()
    for step in range(total):
        steps.take(step, rate_of(KIND) * (1 - step / total))
    steps.publish()
    seconds, by_clock = time.process_time() - start, time.perf_counter() - clock
    worth = quality_of(vocabulary, model.key_vectors()).wordsim if rank == 0 else 0.0
    out.put((rank, len(sequences.values) * epochs, seconds, by_clock, worth))
    dist.barrier()
    dist.destroy_process_group()


def trained(size: int, path: Path, epochs: int, seed: int) -> tuple[float, float, float]:
    """Return words a second of the processor and of the clock, and WordSim, of some processes."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        context.Process(target=train, args=(rank, size, port, path, epochs, seed, out))
        for rank in range(size)
    ]
    for each in started:
        each.start()
    found = sorted(out.get(timeout=6000) for _ in started)
    for each in started:
        each.join()
    words = found[0][1]
    speed = words / max(each[2] for each in found)
    by_clock = words / max(each[3] for each in found)
    print(
        f"{size} x 1 thread, seed {seed}: {speed:>12,.0f} words a second of a core, "
        f"{by_clock:>12,.0f} by the clock, WordSim {found[0][4]:.4f}",
        flush=True,
    )
    return speed, by_clock, found[0][4]


def main() -> None:
    """Train in turn, one process and two."""
    parser = command_line(__doc__)
    parser.add_argument("--words", type=int, default=4_000_000, help="how many; 0 is all")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    report = Report(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        path = unpack(arguments.words, Path(folder)).path
        found = {
            size: [trained(size, path, arguments.epochs, seed) for seed in range(arguments.seeds)]
            for size in (1, 2)
        }
    speed, clock, worth = (
        {size: statistics.median(each[place] for each in runs) for size, runs in found.items()}
        for place in range(3)
    )
    report.add("WordSim of one process", worth[1])
    report.add("WordSim of two processes", worth[2])
    report.add("WordSim that two lose", worth[1] - worth[2], APART, "at most")
    report.add("speed of two processes over one, by the processor", speed[2] / speed[1], SPEEDUP)
    report.add("the same by the clock", clock[2] / clock[1])
    report.finish()


if __name__ == "__main__":
    main()
