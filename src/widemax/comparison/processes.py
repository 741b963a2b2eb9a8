"""Processes for the trials of a comparison: some at a time, none of which can end the others."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from widemax.comparison.trial import FORMAT_VERSION, Job, work
from widemax.storage.files import make_folder
from widemax.storage.manifest import write_manifest

# Loaded once, by a process that the trials are copies of: torch takes seconds to load.
_LOADED = ["widemax.runs.training.preparing", "widemax.runs.run"]
_LOOK_EVERY = 0.5


def run_jobs(
    next_jobs: Callable[[], Sequence[Job]],
    *,
    workers: int,
    on_look: Callable[[Sequence[Job]], None] = lambda running: None,
) -> None:
    """Run jobs, ``workers`` at a time, until ``next_jobs`` has none that are not running.

    It is asked whenever one is done. A job whose process ends without a result, for example
    because the system was out of memory, has failed. ``on_look`` is called twice a second with
    those that are running. Ctrl-C ends them all, after they have saved.
    """
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    running: dict[str, tuple[Job, Any]] = {}
    try:
        while True:
            for job in next_jobs():
                if len(running) < workers and job.result not in running:
                    process = context.Process(target=work, args=(job,))
                    process.start()
                    running[job.result] = (job, process)
            if not running:
                return
            on_look([job for job, _ in running.values()])
            wait([process.sentinel for _, process in running.values()], _LOOK_EVERY)
            for name, (job, process) in list(running.items()):
                if not process.is_alive():
                    process.join()
                    del running[name]
                    _say_if_lost(job, process.exitcode)
    finally:
        for _, process in running.values():
            process.terminate()  # SIGTERM: a training saves, and ends
        for _, process in running.values():
            process.join()


def _say_if_lost(job: Job, exit_code: int) -> None:
    """Write that a job has failed whose process ended without saying anything."""
    if exit_code == 0:
        return
    reason = f"its process ended with exit code {exit_code}"
    if exit_code < 0:
        killed = "killed, perhaps for want of memory" if exit_code == -9 else "ended by a signal"
        reason = f"its process was {killed} ({-exit_code})"
    make_folder(Path(job.result).parent)
    write_manifest(job.result, FORMAT_VERSION, {"until": job.until, "failed": reason})
