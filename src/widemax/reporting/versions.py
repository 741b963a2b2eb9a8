"""What a report was made with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def versions() -> str:
    """Return the versions of what computes, and the machine.

    >>> versions().startswith("widemax ")
    True
    """
    parts = []
    for name in ("widemax", "torch", "numpy", "numba"):
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    python = f"Python {platform.python_version()}"
    return f"{', '.join([*parts, python])}; {platform.system()} on {platform.machine()}"
