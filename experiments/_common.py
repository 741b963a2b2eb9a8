"""What experiments share: where data are, a copy of a state, other settings, the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

DATA = Path(os.environ.get("WIDEMAX_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
"""No part of this repository."""


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the state, which training leaves as it is."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def values_of(changes: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Read settings like learning_rate=0.01, each as what the known one is."""
    values: dict[str, Any] = {}
    for change in changes:
        name, _, text = change.partition("=")
        if name not in known:
            sys.exit(f"no setting {name!r}; there are {', '.join(known)}")
        kind = type(known[name])
        values[name] = text == "true" if kind is bool else kind(text)
    return values


def widemax(*arguments: str) -> str:
    """Run the command line, and return what it prints; what it reports meanwhile is shown."""
    command = [sys.executable, "-m", "widemax", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
