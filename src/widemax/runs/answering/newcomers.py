"""Somebody of whom only features are known: a model that reads them in place of its users'."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TypeAlias, TypeVar

import polars as pl
from torch import nn

from widemax.data.features import FeatureTable, FittedField
from widemax.declarations.options import shortened
from widemax.encoders.features import FeatureEncoder
from widemax.models import Model
from widemax.vocabulary.spelling import UnknownNameError, near_or_some, nearest_spellings

FeatureValue: TypeAlias = str | float | Sequence[str]

_KEY = "somebody new"
_MOST_COMPARED = 1000

_M = TypeVar("_M", bound=nn.Module)


def encode_newcomer(
    users: FeatureTable | None, features: Mapping[str, FeatureValue]
) -> FeatureTable:
    """Return a table of one row, of somebody new, read as those of the users were.

    What is not given is unknown; a feature or a name that the users do not have is an error.

    >>> ages = pl.DataFrame({"id": ["ann", "bob"], "age": [20, 40], "likes": ["tea", "rum"]})
    >>> users = FeatureTable.fit(ages, ["ann", "bob"], key_column="id")
    >>> encode_newcomer(users, {"age": 40}).numbers.tolist()
    [[1.0]]
    """
    if users is None:
        raise ValueError(
            "features are for a run whose model reads those of users (user_features): this one "
            "knows people by their history alone"
        )
    fields = {each.field.name: each for each in users.schema.fields}
    for name in features:
        if name not in fields:
            raise UnknownNameError(
                f"{shortened(repr(name))} is no feature of the users of the run: there are "
                f"{', '.join(map(repr, fields))}",
                nearest_spellings(name, list(fields)),
            )
    columns = {name: _cell(each, features.get(name)) for name, each in fields.items()}
    frame = pl.DataFrame({_key_name(fields): [_KEY], **columns})
    return FeatureTable.encode(users.schema, frame, [_KEY], key_column=_key_name(fields))


def model_for(model: Model, users: FeatureTable, newcomer: FeatureTable) -> Model:
    """Return a model that shares all weights, and whose row 0 of the users is somebody new.

    The model itself stays as it is, so that others may ask it at the same time.
    """
    own = {
        name: each
        for name, each in model.named_modules()
        if isinstance(each, FeatureEncoder) and each.schema is users.schema
    }
    if not own:
        raise ValueError("features have no effect: the model of the run does not read them")
    for name, each in own.items():
        encoder = _shallow(each)
        encoder.set_table(newcomer)
        model = _with_module(model, name.split("."), encoder)
    return model


def _with_module(module: _M, path: list[str], replacement: nn.Module) -> _M:
    """Return a module with another one at the end of a path of names."""
    changed = _shallow(module)
    first, *rest = path
    inner = getattr(module, first)
    changed._modules[first] = _with_module(inner, rest, replacement) if rest else replacement
    return changed


def _shallow(module: _M) -> _M:
    """Return a module of its own that shares parameters, buffers and the modules in it."""
    changed = copy(module)
    changed._modules, changed._buffers = dict(module._modules), dict(module._buffers)
    changed._non_persistent_buffers_set = set(module._non_persistent_buffers_set)
    return changed


def _key_name(fields: Mapping[str, FittedField]) -> str:
    """Return a name of a column that no feature has."""
    return max(fields, key=len) + "'s key"


def _cell(fitted: FittedField, value: FeatureValue | None) -> pl.Series:
    name, kind, values = fitted.field.name, fitted.field.kind, fitted.values
    if value is None:
        dtype = pl.Float64() if kind == "numeric" else pl.String()
        return pl.Series([None], dtype=dtype)
    several = [value] if isinstance(value, str | int | float) else list(value)
    if kind == "numeric":
        try:
            (number,) = map(float, several)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"features[{name!r}] must be a number, got {shortened(repr(value))}")
        return pl.Series([number])
    assert values is not None
    if kind == "categorical" and len(several) != 1:
        raise ValueError(f"features[{name!r}] must be one name, got {shortened(repr(value))}")
    if kind == "tokens" and isinstance(value, str):
        cut = None if fitted.field.separator == " " else fitted.field.separator
        several = [each.strip() for each in value.split(cut)]
    texts = [_plain(each) for each in several]
    if not any(text in values for text in texts):
        known = values.keys.head(_MOST_COMPARED).to_list()
        near = nearest_spellings(texts[0] if texts else "", known)
        raise UnknownNameError(
            f"features[{name!r}] is {shortened(repr(value))}, which is none of its "
            f"{len(values):,} values{near_or_some(near, known)}",
            near,
        )
    return pl.Series([texts]) if kind == "tokens" else pl.Series(texts)


def _plain(value: object) -> str:
    """Return a text as the file of the users has it: whole numbers without a fraction."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
