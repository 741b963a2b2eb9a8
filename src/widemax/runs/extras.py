"""Packages that only some installations have."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_extra(name: str) -> Any:
    """Return a module, or say that the extra of widemax with its name brings it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ValueError(
            f"the package {name} is not here: pip install 'widemax[{name}]'"
        ) from error
