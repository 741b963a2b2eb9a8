"""Answers over HTTP: JSON that every reader takes, and errors of one form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import Response

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def json_response(
    content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return an answer; a number that is not finite is a defect and raises.

    >>> json_response({"score": 0.5}).body
    b'{"score":0.5}'
    """
    return Response(_encoded(content), status, headers, media_type="application/json")


def _encoded(content: Any) -> bytes:
    # In Rust, in a third of the time. It fails at half a character, as a file name may hold.
    with suppress(PydanticSerializationError):
        data = to_json(content)
        if b"NaN" not in data and b"Infinity" not in data:
            return data
    # Such numbers raise here. Half a character has no UTF-8: it is shown as a question mark.
    return _ENCODER.encode(content).encode("utf-8", "replace")


def error_response(
    status: int, detail: str, suggestions: Sequence[str] = (), *, close: bool = False
) -> Response:
    """Return why a request is not answered."""
    content: dict[str, Any] = {"detail": detail}
    if suggestions:
        content["suggestions"] = list(suggestions)
    headers = {"connection": "close"} if close else {}
    if status in (429, 503):
        headers["retry-after"] = "1"
    return json_response(content, status, headers)
