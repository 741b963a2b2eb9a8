"""TOML: reading a file that nobody vouches for, writing one with its help beside it."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path

from widemax.config.config import Config
from widemax.config.fitting import switched_off
from widemax.config.mixing import parts_text
from widemax.config.resolution import check_key
from widemax.config.settings import all_options
from widemax.declarations import Option, Value, shortened

MAX_BYTES = 2**17
"""Longest file that is read: several times what ``to_toml`` writes."""

MAX_LINE = 4100
"""Longest line: room for a text of escapes only, and no more.

The parser takes the parts of a dotted key times the lines below it, so that a file of a megabyte
could hold it up for an hour; within both limits it is done in seconds.
"""

_WIDTH = 100


def read_toml(path: Path) -> dict[str, Value]:
    """Return the settings of a file, each checked; an error names file, key, value and limit."""
    values: dict[str, Value] = {}
    known = all_options()
    for name, value in _parse(path).items():
        try:
            values[name] = _check(name, value, known)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return values


def to_toml(config: Config) -> str:
    r"""Return a configuration as a file: every value, its help and its limits as comments.

    What is written reads back equal. Settings that others switch off are left out.

    >>> print(to_toml(Config(user_column='tab\there "x"')).split("by its usual names.")[1])
    <BLANKLINE>
    # A text of at most 400 characters.
    user_column = "tab\u0009here \"x\""
    <BLANKLINE>
    # Column of the items; empty: found
    """
    blocks = ["# The configuration of a widemax run. Flags override what stands here.\n"]
    tables, group = [], ""
    for name, option in config.options.items():
        if switched_off(option, config.values):
            continue
        if option.parts:
            tables.append(_tables(config, name, option))
            continue
        if option.group != group:
            group = option.group
            blocks.append(f"# --- {group} ---\n")
        comment = _comment(option.help, option.limits_sentence)
        blocks.append(f"{comment}\n{name} = {toml_value(config.values[name])}\n")
    # Tables come last: what follows their heading would belong to them.
    return "\n".join(blocks + tables)


def _tables(config: Config, name: str, option: Option) -> str:
    lines = [_comment(option.help)]
    for part, _ in config.mixed:
        values = {option.parts: part.name, "weight": part.weight, **dict(part.options)}
        lines += [f"[[{name}]]", *(f"{key} = {toml_value(each)}" for key, each in values.items())]
    return "\n".join(lines) + "\n"


def toml_value(value: Value) -> str:
    r"""Return a value as TOML writes it.

    >>> print(toml_value(True), toml_value(1e-05), toml_value('\x1b[31m"é"'))
    true 1e-05 "\u001b[31m\"é\""
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{escaped(value)}"'
    return repr(value)


def escaped(text: str) -> str:
    """Return ``text`` with all escaped that TOML forbids or a terminal would obey."""
    return "".join(map(_escaped_character, text))


def _escaped_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    # Control characters, and those that reorder or hide their neighbours.
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _comment(*sentences: str) -> str:
    # No name is broken at its hyphen.
    return "\n".join(
        f"# {line}"
        for sentence in sentences
        for line in textwrap.wrap(sentence, _WIDTH - 2, break_on_hyphens=False)
    )


def _parse(path: Path) -> dict[str, object]:
    text = _read_bounded(path)
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_LINE:
            raise ValueError(
                f"{path}, line {number:,}: a line may have {MAX_LINE:,} characters, "
                f"this one has {len(line):,}"
            )
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(f"{path} is not a configuration: it is nested without end") from error
    # Mostly a TOMLDecodeError; Python's own ValueError for a number of thousands of digits.
    except ValueError as error:
        reason = str(error).replace("Cannot overwrite a value", "a setting stands there twice")
        raise ValueError(f"{path} is not valid TOML: {shortened(reason, 200)}") from error


def _read_bounded(path: Path) -> str:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} is no regular file: a device, a pipe or a socket")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path} is no configuration: it has more than {MAX_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line:,}: not UTF-8 ({error.reason})") from error


def _check(name: str, value: object, known: Mapping[str, Option]) -> Value:
    option = known.get(name)
    if option is not None and option.parts and not isinstance(value, str):
        return parts_text(option.parts, name, value)
    # Before the name: "[training]" is no misspelt setting but a heading too many.
    if isinstance(value, dict):
        raise ValueError(
            f"{shortened(repr(name))} is a table; write its settings at the top level, "
            "without a heading or a dot"
        )
    check_key(name, known)
    return known[name].check(name, value)
