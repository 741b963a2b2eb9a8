"""Who takes part in a comparison: output layers that fit the same model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from widemax.config import Config
from widemax.config.run_options import SLOTS
from widemax.declarations import Value, find

SAMPLED = "sampled"
COMPARED = ("head", "sampler", "objective")
"""The slots in which contenders differ."""

USUAL: tuple[Mapping[str, str], ...] = (
    {"head": "full"},
    {"head": SAMPLED, "sampler": "log-uniform", "objective": "sampled-softmax"},
    {"head": SAMPLED, "sampler": "unigram", "objective": "sampled-softmax"},
    {"head": SAMPLED, "sampler": "uniform", "objective": "sampled-softmax"},
    {"head": SAMPLED, "sampler": "log-uniform", "objective": "corrected-log-q"},
    {"head": SAMPLED, "sampler": "in-batch", "objective": "sampled-softmax"},
    {"head": SAMPLED, "sampler": "log-uniform", "objective": "nce"},
    {"head": SAMPLED, "sampler": "unigram", "objective": "negative-sampling"},
    {"head": "hierarchical"},
    {"head": "adaptive"},
)
"""What is compared unless heads, samplers or objectives are named."""


class Contender(NamedTuple):
    """One output layer: its name, and the settings that make it.

    >>> Contender("full", {"head": "full"}).name
    'full'
    """

    name: str
    settings: Mapping[str, Value]


class Refused(NamedTuple):
    """A combination that cannot be trained, and why."""

    name: str
    reason: str


def contenders_of(
    given: Mapping[str, Value],
    source: str,
    *,
    heads: Sequence[str] = (),
    samplers: Sequence[str] = (),
    objectives: Sequence[str] = (),
) -> tuple[list[Contender], list[Refused]]:
    """Return the output layers to compare behind one model, and those refused.

    Every head that is named is taken with every sampler and objective that is named, where it has
    them; without names the usual ones are taken. ``given`` are settings for all that have them.

    >>> found, refused = contenders_of({}, "log", heads=["full", "adaptive"])
    >>> [each.name for each in found], refused
    (['full', 'adaptive'], [])
    >>> found, _ = contenders_of({"num_samples": 64}, "log", objectives=["nce", "info-nce"])
    >>> [each.name for each in found]
    ['nce, unigram', 'info-nce, unigram']
    >>> contenders_of({"num_samples": 64}, "log", heads=["full"])
    Traceback (most recent call last):
    ValueError: num_samples has no effect with any of full
    """
    for kind, named in zip(COMPARED, (heads, samplers, objectives), strict=True):
        for name in named:
            find(kind, name, argument=f"{kind}s")
    base = Config(source=source, **given)
    found: dict[str, Contender] = {}
    refused = []
    for methods in _combinations(base, heads, samplers, objectives):
        name = name_of(methods)
        try:
            found.setdefault(name, Contender(name, _settings(given, source, methods)))
        except ValueError as error:
            refused.append(Refused(name, str(error)))
    for name in given:
        if found and not any(name in each.settings for each in found.values()):
            raise ValueError(f"{name} has no effect with any of {', '.join(found)}")
    return list(found.values()), refused


def _settings(
    given: Mapping[str, Value], source: str, methods: Mapping[str, Value]
) -> Mapping[str, Value]:
    """Return all that is given for an output layer: what it has no use for is for the others."""
    model = {"model": given["model"]} if "model" in given else {}
    probe = Config(source=source, **model, **methods)
    kept = {name: value for name, value in given.items() if name == "model" or probe.has(name)}
    settings = {**kept, **methods}
    Config(source=source, **settings)
    return settings


def name_of(settings: Mapping[str, Value]) -> str:
    """Return what an output layer is called in a table.

    >>> name_of({"head": "sampled", "sampler": "uniform", "objective": "nce"})
    'nce, uniform'
    """
    drawn = [str(settings[slot]) for slot in ("objective", "sampler") if slot in settings]
    head = str(settings["head"])
    return ", ".join(drawn if head == SAMPLED else [head, *drawn])


def _combinations(
    base: Config, heads: Sequence[str], samplers: Sequence[str], objectives: Sequence[str]
) -> Iterator[Mapping[str, Value]]:
    """Yield the settings of each output layer; a slot that a head does not have is left out."""
    if not (heads or samplers or objectives):
        yield from (dict(each) for each in USUAL)
        return
    for head in heads or [SAMPLED]:
        has = find("head", head).slots
        slots = [slot for slot in COMPARED[1:] if slot in has]
        named = {"sampler": samplers, "objective": objectives}
        choices = [named[slot] or [str(base.get(slot, SLOTS[slot].default))] for slot in slots]
        for chosen in product(*choices):
            yield {"head": head, **dict(zip(slots, chosen, strict=True))}
