"""JSON as every reader takes it."""

from __future__ import annotations

import json
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
