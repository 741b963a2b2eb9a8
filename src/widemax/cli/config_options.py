"""Options for every setting of a run, made from the declaration of ``Config``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from widemax.cli.completion import one_of
from widemax.runs.config.config import settings
from widemax.runs.config.resolved import flag_of, read_config, show
from widemax.runs.config.settings import Setting

RESOLVED = "resolved"
"""The parameter of a verb that the options fill."""

_FILE = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A TOML file of settings; flags win over it."),
]
_PRINT = Annotated[
    bool,
    typer.Option("--print-config", help="Print every setting, where it came from, and stop."),
]
_JSON = Annotated[bool, typer.Option("--json", help="With --print-config: print it as JSON.")]


def with_config_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Replace a verb's parameter ``resolved`` by an option for every setting of a run.

    The verb is then called with the ``ResolvedConfig`` of ``--config`` and the flags, unless
    ``--print-config`` asks to see it only.

    >>> @with_config_options
    ... def train(data: str, *, resolved) -> None:
    ...     print(data, resolved.config.epochs, resolved.origins["epochs"])
    >>> train(data="clicks.csv", epochs=3)
    clicks.csv 3 flag
    >>> inspect.signature(train).parameters["epochs"].default is None
    True
    """
    signature = inspect.signature(verb, eval_str=True)
    own = {name: each for name, each in signature.parameters.items() if name != RESOLVED}
    if len(own) == len(signature.parameters):
        raise ValueError(f"{verb.__name__} must have a parameter named {RESOLVED!r}")
    added = _parameters()
    for name in own:
        if name in added:
            raise ValueError(f"{verb.__name__} must not declare {name!r}: the settings have it")

    @wraps(verb)
    def command(
        *, config: Path | None = None, print_config: bool = False, json: bool = False, **given: Any
    ) -> None:
        if json and not print_config:
            raise ValueError("--json says how --print-config prints: give both")
        flags = {name: given.pop(name, None) for name in settings()}
        resolved = read_config(config, flags)
        if print_config:
            typer.echo(show(resolved, as_json=json))
            raise typer.Exit
        verb(**given, **{RESOLVED: resolved})

    parameters = [*own.values(), *added.values()]
    # Typer reads the signature for order and defaults, the annotations for the types.
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _parameters() -> dict[str, inspect.Parameter]:
    options = {name: _option(name, setting) for name, setting in settings().items()}
    annotations: dict[str, Any] = {
        "config": _FILE,
        "print_config": _PRINT,
        "json": _JSON,
        **options,
    }
    return {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            # None is "not given"; the switches of this file are simply off.
            default=False if get_args(annotation)[0] is bool else None,
            annotation=annotation,
        )
        for name, annotation in annotations.items()
    }


def _option(name: str, setting: Setting) -> Any:
    flag = flag_of(name)
    names = f"{flag}/{flag.replace('--', '--no-', 1)}" if setting.kind is bool else flag
    sentences = [setting.help]
    if setting.choices:
        sentences.append(setting.limits_sentence)
    if setting.default != "":
        sentences.append(f"Default: {setting.default}.")
    return Annotated[
        setting.kind | None,
        typer.Option(
            names,
            help=" ".join(sentences),
            rich_help_panel=setting.group,
            autocompletion=one_of(setting.choices) if setting.choices else None,
        ),
    ]
