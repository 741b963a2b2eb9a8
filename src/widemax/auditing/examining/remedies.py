"""What could be changed about a sampled head, built on its trained vectors and tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from widemax.auditing.examining.cost import StepCost
from widemax.auditing.measuring.report import AuditReport
from widemax.config import Config
from widemax.config.flags import revised
from widemax.data import Sequences
from widemax.data.summary import DataSummary
from widemax.declarations import Value
from widemax.heads import Head, LayeredHead, SampledHead
from widemax.heads.base import SamplerHead
from widemax.models.building import RunSetup

_FACTOR = 4
_ROOM = 2
"""Fewer than so many times as many samples do not show whether a bias falls as they grow."""
_SAMPLERS = ("unigram", "log-uniform", "uniform")


class Change(NamedTuple):
    """Settings that differ from those of a run, and the head that they make of its vectors."""

    settings: Mapping[str, Value]
    config: Config
    head: SamplerHead


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change that was tried, and what it came to."""

    settings: Mapping[str, Value]
    """What is set otherwise."""
    minimal: Mapping[str, Value]
    """All settings of a training with it, as few as lead there."""
    report: AuditReport
    """The audit with it, on the vectors as they are."""
    cost: StepCost
    """What a step costs with it."""

    def __str__(self) -> str:
        """Return the change in words."""
        return in_words(self.settings)


def in_words(settings: Mapping[str, Value]) -> str:
    """Return settings as they are spoken of.

    >>> in_words({"unique": True, "num_samples": 4096}), in_words({"sampler": "uniform"})
    ('distinct draws, 4,096 samples', 'sampler uniform')
    """
    return ", ".join(_in_words(name, value) for name, value in settings.items())


def _in_words(name: str, value: Value) -> str:
    if name == "unique":
        return "distinct draws" if value else "draws with replacement"
    if name == "num_samples":
        return f"{value:,} samples"
    return f"{name.replace('_', ' ')} {value}"


class Workshop:
    """Makes other heads of the trained vectors of a run: other samplers, objectives, numbers."""

    def __init__(
        self, config: Config, data: DataSummary, head: Head, corpus: Sequences | None
    ) -> None:
        self.config, self.data, self.corpus = config, data, corpus
        self.head = head.head if isinstance(head, LayeredHead) else head

    def changed(self, **settings: Value) -> Change | None:
        """Return the head with other settings; None where they do not fit together."""
        if not isinstance(self.head, SamplerHead):
            return None
        try:
            config = revised(self.config, self.data.kind, settings)
            setup = RunSetup(config, self.data, self.corpus)
            setup.dimension = self.head.dimension
            # An audit must not reseed the program around it.
            with torch.random.fork_rng(devices=[]):
                sampler = setup.sampler if self._is_new("sampler", settings) else self.head.sampler
                objective = setup.objective if "objective" in config.parts else None
            number = setup.num_samples
            if number is not None and number != config.num_samples:
                if "num_samples" in settings or not self._is_capped:
                    return None
                # Beside what the run draws, too, fewer classes than were asked for.
                config = revised(config, self.data.kind, {"num_samples": number})
        except ValueError:
            return None
        head = self.head.with_sampler(sampler, number)
        if isinstance(head, SampledHead) and objective is not None:
            head = head.with_objective(objective)
        return Change(settings, config, head)

    def _is_new(self, slot: str, settings: Mapping[str, Value]) -> bool:
        """Return whether a change concerns the sampler: one that has learned is kept otherwise."""
        own = {option.name for option in self.config.parts[slot].options} - {"num_samples"}
        return slot in settings or bool(own & settings.keys())

    @property
    def _is_capped(self) -> bool:
        """Return whether the run draws fewer samples than its setting says."""
        asked = self.config.get("num_samples", 0)
        return isinstance(self.head, SamplerHead) and self.head.num_samples != asked

    @property
    def most_samples(self) -> int | None:
        """How many can be drawn, where that is hardly more than are drawn; else None."""
        if not isinstance(self.head, SamplerHead) or not self.config.has("num_samples"):
            return None
        most, now = self.head.sampler.max_samples, self.head.num_samples or 1
        return most if most is not None and most < _ROOM * now else None

    def with_samples(self, number: int) -> Change | None:
        """Return the head with another number of samples; None where it cannot draw so many."""
        return self.changed(num_samples=number)

    def cheapest(self) -> Iterator[Change]:
        """Yield what may help, from what costs nothing to what costs more."""
        if not isinstance(self.head, SamplerHead):
            return
        asked: list[dict[str, Value]] = []
        objective = self.config.get("objective", "")
        # An objective of somebody else is first compared with the plain one.
        if objective not in ("", "sampled-softmax", "corrected-log-q"):
            asked.append({"objective": "sampled-softmax"})
        if objective not in ("", "corrected-log-q"):
            asked.append({"objective": "corrected-log-q"})
        if self.config.get("unique", True) is False:
            asked.append({"unique": True})
        sampler = self.config.get("sampler", "")
        other = [each for each in _SAMPLERS if each != sampler]
        if sampler == "unigram" and self.config.get("distortion", 1.0) != 1.0:
            asked.append({"distortion": 1.0})
        else:
            asked.append({"sampler": other[0]})
        if self.config.has("num_samples") and self.most_samples is None:
            asked.append({"num_samples": self._more()})
        for settings in asked:
            change = self.changed(**settings)
            if change is not None:
                yield change

    def _more(self) -> int:
        """Return several times as many samples, or as many as can be drawn."""
        assert isinstance(self.head, SamplerHead)
        now = self.head.num_samples or 1
        most = self.head.sampler.max_samples
        return _FACTOR * now if most is None else min(_FACTOR * now, most)
