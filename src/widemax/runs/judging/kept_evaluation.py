"""What the last evaluation of a run found, kept in its folder to be shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from widemax.storage.json_text import finite
from widemax.storage.manifest import read_manifest, write_manifest

EVALUATION = "evaluation.json"
EVALUATION_VERSION = 1


def keep_evaluation(folder: Path, figures: Mapping[str, Any]) -> None:
    """Write the figures of an evaluation beside the run; a folder that is not ours keeps none.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> keep_evaluation(folder, {"step": 9, "mrr": 0.5})
    >>> stored_evaluation(folder)
    {'step': 9, 'mrr': 0.5}
    """
    try:
        write_manifest(folder / EVALUATION, EVALUATION_VERSION, {"figures": finite(dict(figures))})
    except OSError:
        return


def stored_evaluation(folder: Path) -> dict[str, Any] | None:
    """Return what the last evaluation of a run found; None if there was none."""
    path = folder / EVALUATION
    if not path.exists():
        return None
    found = read_manifest(path, EVALUATION_VERSION, if_older="evaluate the run again")
    figures = found.get("figures")
    if not isinstance(figures, dict):
        raise ValueError(f"{path} is damaged: it has no figures")
    return figures
