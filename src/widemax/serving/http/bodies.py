"""The body of a request: one question, or several that are asked one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from widemax.serving.http.answers import error_response
from widemax.serving.http.refusals import say_invalid
from widemax.serving.runs.served_run import ServedRun
from widemax.serving.work import Deadline
from widemax.stores.postgres import DatabaseError
from widemax.vocabulary.spelling import UnknownNameError

_Asked = TypeVar("_Asked", bound=BaseModel)


async def parsed(request: Request, asked: type[_Asked]) -> _Asked | Response:
    """Return the body of a request, or why it is none; nesting is limited by the parser."""
    given = dict(request.scope["headers"]).get(b"content-type", b"").decode("latin-1")
    kind = given.partition(";")[0].strip().lower()
    if kind != "application/json":
        return error_response(415, f"the body must be application/json, got {kind[:60]!r}")
    # What stands before the application has read it whole.
    message = await request.receive()
    try:
        return asked.model_validate_json(message["body"])
    except ValidationError as error:
        return say_invalid(error.errors(include_url=False, include_context=False))


def answer_each(
    asked: Any, ask: Callable[[ServedRun, Any], Any], served: ServedRun, deadline: Deadline
) -> Any:
    """Return the answer to a question, or those to several, which end when nobody waits any more.

    They are asked one by one, so that each has the digits that it has alone.
    """
    if asked.queries is None:
        return ask(served, asked)
    answers = []
    for place, query in enumerate(asked.queries):
        deadline.check()
        try:
            answers.append(ask(served, query))
        except DatabaseError:
            raise
        except UnknownNameError as error:
            raise UnknownNameError(f"queries[{place}]: {error}", error.suggestions) from error
        except ValueError as error:
            raise ValueError(f"queries[{place}]: {error}") from error
    return {"answers": answers}
