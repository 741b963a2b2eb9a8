"""Advice: the model, output layer and numbers for some data, a machine and a need."""

from __future__ import annotations

import textwrap
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widemax.advising.choosing import ASSUMED_TARGETS, Choice, Reason, config_of, num_steps
from widemax.advising.machine import Machine, Progress
from widemax.advising.memory import memory_of
from widemax.advising.situation import Situation, planned, read_situation
from widemax.advising.work import OPERATIONS, candidates_of, work_of
from widemax.config import Config
from widemax.config.toml import to_toml
from widemax.declarations import Value
from widemax.storage.files import atomic_write

_OTHERS = ("full", "adaptive", "hierarchical", "sampled")
_WIDTH = 98


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """Another output layer behind the same model, and what it is expected to cost."""

    head: str
    """Its name."""
    outputs: float
    """Outputs that an example evaluates."""
    seconds: float | None
    """Of one step; None where it is not known."""
    memory: int
    """Bytes of the whole training."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to train with, why, and what it is expected to cost."""

    situation: Situation
    """What it follows from."""
    machine: Machine
    """What times are predicted for."""
    config: Config
    """The configuration."""
    reasons: tuple[Reason, ...]
    """Each decision with a sentence."""
    step_seconds: float | None
    """Expected time of a training step; None for a model that is not counted."""
    step_parts: dict[str, float]
    """The share of each operation in it."""
    memory: dict[str, int]
    """Expected bytes, part by part."""
    num_steps: int
    """Steps of a whole training, at most; 0 where the amount of data is not known."""
    alternatives: tuple[Alternative, ...]
    """The usual output layers behind the same model, the chosen one among them."""

    def on(self, machine: Machine) -> Advice:
        """Return the advice for the same situation on another machine."""
        return advise_on(self.situation, machine)

    def to_toml(self) -> str:
        """Return the configuration as a file, its reasons as comments at the top."""
        lines = ["Advised by widemax:"]
        lines += [f"{each.about} = {each.decision}: {each.why}" for each in self.reasons]
        wrapped = [
            part for line in lines for part in textwrap.wrap(line, _WIDTH, subsequent_indent="  ")
        ]
        return "\n".join(f"# {line}" for line in wrapped) + "\n\n" + to_toml(self.config)

    def save(self, path: str | Path) -> None:
        """Write the configuration, which ``widemax train SOURCE --config PATH`` takes."""
        with atomic_write(path) as file:
            file.write(self.to_toml().encode())

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON holds it."""
        situation = self.situation
        return {
            "situation": {
                "data": situation.source,
                "classes": situation.num_classes,
                "labels": situation.labels,
                "examples": situation.num_targets,
                "ordered": situation.ordered,
                "features": situation.features,
                "needs": sorted(situation.needs),
                "memory": situation.memory,
                "entropy_bits": situation.popularity.entropy_bits,
                "top_tenth": situation.popularity.top_share(0.1),
            },
            "machine": {"name": self.machine.name, "costs": dict(self.machine.costs)},
            "settings": {name: self.config.values[name] for name in self.config.given},
            "reasons": [each._asdict() for each in self.reasons],
            "step_seconds": self.step_seconds,
            "step_parts": self.step_parts,
            "steps": self.num_steps,
            "memory": self.memory,
            "alternatives": [vars(each) for each in self.alternatives],
        }


def advise(
    source: str | Path | None = None,
    *,
    needs: Collection[str] = (),
    memory: str | float = 0,
    labels: float | None = None,
    classes: float | None = None,
    examples: float | None = None,
    data: str | None = None,
    machine: Machine | None = None,
    progress: Progress | None = None,
    **settings: Value,
) -> Advice:
    """Return which model, output layer and numbers to train with, why, and at what cost.

    Without a source it is a plan for ``classes`` of a "log" or a "text" (``data``) with
    ``examples`` to train on. ``needs`` are some of probabilities, new-items and serving; ``memory``
    is a size such as "8GB". ``settings`` are those of a run, and are kept. The machine is measured
    once, in about ten seconds, unless it is given.

    >>> from widemax.advising import Machine
    >>> advice = advise(classes=10_000, data="text", needs=["probabilities"],
    ...                 machine=Machine.typical())
    >>> advice.config.model, advice.config.head
    ('nnlm', 'full')
    >>> print(advice.reasons[1].why)
    With 10,000 classes the exact softmax is affordable: normalised, unbiased, nothing to tune.
    """
    if source is None:
        if classes is None:
            raise ValueError("give a source, or classes: how many there are to plan for")
        situation = planned(
            classes,
            data=data or "log",
            labels=1.0 if labels is None else labels,
            examples=examples or 0,
            needs=needs,
            memory=memory,
            given=settings,
        )
    else:
        for name, value in (("classes", classes), ("examples", examples), ("data", data)):
            if value is not None:
                raise ValueError(f"{name} is for a plan without a source: {source} says it itself")
        situation = read_situation(
            source, labels=labels, needs=needs, memory=memory, given=settings
        )
    return advise_on(situation, machine or Machine.this(progress=progress))


def advise_on(situation: Situation, machine: Machine) -> Advice:
    """Return the advice for a situation on a machine."""
    choice = Choice(situation, machine)
    config = choice.config
    work = work_of(config, situation.popularity, situation.num_targets or ASSUMED_TARGETS)
    seconds = None if work is None else machine.seconds(work)
    parts = {}
    if work is not None and seconds:
        parts = {name: machine.costs[name] * work[name] / seconds for name in OPERATIONS}
    return Advice(
        situation=situation,
        machine=machine,
        config=config,
        reasons=tuple(choice.reasons),
        step_seconds=seconds,
        step_parts={name: share for name, share in parts.items() if share},
        memory=memory_of(config, situation.popularity, situation.num_targets),
        num_steps=num_steps(config, situation.num_targets),
        alternatives=_alternatives(choice),
    )


def _alternatives(choice: Choice) -> tuple[Alternative, ...]:
    situation, chosen = choice.situation, choice.config
    found = []
    for head in dict.fromkeys([chosen.head, *_OTHERS] if "head" in chosen.parts else []):
        settings = {**choice.settings, "head": head}
        try:
            config = chosen if head == chosen.head else config_of(situation, settings)
        except ValueError:
            continue  # the model has no use for such a head
        curve, targets = situation.popularity, situation.num_targets
        work = work_of(config, curve, targets or ASSUMED_TARGETS)
        if work is None and head != chosen.head:
            continue
        outputs = curve.entropy_bits if head == "hierarchical" else candidates_of(config, curve)
        if head == "adaptive":
            classes = curve.num_classes
            outputs = classes / 20 + classes * (
                0.2 * curve.mass_between(classes / 20, classes / 4)
                + 0.75 * curve.mass_between(classes / 4, classes)
            )
        found.append(
            Alternative(
                head=head,
                outputs=outputs + (head == "sampled"),
                seconds=None if work is None else choice.machine.seconds(work),
                memory=sum(memory_of(config, curve, targets).values()),
            )
        )
    return tuple(found)
