"""A configuration put together from defaults, a file and flags, and where each value came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widemax.config.config import Config
from widemax.config.fitting import still_meant, switched_off
from widemax.config.mixing import parse_parts
from widemax.config.resolution import check_key
from widemax.config.settings import all_options
from widemax.config.toml import escaped, read_toml, toml_value
from widemax.declarations import Option, Value

_WIDEST = 60


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig:
    """A configuration, and for each setting where its value came from."""

    config: Config
    """The values."""
    origins: Mapping[str, str]
    """For each setting: "default", "usual with" a method, "because" ..., "file NAME" or "flag"."""
    given: frozenset[str]
    """The settings that the file or a flag gave."""


def read_config(
    path: Path | None, flags: Mapping[str, Any], *, source: str | None = None
) -> ResolvedConfig:
    """Put a configuration together: flags win over the file, the file over what is usual.

    A flag of None is one that was not given, and ``--epochs`` wins over the steps of a file, as
    ``--steps`` does over its epochs. A setting that the chosen methods do not have is
    refused, wherever it comes from.

    >>> resolved = read_config(None, {"epochs": 3, "seed": None})
    >>> resolved.config.epochs, resolved.origins["epochs"], resolved.origins["seed"]
    (3, 'flag', 'default')
    >>> read_config(None, {"epochs": 0})
    Traceback (most recent call last):
    ValueError: --epochs must be a whole number between 1 and 1,000,000, or auto, got 0
    >>> read_config(None, {"head": "full", "num_samples": 100})
    Traceback (most recent call last):
    ValueError: --num-samples has no effect with head = 'full', which has no sampler: it needs ...
    """
    in_file, given = _read_given(path, flags)
    values = {**in_file, **given}
    try:
        config = Config(source=source, **values)
    except ValueError as error:
        raise ValueError(_where(str(error), path, in_file, given)) from error
    origins = dict(config.origins)
    origins |= dict.fromkeys(in_file, f"file {path}") | dict.fromkeys(given, "flag")
    return ResolvedConfig(config=config, origins=origins, given=frozenset(values))


def read_given(path: Path | None, flags: Mapping[str, Any]) -> dict[str, Value]:
    """Return the settings that a file and flags give, whatever method they belong to.

    >>> read_given(None, {"epochs": 3, "mixture": "uniform, unigram = 2", "seed": None})
    {'epochs': 3, 'mixture': 'uniform=1, unigram=2'}
    """
    in_file, given = _read_given(path, flags)
    known, values = all_options(), {**in_file, **given}
    for name, value in values.items():
        values[name] = known[name].check(name, value)
        if kind := known[name].parts:
            # In one way of writing, so that equal mixtures are equal.
            values[name] = ", ".join(map(str, parse_parts(kind, name, str(value))))
    return values


def _read_given(
    path: Path | None, flags: Mapping[str, Any]
) -> tuple[Mapping[str, Value], dict[str, Value]]:
    known = all_options()
    given = {
        name: _check_flag(name, each, known) for name, each in flags.items() if each is not None
    }
    in_file = {} if path is None else read_toml(path)
    return still_meant(in_file, given, known), given


def _where(message: str, path: Path | None, in_file: Mapping[str, Value], flags: Any) -> str:
    """Begin a message with the flag or the file that its first word, a setting, comes from."""
    name = message.partition(" ")[0].rstrip(":")
    if name in flags:
        return all_options()[name].flag + message[len(name) :]
    return f"{path}: {message}" if name in in_file else message


def show_config(resolved: ResolvedConfig, *, as_json: bool = False) -> str:
    """Return every value and where it came from, as a configuration file or as JSON.

    >>> lines = show_config(read_config(None, {"seed": 7, "model": "n-gram"})).splitlines()
    >>> for name in ("order", "min_count", "seed"):
    ...     print(*(line for line in lines if line.startswith(name)))
    order            = 5                     # default
    min_count        = 2                     # usual with model n-gram
    seed             = 7                     # flag
    """
    config = resolved.config
    rows = {
        name: (config.values[name], resolved.origins[name])
        for name, option in config.options.items()
        if not switched_off(option, config.values)
    }
    if as_json:
        entries = {
            name: {"value": value, "origin": origin} for name, (value, origin) in rows.items()
        }
        return json.dumps(entries, indent=1)
    texts = {name: toml_value(value) for name, (value, _) in rows.items()}
    # One long value must not make every line as long: the file could not be read again.
    name_width = max(map(len, rows))
    value_width = min(_WIDEST, max(map(len, texts.values())))
    return "\n".join(
        f"{name:<{name_width}} = {texts[name]:<{value_width}} # {escaped(origin)}"
        for name, (_, origin) in rows.items()
    )


def _check_flag(name: str, value: object, known: Mapping[str, Option]) -> Value:
    check_key(name, known)
    return known[name].check(known[name].flag, value)
