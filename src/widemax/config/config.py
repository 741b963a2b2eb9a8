"""The configuration of a run: the methods it is put together from, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from widemax.config.fitting import still_meant
from widemax.config.mixing import Part
from widemax.config.resolution import resolve
from widemax.declarations import Declaration, Option, Value, find, names


class Config:
    """Every setting of a training run: frozen, and valid once it exists.

    The model, head, sampler and so on are named; each brings settings of its own, with the values
    it is usually trained with. A setting that none of the chosen methods has is refused. The
    settings are attributes, and the command line's flags: ``learning_rate`` is
    ``--learning-rate``. ``source`` says whether the data are a "log" or a "text", or names their
    format, where that is known already.

    >>> Config(learning_rate=1).learning_rate
    1.0
    >>> Config(model="mind").num_interests
    4
    >>> Config(model="sdm", num_interests=4)
    Traceback (most recent call last):
    ValueError: num_interests has no effect with model = 'sdm': it needs model = mind
    >>> Config(sampler="unigrm")
    Traceback (most recent call last):
    ValueError: sampler must be one of ... got the text 'unigrm'; did you mean 'unigram'?
    """

    def __init__(self, *, source: str | None = None, **given: Value) -> None:
        own = self.__dict__
        own["_data"] = source
        form = find("format", source) if source in names("format") else None
        source = source if form is None else "log"
        resolution = own["_resolution"] = resolve(given, source, form.traits if form else ())
        own["source"], own["given"] = source, {name: resolution.values[name] for name in given}
        if "model" in given:
            own["given"]["model"] = given["model"]
        values = resolution.values
        if 0 < values.get("steps", 0) < values.get("warmup_steps", 0):  # type: ignore[operator]
            raise ValueError(
                f"warmup_steps must be at most steps = {values['steps']:,}, "
                f"got {values['warmup_steps']:,}"
            )

    @property
    def values(self) -> Mapping[str, Value]:
        """Every setting of the chosen methods and of the data, by name, heading by heading."""
        return MappingProxyType(self._resolution.values)

    @property
    def options(self) -> Mapping[str, Option]:
        """The declarations of these settings."""
        return MappingProxyType(self._resolution.options)

    @property
    def origins(self) -> Mapping[str, str]:
        """Where each value comes from: "given", "default", "usual with" or "because" ..."""
        return MappingProxyType(self._resolution.origins)

    @property
    def parts(self) -> Mapping[str, Declaration]:
        """The method in each slot: model, trainer, head, scorer, sampler, objective."""
        return MappingProxyType(self._resolution.parts)

    @property
    def mixed(self) -> tuple[tuple[Part, Declaration], ...]:
        """The methods of a mixture, with their weights."""
        found: tuple[tuple[Part, Declaration], ...] = self._resolution.mixed
        return found

    def has(self, name: str) -> bool:
        """Return whether the chosen methods have a setting, be it switched off by another one.

        >>> Config(head="full").has("num_samples")
        False
        """
        return name in self.values

    def get(self, name: str, default: Value) -> Value:
        """Return a setting, or ``default`` where none of the chosen methods has it."""
        return self.values.get(name, default)

    def changed(self, **given: Value) -> Config:
        """Return the configuration with other values for some settings.

        What a new value leaves without effect goes with the old one, as does the old one of two
        lengths.

        >>> Config(epochs=3).changed(seed=1).epochs
        3
        >>> Config(epochs=3, seed=1).changed(steps=500)
        Config(seed=1, steps=500)
        >>> Config(steps=500, seed=1).changed(epochs=3)
        Config(seed=1, epochs=3)
        """
        kept = still_meant(self.given, given, self.options)
        return Config(source=self._data, **kept | given)

    def for_source(self, source: str) -> Config:
        """Return the configuration for a "log", a "text" or a format, its model chosen.

        >>> Config().for_source("text").model
        'cbow'
        >>> Config(model="youtube-dnn").for_source("lists").targets_per_row
        8
        """
        return Config(source=source, **self.given)

    def __getattr__(self, name: str) -> Any:
        resolution = self.__dict__.get("_resolution")
        if resolution is None or name not in resolution.values:
            raise AttributeError(f"{name!r} is not a setting of this configuration")
        return resolution.values[name]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a configuration is frozen: use changed({name}=...)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and dict(self.values) == dict(other.values)

    def __hash__(self) -> int:
        return hash(frozenset(self.values.items()))

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self.given.items())})"
