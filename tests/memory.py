"""Where temporary files lie in memory, if there is room.

A run syncs each of its files to the disk, more than twenty in a tiny one, and waits longer for that
than it computes. Whether a file outlives a power cut is nothing that a test can see, nor a kill.
"""

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 4 * 2**30


def folder_in_memory():
    """Return a folder whose files lie in memory, or None where there is none or too little room."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ENOUGH:
        return None
    # Some tests write programs and start them.
    return None if os.statvfs(MEMORY).f_flag & os.ST_NOEXEC else MEMORY
