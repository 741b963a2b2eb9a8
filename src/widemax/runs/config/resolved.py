"""A configuration put together from defaults, a file and flags, and where each value came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widemax.runs.config.config import Config, check_key, settings
from widemax.runs.config.presets import preset_for
from widemax.runs.config.settings import Value
from widemax.runs.config.toml import escaped, read_toml, toml_value
from widemax.runs.config.unused import unused_because

DEFAULT = "default"
MODEL_DEFAULT = "default of the model"
FLAG = "flag"


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig:
    """A configuration, and for each setting where its value came from.

    Formula: none.

    Shapes: ``origins`` has one entry a setting: "default", "default of the model", "file NAME" or
    "flag"; ``notes`` has a sentence for each value of the file that has no effect.

    Cost: none.

    Reference: none.

    Use when: a user should see why a value is what it is. Avoid when: only the values matter
    (``Config``).

    >>> resolved = read_config(None, {"seed": 7})
    >>> resolved.config.seed, resolved.origins["seed"], resolved.origins["epochs"]
    (7, 'flag', 'default')
    """

    config: Config
    origins: Mapping[str, str]
    notes: tuple[str, ...] = ()


def read_config(path: Path | None, flags: Mapping[str, Any]) -> ResolvedConfig:
    """Put a configuration together: flags win over the file, the file over the defaults.

    Formula: value = the flag if it is given and not None, else the file's, else that of the model
    (``PRESETS``), else the default.
    A flag without effect, such as the samples of a head that draws none, is an error. A file may
    serve several heads: what has no effect there, and is not the default, is noted.

    Shapes: the file is flat TOML, at most 32 KB; its keys and those of ``flags`` are the field
    names of ``Config``.

    Cost: a few milliseconds; nothing that is read can run.

    Reference: TOML 1.0.

    Use when: a command starts a run. Avoid when: all values are at hand in Python (``Config``).

    >>> read_config(None, {"epochs": 3, "seed": None}).config.epochs
    3
    >>> read_config(None, {"epochs": 0})
    Traceback (most recent call last):
    ValueError: --epochs must be a whole number between 1 and 1,000,000, got 0
    >>> read_config(None, {"head": "full", "num_samples": 100})
    Traceback (most recent call last):
    ValueError: --num-samples has no effect with head = 'full': it needs head = sampled or ...
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(settings(), DEFAULT)
    if path is not None:
        values = dict(read_toml(path))
        origins |= dict.fromkeys(values, f"file {path}")
    given = {name: _check_flag(name, flag) for name, flag in flags.items() if flag is not None}
    preset = preset_for(values | given)
    origins |= {name: MODEL_DEFAULT for name in preset if name not in values}
    config = Config(**preset | values | given)
    for name in given:
        if reason := unused_because(config, name):
            raise ValueError(f"{flag_of(name)} {reason}")
    return ResolvedConfig(
        config=config,
        origins=origins | dict.fromkeys(given, FLAG),
        notes=_notes(path, config, [name for name in values if name not in given]),
    )


def _notes(path: Path | None, config: Config, names: Iterable[str]) -> tuple[str, ...]:
    """Return what a file says in vain; a file of all settings has the defaults of unused ones."""
    unused = {
        name: unused_because(config, name)
        for name in names
        if getattr(config, name) != settings()[name].default
    }
    return tuple(f"{path}: {name} {reason}" for name, reason in unused.items() if reason)


def flag_of(name: str) -> str:
    """Return the flag of a setting.

    >>> flag_of("learning_rate")
    '--learning-rate'
    """
    return "--" + name.replace("_", "-")


def show(resolved: ResolvedConfig, *, as_json: bool = False) -> str:
    """Return every value and where it came from, as text for people or for programs.

    Formula: none.

    Shapes: one line a setting, which is TOML: the origin is a comment, so that the text is itself
    a configuration file. As JSON: {name: {"value": …, "origin": …}}.

    Cost: a fraction of a millisecond.

    Reference: none.

    Use when: ``--print-config`` is asked for. Avoid when: the file is kept for others to read
    (``to_toml`` explains each setting).

    >>> lines = show(read_config(None, {"seed": 7, "model": "n-gram"})).splitlines()
    >>> for name in ("order", "min_count", "seed"):
    ...     print(*(line for line in lines if line.startswith(name)))
    order            = 5                     # default
    min_count        = 2                     # default of the model
    seed             = 7                     # flag
    """
    rows = {name: (getattr(resolved.config, name), resolved.origins[name]) for name in settings()}
    if as_json:
        entries = {
            name: {"value": value, "origin": origin} for name, (value, origin) in rows.items()
        }
        return json.dumps(entries, indent=1)
    values = {name: toml_value(value) for name, (value, _) in rows.items()}
    name_width, value_width = max(map(len, rows)), max(map(len, values.values()))
    return "\n".join(
        f"{name:<{name_width}} = {values[name]:<{value_width}} # {escaped(origin)}"
        for name, (_, origin) in rows.items()
    )


def _check_flag(name: str, value: object) -> Value:
    return check_key(name).check(flag_of(name), value)
