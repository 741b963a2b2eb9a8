"""The table of all declared methods: read without torch, grown by whoever declares another one."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from keyword import iskeyword
from pathlib import Path
from typing import Any
from zlib import crc32

from widemax.declarations.declaration import Declaration
from widemax.declarations.options import PLUGIN_HINT, Option, nearest, shown

FILE = Path(__file__).with_name("declared.json")
"""What ``python -m widemax.declarations`` writes: the declarations of the package itself."""

PLUGINS = "widemax.plugins"
"""The group of entry points by which an installed package brings methods of its own."""

_PACKAGE = "widemax."
_METHOD_NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")
_OPTION_NAME = re.compile(r"[a-z][a-z0-9_]*")
_live: dict[tuple[str, str], tuple[Declaration, Any]] = {}
_reserved: set[str] = set()
_plugins: list[str] = []


def register(declaration: Declaration, thing: Any) -> None:
    """Add a method to the table; what the package has already cannot be declared by another."""
    _check_name(declaration)
    key = (declaration.kind, declaration.name)
    other = _known_to(declaration).get(key)
    if other is not None and other.lives != declaration.lives:
        raise ValueError(
            f"{declaration.kind} {declaration.name!r} of {declaration.lives} is declared by "
            f"{other.lives} already: choose another name"
        )
    _check_options(declaration)
    _live[key] = (declaration, thing)


def reserve_names(taken: Iterable[str]) -> None:
    """Keep names of settings from the methods: none can declare an option that is called so."""
    _reserved.update(taken)


def declared(kind: str) -> Mapping[str, Declaration]:
    """Return the methods of a kind by name, in alphabetical order.

    >>> list(declared("sampler"))[:2]
    ['adaptive-n-gram', 'all']
    """
    own = {name: each for (its_kind, name), each in _stored().items() if its_kind == kind}
    live = {name: each for (its_kind, name), (each, _) in _live.items() if its_kind == kind}
    return dict(sorted((own | live).items()))


def names(kind: str) -> tuple[str, ...]:
    """Return the names of the methods of a kind.

    >>> "uniform" in names("sampler")
    True
    """
    return tuple(declared(kind))


def find(kind: str, name: object, *, argument: str = "") -> Declaration:
    """Return a method; an error names the nearest one, and the argument if it is not the kind.

    >>> find("sampler", "unigrm")
    Traceback (most recent call last):
    ValueError: sampler must be one of ... got the text 'unigrm'; did you mean 'unigram'?
    """
    found = declared(kind).get(name) if isinstance(name, str) else None
    if found is None:
        load_installed_plugins()
        found = declared(kind).get(name) if isinstance(name, str) else None
    if found is None:
        known = names(kind)
        hint = nearest(name, known) or PLUGIN_HINT
        raise ValueError(
            f"{argument or kind} must be one of {', '.join(known)}, got {shown(name)}{hint}"
        )
    return found


def load(declaration: Declaration) -> Any:
    """Return the code of a method, imported now if it was not before."""
    key = (declaration.kind, declaration.name)
    if key not in _live:
        import_module(declaration.lives.partition(":")[0])
    live, thing = _live[key]
    if _stored().get(key, live) != live:
        raise ValueError(
            f"{declaration.kind} {declaration.name!r} is declared otherwise in {FILE.name} than in "
            f"{live.lives}: run python -m widemax.declarations"
        )
    return thing


def declaration_of(thing: Any) -> Declaration:
    """Return what a class or a function has declared of itself."""
    for declaration, its in _live.values():
        if its is thing:
            return declaration
    raise ValueError(f"{thing.__name__} has no declaration: see widemax.declarations.declare")


def load_plugin(name: str) -> None:
    """Import a module, or a file of Python, whose methods are then known by name.

    >>> load_plugin("no_such_module")
    Traceback (most recent call last):
    ValueError: plug-in 'no_such_module' cannot be imported: No module named 'no_such_module'
    """
    try:
        module = _import_file(Path(name)) if name.endswith(".py") else import_module(name).__name__
    # Whatever the code of somebody else raises: a syntax error, a name that is taken, an exit.
    except (Exception, SystemExit) as error:
        raise ValueError(f"plug-in {name!r} cannot be imported: {_about(error)}") from error
    homes = (each.lives.partition(":")[0] for each, _ in _live.values())
    if not any(home == module or home.startswith(f"{module}.") for home in homes):
        raise ValueError(f"plug-in {name!r} declares no method: see widemax.declarations.declare")
    if name not in _plugins:
        _plugins.append(name)


def loaded_plugins() -> tuple[str, ...]:
    """Return the plug-ins that were named, in their order; installed ones need not be named."""
    installed = {point.value for point in entry_points(group=PLUGINS)}
    return tuple(name for name in _plugins if name not in installed)


@cache
def load_installed_plugins() -> None:
    """Import the plug-ins of all installed packages, once."""
    for point in entry_points(group=PLUGINS):
        load_plugin(point.value)


def _about(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg} in line {error.lineno}"
    if isinstance(error, ImportError | ValueError):
        return str(error)
    return f"it ends with {type(error).__name__}: {error}"


def _import_file(path: Path) -> str:
    """Import a file of Python, and return the name of its module."""
    path = path.resolve()
    # With a number, because files in two folders may have one name.
    name = f"widemax_plugin_{path.stem}_{crc32(str(path).encode()):08x}"
    if name in sys.modules:
        return name
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"{path} is not a file of Python")
    sys.modules[name] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return name


@cache
def _stored() -> Mapping[tuple[str, str], Declaration]:
    if not FILE.exists():
        return {}
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    return {(row["kind"], row["name"]): Declaration.from_json(row) for row in rows}


def own_declarations() -> list[Declaration]:
    """Return what the modules of the package that are imported by now have declared, sorted."""
    found = [each for each, _ in _live.values() if each.lives.startswith(_PACKAGE)]
    return sorted(found, key=lambda each: (each.kind, each.name))


def _check_name(declaration: Declaration) -> None:
    if not isinstance(declaration.name, str) or not _METHOD_NAME.fullmatch(declaration.name):
        raise ValueError(
            f"the name of a {declaration.kind} must be small letters and digits in words joined by "
            f"hyphens, such as 'my-own', got {shown(declaration.name)}"
        )


def _check_options(declaration: Declaration) -> None:
    """Raise if an option cannot be set, or is that of another method with another meaning.

    Several methods may share an option: on the command line it is one flag.
    """
    seen: set[str] = set()
    for option in declaration.options:
        if wrong := _fault(option, seen):
            raise ValueError(
                f"{declaration.kind} {declaration.name!r} declares {shown(option.name)} as an "
                f"option: {wrong}"
            )
        seen.add(option.name)
        for other in _known_to(declaration).values():
            for known in other.options:
                if known.name == option.name and _meaning(known) != _meaning(option):
                    raise ValueError(
                        f"{declaration.kind} {declaration.name!r} declares {option.name!r} "
                        f"otherwise than {other.kind} {other.name!r}: share one Option, or choose "
                        "another name"
                    )


def _fault(option: Option, seen: set[str]) -> str:
    """Return what is wrong with an option of a declaration; empty: nothing."""
    if not isinstance(option.name, str) or not _OPTION_NAME.fullmatch(option.name):
        return "its name must be small letters, digits and underscores"
    if iskeyword(option.name):
        return "that is a word of Python"
    if option.name in _reserved:
        return "that name is taken by the command line"
    if option.name in seen:
        return "it is declared twice"
    if option.kind not in (bool, int, float, str):
        return "its default must be true or false, a number or a text"
    try:
        option.check(option.name, option.default)
    except ValueError as error:
        return f"its default does not keep to its limits (least, most, choices): {error}"
    return ""


def _known_to(declaration: Declaration) -> dict[tuple[str, str], Declaration]:
    """Return what a declaration must agree with.

    The package itself may be newer than its ``declared.json``, others must agree with that too.
    """
    live = {key: each for key, (each, _) in _live.items()}
    of_the_package = not declaration.lives or declaration.lives.startswith(_PACKAGE)
    return live if of_the_package else {**_stored(), **live}


def _meaning(option: Option) -> tuple[object, ...]:
    return (option.kind, option.least, option.most, option.choices, option.parts)
