"""Processes for tests: four, started once for all modules, of which groups are made."""

import fcntl
import io
import os
import socket
import sys
import traceback
from datetime import timedelta
from importlib import import_module

import torch
import torch.distributed as dist

from tests.forked import FORKS

SIZES = (2, 3, 4)
LARGEST = max(SIZES)


def measured_by_all(request, tmp_path_factory):
    """Return what each process found by the ``work`` of the module of a test, by rank.

    Four processes do the work of all modules that are tested, one after the other, once for all
    workers of pytest: it takes longer to start them than to do it. Before, ``prepare`` of a module
    compiles what one process has to compile, not four at once.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    file = folder / "measured_by_all.pt"
    with (folder / "measured_by_all.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            modules = [getattr(item, "module", None) for item in request.session.items]
            names = sorted({each.__name__ for each in modules if hasattr(each, "work")})
            for name in names:
                getattr(import_module(name), "prepare", lambda: None)()
            file.write_bytes(packed(run_all(_work_of, names)))
    found = torch.load(file, weights_only=False)
    return [each[request.module.__name__] for each in found]


def _work_of(groups, names):
    return {name: import_module(name).work(groups) for name in names}


def run_all(work, *arguments, processes=LARGEST, timeout=400):
    """Call ``work(groups, *arguments)`` in each process; return what each returned, by rank.

    ``groups`` has the process group of each size that this process belongs to.
    """
    answers = FORKS.Queue()
    port = free_port()
    started = [
        FORKS.Process(target=_run, args=(rank, processes, port, answers, work, arguments))
        for rank in range(processes)
    ]
    for each in started:
        each.start()
    try:
        found = dict(answers.get(timeout=timeout) for _ in started)
    finally:
        for each in started:
            each.join(20)
            if each.is_alive():
                each.kill()
    failed = [error for _, error in found.values() if error]
    assert not failed, failed[0]
    return [torch.load(io.BytesIO(found[rank][0]), weights_only=False) for rank in range(processes)]


def packed(value):
    room = io.BytesIO()
    torch.save(value, room)
    return room.getvalue()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _run(rank, processes, port, answers, work, arguments):
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=rank,
            world_size=processes,
            timeout=timedelta(seconds=200),
        )
        sizes = [size for size in SIZES if size <= processes]
        made = {size: dist.new_group(list(range(size))) for size in sizes}
        groups = {size: group for size, group in made.items() if rank < size}
        # As bytes: a tensor in a queue lives only as long as the process that sent it.
        answers.put((rank, (packed(work(groups, *arguments)), "")))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        answers.put((rank, (None, f"rank {rank}:\n{traceback.format_exc()}")))
        sys.exit(1)


def parts_of(total, size, shape):
    """Return how many rows each process has: about as many, or none in one of them."""
    if shape == "even":
        return [len(each) for each in torch.tensor_split(torch.arange(total), size)]
    first = [0] if shape == "first empty" else []
    others = parts_of(total, size - 1, "even")
    return first + others if first else [*others, 0]
