"""The folder of ``widemax demo``: made, taken again, and never taken from somebody else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from widemax.storage.files import make_folder, remove_torn_files
from widemax.storage.locks import lock_for_writing
from widemax.training.checkpoints import CheckpointStore

MARK = ".widemax-demo"
"""The file that says whose folder it is; it is locked while a demo is at work there."""


@contextmanager
def demo_folder(folder: Path, *, runs: tuple[str, ...]) -> Iterator[None]:
    """Hold a folder that is new, empty or of an earlier demo, whose ``runs`` are removed.

    Whatever else lies in the folder of a demo stays.
    """
    _check_own(folder)
    make_folder(folder)
    with lock_for_writing(folder / MARK, folder):
        remove_torn_files(folder)
        for name in runs:
            _remove_run(folder / name)
        yield


def _check_own(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"folder must be a folder, and {folder} is a file")
    if not (folder / MARK).is_file() and any(folder.iterdir()):
        raise ValueError(
            f"{folder} holds something that is not of a demo: choose another folder with --folder"
        )


def _remove_run(run: Path) -> None:
    if run.is_dir():
        # Someone may go on with a run that was stopped: that one is not taken away.
        with CheckpointStore(run):
            shutil.rmtree(run)
