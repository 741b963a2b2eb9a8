"""Options for every setting of a run, made from what the methods declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from widemax.cli.completion import one_of
from widemax.cli.durations import seconds_or_text
from widemax.cli.verb import Verb
from widemax.config import Config, ResolvedConfig, read_config
from widemax.config.resolved import read_given
from widemax.config.run_options import SLOTS
from widemax.config.settings import all_options, varying_defaults
from widemax.declarations import Option, Value

SETTINGS = "settings"
"""The parameter of a verb that the options fill."""

_FILE = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A TOML file of settings; flags win over it."),
]

FIRST = frozenset(
    [
        "model", "dimension", "head", "scorer", "sampler", "num_samples", "objective",
        "epochs", "steps", "time_budget", "batch_size", "learning_rate", "optimizer",
        "kind", "query", "where", "user_column", "item_column", "time_column",
        "weight_column", "event_column", "event_weights", "item_features", "user_features",
        "titles", "min_count", "max_history", "item_order", "tokens", "split", "validation_size",
        "test_size", "metric", "patience", "refit", "seed", "threads", "device",
    ]
)  # fmt: skip
"""The settings that ``--help`` shows where no method is named: what most people ask for."""


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        typer.echo(context.get_help())
        raise typer.Exit


_HELP_ALL = Annotated[
    bool,
    typer.Option(
        "--help-all",
        is_eager=True,
        callback=_show_all,
        help="Show every setting; --help shows the most usual ones, or with --model NAME those "
        "of a model.",
    ),
]


def with_config_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Replace a verb's parameter ``settings`` by an option for every setting of a run.

    The verb is called with the ``Settings`` of ``--config`` and the flags. What is wrong with them
    for a "text" and a "log" alike is said before.

    >>> @with_config_options
    ... def train(data: str, *, settings) -> None:
    ...     resolved = settings.resolved("log")
    ...     print(data, resolved.config.epochs, resolved.origins["epochs"])
    >>> train(data="clicks.csv", epochs=3)
    clicks.csv 3 flag
    >>> inspect.signature(train).parameters["epochs"].default is None
    True
    """
    signature = inspect.signature(verb, eval_str=True)
    own = {name: each for name, each in signature.parameters.items() if name != SETTINGS}
    if len(own) == len(signature.parameters):
        raise ValueError(f"{verb.__name__} must have a parameter named {SETTINGS!r}")
    added = _parameters()
    for name in own:
        if name in added:
            raise ValueError(f"{verb.__name__} must not declare {name!r}: the settings have it")

    @wraps(verb)
    def command(*, config: Path | None = None, help_all: bool = False, **given: Any) -> None:
        flags = {name: given.pop(name, None) for name in all_options()}

        settings = Settings(config, flags)
        # A run that is resumed has its own methods: what is given is compared with them.
        if not given.get("resume"):
            settings.resolved(None)
        verb(**given, **{SETTINGS: settings})

    parameters = [*own.values(), *added.values()]
    # Typer reads the signature for order and defaults, the annotations for the types.
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


@dataclass(frozen=True)
class Settings:
    """What ``--config`` and the flags say."""

    file: Path | None
    flags: Mapping[str, Any]

    def resolved(self, source: str | None) -> ResolvedConfig:
        """Return the configuration for a "text", a "log" or a format; None is any."""
        return read_config(self.file, self.flags, source=source)

    def given(self) -> dict[str, Value]:
        """Return what was given, whatever method it belongs to."""
        return read_given(self.file, self.flags)


class ConfigCommand(Verb):
    """A verb whose ``--help`` shows what concerns the methods named with it, or the usual."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Hide the settings that are not asked for, then parse as usual.

        Of conditions the last would win, and rows be read that another leaves out.
        """
        if sum(word.partition("=")[0] == "--where" for word in args) > 1:
            raise ValueError(
                "--where can be given once: join conditions by and, as in --where "
                '"rating >= 4 and (price < 5 or price > 9)"'
            )
        if "--help" in args:
            self._hide(dict(_methods(args)))
        return super().parse_args(ctx, args)

    def _hide(self, chosen: Mapping[str, str]) -> None:
        """Hide the settings that methods do not have; without any, all but the most usual."""
        known, config = all_options(), Config(**chosen)
        for parameter in self.params:
            if parameter.name not in known:
                continue
            shown: Any = parameter
            shown.hidden = not config.has(shown.name) if chosen else shown.name not in FIRST
            if chosen:
                shown.help = _help(known[shown.name], config.get(shown.name, ""))


def _methods(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the methods that flags name, such as ``--model mind``."""
    for number, word in enumerate(arguments):
        name, given, value = word.partition("=")
        slot = name.removeprefix("--")
        if name.startswith("--") and slot in SLOTS:
            following = arguments[number + 1] if number + 1 < len(arguments) else ""
            yield slot, value if given else following


def _parameters() -> dict[str, inspect.Parameter]:
    varying = varying_defaults()
    annotations: dict[str, Any] = {"config": _FILE, "help_all": _HELP_ALL}
    for name, option in all_options().items():
        annotations[name] = _flag(option, "depends on the model" if name in varying else "")
    return {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            # None is "not given".
            default=False if name == "help_all" else None,
            annotation=annotation,
        )
        for name, annotation in annotations.items()
    }


def _flag(option: Option, default: str) -> Any:
    flag = option.flag
    names = f"{flag}/{flag.replace('--', '--no-', 1)}" if option.kind is bool else flag
    # A flag of two names has no room for a word: it is what neither stands for.
    word = "" if option.kind is bool else option.word
    words = option.choices or ((word,) if word else ())
    either: dict[str, Any] = {}
    if word:
        kind = option.kind.__name__.upper()
        either = {"parser": _number_or_word(option.kind), "metavar": f"{kind}|{word}"}
    elif option.name == "time_budget":
        either = {"parser": seconds_or_text, "metavar": "SECONDS|10m|2h"}
    return Annotated[
        option.kind | None,
        typer.Option(
            names,
            help=_help(option, default or option.default),
            rich_help_panel=option.group,
            autocompletion=one_of(words) if words else None,
            **either,
        ),
    ]


def _number_or_word(kind: Callable[[Any], Value]) -> Callable[[str], Value]:
    """Return what reads a number; any other text is left to the option's own check."""

    def read(text: str) -> Value:
        try:
            return kind(text)
        except ValueError:
            return text

    return read


def _help(option: Option, default: Value) -> str:
    sentences = [option.help]
    if option.choices:
        sentences.append(option.limits_sentence)
    if default != "":
        shown = str(default).lower() if isinstance(default, bool) else default
        sentences.append(f"Default: {shown}.")
    return " ".join(sentences)
