"""Experiments as commands: ``widemax train`` and ``widemax evaluate``, shown and run as they are.

A run's folder is kept in WIDEMAX_RUNS, by default runs/ of the checkout; one that is there already
is continued, not trained again.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _common import widemax

CONFIGS = Path(__file__).resolve().parent / "configs"
RUNS = Path(os.environ.get("WIDEMAX_RUNS", Path(__file__).resolve().parent.parent / "runs"))


def figures_of(
    source: Path, name: str, *flags: object, ks: Sequence[int] = (10, 20)
) -> dict[str, Any]:
    """Train a run of this name and return its figures on the test, with the seconds it took."""
    seconds = train(source, name, *flags)
    lengths = [word for k in ks for word in ("-k", k)]
    return {**figures_at(name, *lengths), "seconds": seconds}


def train(source: Path, name: str, *flags: object) -> float:
    """Train a run of this name, or go on with it; return the seconds that took."""
    start = time.perf_counter()
    shown("train", str(source), *map(str, flags), "--folder", str(RUNS / name), "--resume")
    return time.perf_counter() - start


def figures_at(name: str, *flags: object) -> dict[str, Any]:
    """Return the figures of a run of this name on the test."""
    found: dict[str, Any] = json.loads(
        shown("evaluate", str(RUNS / name), *map(str, flags), "--json")
    )
    return found


def shown(*words: str) -> str:
    """Show a command, run it, and return what it prints."""
    print(f"$ widemax {shlex.join(words)}", flush=True)
    return widemax(*words)
