"""A lock, so that two runs never write into one folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO

from widemax.storage.files import check_regular


def lock_for_writing(path: Path, folder: Path) -> IO[bytes]:
    """Return a locked file, or raise if another process writes to ``folder``.

    Closing the file unlocks it, and so does the end of the process, however it ends.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with lock_for_writing(folder / "lock", folder):
    ...     try:
    ...         lock_for_writing(folder / "lock", folder)
    ...     except ValueError as error:
    ...         print(error)
    another run (process ...) saves to ...; wait until it has ended, or save to another folder
    """
    check_regular(path)
    file = path.open("ab+", buffering=0)
    if sys.platform == "win32":
        return file  # there is no such lock: two runs in one folder go unnoticed
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        writer = file.read(20).decode(errors="replace").strip() or "unknown"
        file.close()
        raise ValueError(
            f"another run (process {writer}) saves to {folder}; wait until it has "
            "ended, or save to another folder"
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()).encode())
    return file
