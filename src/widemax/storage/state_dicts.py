"""Nested state as named tensors and plain JSON, and back without a bit changed."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MAX_DEPTH = 100
"""Deepest nesting of a state; every reader of JSON has such a limit."""

# What JSON has no place for is marked by "$"; a key that starts with one gets a second.
_MAPPINGS: dict[str, type[dict[Any, Any]]] = {
    "$dict": dict,
    "$ordered": OrderedDict,
    "$counter": Counter,
}
_NOT_FINITE = ("inf", "-inf", "nan")


def flatten_state(state: Mapping[Any, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a nested state by name, and all the rest of it as plain JSON.

    ``state`` nests dicts (keys are strings or whole numbers), lists and tuples of tensors, numbers,
    strings and None, as the ``state_dict`` of every optimiser does. Each tensor is named by its
    path, such as ``state.0.exp_avg``, and none is copied. ``unflatten_state`` restores it bit for
    bit.

    >>> import torch
    >>> state = {"step": torch.tensor(3), "betas": (0.9, 0.999), "best": float("inf"), 7: None}
    >>> tensors, rest = flatten_state(state)
    >>> list(tensors), unflatten_state(tensors, rest) == state
    (['step'], True)
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"state must be a mapping, got {type(state).__name__}")
    tensors: dict[str, Tensor] = {}
    plain = state if type(state) in _MAPPINGS.values() else dict(state)
    rest: dict[str, Any] = _encode(plain, (), tensors)
    return tensors, rest


def unflatten_state(tensors: Mapping[str, Tensor], rest: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the state that ``flatten_state`` took apart, without tensors it does not name.

    >>> import torch
    >>> unflatten_state({"a": torch.tensor(1.5)}, {"rate": {"$tuple": [{"$tensor": "a"}, 2]}})
    {'rate': (tensor(1.5000), 2)}
    """
    try:
        state = _decode(rest, tensors)
    except RecursionError:
        raise ValueError(f"state must nest at most {MAX_DEPTH} deep") from None
    if not isinstance(state, dict):
        raise ValueError(f"state must be a mapping, got {type(state).__name__}")
    return state


def _encode(value: Any, path: tuple[Any, ...], tensors: dict[str, Tensor]) -> Any:
    if len(path) > MAX_DEPTH:
        raise ValueError(f"state must nest at most {MAX_DEPTH} deep, got {_name(path[:5])} …")
    from torch import Tensor  # here: what is read holds none, and does not wait for torch

    kind = type(value)
    if isinstance(value, Tensor):
        name = _name(path)
        while name in tensors:
            name += "'"  # {"a.b": tensor} and {"a": {"b": tensor}} have the same path
        tensors[name] = value
        return {"$tensor": name}
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind in (list, tuple):
        items = [_encode(item, (*path, index), tensors) for index, item in enumerate(value)]
        return items if kind is list else {"$tuple": items}
    for tag, mapping in _MAPPINGS.items():
        if kind is mapping:
            return _encode_mapping(tag, value, path, tensors)
    raise ValueError(
        f"state may hold tensors, numbers, strings, None, lists, tuples and dicts, "
        f"got {kind.__module__}.{kind.__qualname__} at {_name(path)}"
    )


def _encode_mapping(
    tag: str, value: dict[Any, Any], path: tuple[Any, ...], tensors: dict[str, Tensor]
) -> dict[str, Any]:
    for key in value:
        if type(key) not in (int, str):
            raise ValueError(
                f"keys must be strings or whole numbers, got {key!r} at {_name(path) or 'the top'}"
            )
    items = [(key, _encode(item, (*path, key), tensors)) for key, item in value.items()]
    if tag == "$dict" and all(isinstance(key, str) for key in value):
        return {f"${key}" if key.startswith("$") else key: item for key, item in items}
    return {tag: [list(item) for item in items]}


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(key) for key in path)


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        [(tag, content)] = value.items()
        if tag.startswith("$") and not tag.startswith("$$"):
            return _decode_tagged(tag, content, tensors)
    return {key.removeprefix("$"): _decode(item, tensors) for key, item in value.items()}


def _decode_tagged(tag: str, content: Any, tensors: Mapping[str, Tensor]) -> Any:
    if tag == "$tensor" and isinstance(content, str):
        if content not in tensors:
            raise ValueError(f"state names the tensor {content!r}, which is not among the tensors")
        return tensors[content]
    if tag == "$float" and content in _NOT_FINITE:
        return float(content)
    if tag == "$tuple" and isinstance(content, list):
        return tuple(_decode(content, tensors))
    if tag in _MAPPINGS and isinstance(content, list) and all(map(_is_item, content)):
        return _MAPPINGS[tag]({key: _decode(item, tensors) for key, item in content})
    raise ValueError(
        f"state holds {tag} with {str(content)[:60]!r}, which flatten_state never does"
    )


def _is_item(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and type(item[0]) in (int, str)
