"""What OpenAPI says of the paths of the server: what they take, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

Responses = dict[int | str, dict[str, Any]]

_REFERENCE = "#/components/schemas/{model}"

BINARY: Responses = {
    200: {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    }
}
"""The answers of a path that are bytes."""


def ok(model: Any) -> Responses:
    """Return the answers of a path that are a model, as FastAPI takes them."""
    return {200: {"model": model}}


def body(asked: type[BaseModel]) -> dict[str, Any]:
    """Return the body of a path, which its function reads itself."""
    schema = {"$ref": _REFERENCE.format(model=asked.__name__)}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def describe(application: FastAPI, bodies: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """Return the description of all paths, with the bodies that they take."""
    made = get_openapi(
        title=application.title,
        version=application.version,
        description=application.description,
        routes=application.routes,
    )
    parts = made["components"]["schemas"]
    for asked in bodies:
        schema = asked.model_json_schema(ref_template=_REFERENCE, mode="validation")
        parts.update(schema.pop("$defs", {}))
        parts[asked.__name__] = schema
    for path in made["paths"].values():
        for operation in path.values():
            # What FastAPI adds on its own, in another form than that of our errors.
            operation["responses"].setdefault("422", {})
    parts.pop("HTTPValidationError", None)
    parts.pop("ValidationError", None)
    return made
