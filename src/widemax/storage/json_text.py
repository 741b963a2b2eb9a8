"""JSON as every reader takes it."""

from __future__ import annotations

import json
import math
from typing import Any


def parse_json(name: str, text: str | bytes) -> Any:
    """Return the value of JSON text; NaN and Infinity, which JSON does not have, are refused."""
    try:
        # Bytes are decoded here: json would guess at UTF-16 and UTF-32 too.
        given = text if isinstance(text, str) else text.decode()
        return json.loads(given, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not whole JSON: {error}") from error


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def finite(value: Any) -> Any:
    """Return something to be written as JSON, with None for numbers that are not finite.

    >>> finite([{"loss": float("inf"), "mrr": 0.5}])
    [{'loss': None, 'mrr': 0.5}]
    """
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
