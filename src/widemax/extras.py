"""Optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_extra(extra: str, module: str = "") -> Any:
    """Return the module of an extra of widemax, by default of the same name.

    >>> import_extra("no-such-extra", "no_such_module")
    Traceback (most recent call last):
    ValueError: the package no-such-extra is not installed: pip install 'widemax[no-such-extra]'
    """
    try:
        return import_module(module or extra)
    except ImportError as error:
        raise ValueError(
            f"the package {extra} is not installed: pip install 'widemax[{extra}]'"
        ) from error
