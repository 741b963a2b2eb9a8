"""What a method says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from widemax.declarations.options import Option, Value


@dataclass(frozen=True)
class Need:
    """What another part of a configuration must be for a method to work.

    >>> Need("sampler", trait="draws", why="it draws as many classes as it needs").to_json()
    {'slot': 'sampler', 'trait': 'draws', 'why': 'it draws as many classes as it needs'}
    """

    slot: str
    """The part it is about: model, trainer, head, scorer, sampler or objective."""
    trait: str = ""
    """What that part must declare of itself."""
    names: tuple[str, ...] = ()
    """Or which ones of that kind will do."""
    why: str = ""
    """The reason, to follow the method's name in a message."""

    def is_met(self, part: Declaration) -> bool:
        """Return whether a part will do."""
        return part.name in self.names or (bool(self.trait) and self.trait in part.traits)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that say something."""
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """One method: its name, where it lives, its options, and what it goes with."""

    kind: str
    """sampler, objective, scorer, head, model, trainer, source, format or export."""
    name: str
    """What it is called on the command line and in files."""
    help: str
    """One sentence: what it is."""
    lives: str = ""
    """``module:name`` of the code, imported when it is used."""
    options: tuple[Option, ...] = ()
    """What can be set of it."""
    slots: tuple[str, ...] = ()
    """The kinds of parts that it is put together from, each a setting of its own."""
    traits: tuple[str, ...] = ()
    """What others may need of it."""
    needs: tuple[Need, ...] = ()
    """What it needs of others."""
    fixed: Mapping[str, Value] = field(default_factory=dict)
    """Settings of other parts that can have one value only beside it."""
    usual: Mapping[str, Value] = field(default_factory=dict)
    """What it is usually trained with, where that differs from the defaults."""
    usual_with: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """The same, by the name of another part that is chosen with it, or of a model "unordered"."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields that say something, as ``declared.json`` keeps them."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["options"] = [option.to_json() for option in self.options]
        fields["needs"] = [need.to_json() for need in self.needs]
        fields["usual_with"] = {name: dict(usual) for name, usual in self.usual_with.items()}
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Declaration:
        """Return the declaration that ``to_json`` described."""
        options = tuple(map(Option.from_json, fields.get("options", ())))
        needs = tuple(
            Need(**{**need, "names": tuple(need.get("names", ()))})
            for need in fields.get("needs", ())
        )
        lists = {name: tuple(fields.get(name, ())) for name in ("slots", "traits")}
        return cls(**{**fields, **lists, "options": options, "needs": needs})
