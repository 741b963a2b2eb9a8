"""What is refused, and in which words: errors of requests as answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from widemax.declarations.options import shortened
from widemax.serving.http.answers import error_response
from widemax.serving.runs.served_run import ServedRun

REFUSALS = {
    400: "The body is no JSON, or is nested too deeply.",
    403: "Host or Origin is not that of this server.",
    404: "There is no such run or path.",
    408: "The request did not come in time.",
    413: "The body is too large.",
    415: "The body must be application/json.",
    422: "A value is not allowed, or names nothing that there is.",
    429: "Too many answers are under way.",
    503: "The answer took too long, or the database gives none.",
    504: "The database took longer than it may.",
}
"""The status of each refusal, and what it means."""


def say_mistake(error: ValueError, served: ServedRun | None) -> Response:
    """Return what is wrong with a question to a run, without where the run lies."""
    detail = str(error)
    if served is not None:
        # Where a run lies is no business of whoever asks it.
        detail = detail.replace(str(served.folder), served.name)
    return error_response(422, detail, getattr(error, "suggestions", ()))


def say_invalid(errors: Sequence[Any]) -> Response:
    """Return the first thing that is wrong with a body or parameters, and where."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    message = str(first["msg"]).removeprefix("Value error, ")
    status = 400 if first["type"] == "json_invalid" else 422
    given = first.get("input")
    shown = f", got {shortened(repr(given))}" if isinstance(given, str | int | float) else ""
    if status == 400:
        shown = ""
    return error_response(status, f"{place + ': ' if place else ''}{message}{shown}")


async def say_parameters(request: Request, error: Exception) -> Response:
    """Return what is wrong with the parameters of a path."""
    assert isinstance(error, RequestValidationError)
    return say_invalid(error.errors())


async def say_http(request: Request, error: Exception) -> Response:
    """Return what is wrong with a path or a method, as other errors are."""
    assert isinstance(error, HTTPException)
    path, detail = shortened(repr(request.url.path)), str(error.detail)
    if error.status_code == 404:
        detail = f"there is no path {path}"
    elif error.status_code == 405 and error.headers:
        detail = (
            f"{path} takes {error.headers.get('Allow', 'another method')}, got {request.method}"
        )
    response = error_response(error.status_code, detail)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response
