"""The decorators by which a method declares itself, one for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from widemax.declarations.declaration import Declaration, Need
from widemax.declarations.options import Option, Value
from widemax.declarations.table import register

T = TypeVar("T", bound=Callable[..., Any])


class Declarer:
    """Declares methods of one kind, as a decorator.

    The method's sentence in ``--help`` is the first line of its docstring unless ``help`` is given.
    Called on a class or a function, it returns it unchanged.

    >>> from widemax.declarations import find
    >>> find("sampler", "uniform").lives
    'widemax.sampling.uniform:UniformSampler'
    """

    def __init__(self, kind: str, slots: tuple[str, ...] = ()) -> None:
        self.kind, self.slots = kind, slots

    def __call__(
        self,
        name: str,
        *,
        help: str = "",
        options: Sequence[Option] = (),
        slots: Sequence[str] | None = None,
        traits: Sequence[str] = (),
        needs: Sequence[Need] = (),
        fixed: Mapping[str, Value] | None = None,
        usual: Mapping[str, Value] | None = None,
        usual_with: Mapping[str, Mapping[str, Value]] | None = None,
    ) -> Callable[[T], T]:
        """Return the decorator of a method with this name; see ``Declaration`` for the rest."""

        def declare(thing: T) -> T:
            register(
                Declaration(
                    kind=self.kind,
                    name=name,
                    help=help or _first_line(thing),
                    lives=f"{thing.__module__}:{thing.__qualname__}",
                    options=tuple(options),
                    slots=self.slots if slots is None else tuple(slots),
                    traits=tuple(traits),
                    needs=tuple(needs),
                    fixed=dict(fixed or {}),
                    usual=dict(usual or {}),
                    usual_with=dict(usual_with or {}),
                ),
                thing,
            )
            return thing

        return declare


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]


class Declare:
    """A decorator for each kind of method: ``declare.sampler``, ``declare.model`` and so on."""

    sampler = Declarer("sampler")
    objective = Declarer("objective")
    scorer = Declarer("scorer")
    head = Declarer("head", slots=("scorer",))
    model = Declarer("model", slots=("trainer", "head"))
    trainer = Declarer("trainer")
    file_format = Declarer("format")
    export = Declarer("export")


declare = Declare()
