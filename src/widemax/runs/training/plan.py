"""How long a training goes on, and what of a configuration says so."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from widemax.config import Config
from widemax.data import Sequences
from widemax.data.splitting.holding_out import Split
from widemax.data.splitting.log_split import distinct_targets
from widemax.data.summary import DataSummary
from widemax.runs.judging.validation import floor_of
from widemax.training.fit_steps import FitSteps
from widemax.training.loop import Plan
from widemax.training.schedules import learning_rate_at
from widemax.training.steps import Steps


def plan_of(
    config: Config,
    steps: Steps,
    *,
    of_epoch: int = 0,
    total_steps: int = 0,
    part_of_time: float = 1.0,
    floor: float | None = None,
) -> Plan:
    """Return what of a configuration concerns the loop.

    An epoch is ``of_epoch`` interactions or words, by which ``patience_examples`` become steps.
    ``total_steps`` stands in for the length that is set; of the time there is ``part_of_time``;
    patience begins at the ``floor``.
    """
    waiting = config.patience_examples / of_epoch * steps.per_epoch if of_epoch else 0
    total = 1
    if not isinstance(steps, FitSteps):
        total = total_steps or config.steps or config.epochs * steps.per_epoch
    return Plan(
        total_steps=total,
        learning_rate=learning_rate_at(
            config.get("schedule", "constant"),  # type: ignore[arg-type]
            float(config.get("learning_rate", 1.0)),
            total_steps=total,
            warmup_steps=int(config.get("warmup_steps", 0)),
        ),
        time_budget=config.time_budget * part_of_time or math.inf,
        follows_time=not (total_steps or config.get("steps", 0)),
        validate_every=config.validate_every,
        patience=config.patience,
        patience_steps=math.ceil(waiting),
        floor=floor,
        checkpoint_every=config.checkpoint_every,
        metric=config.metric,
    )


def plan_to_validate(
    config: Config, steps: Steps, data: DataSummary, split: Split, *, with_seen: bool, refits: bool
) -> Plan:
    """Return the plan of the training that validates, which leaves time to a last fit."""
    return plan_of(
        config,
        steps,
        of_epoch=len(split.sequences.values),
        part_of_time=_part_of_time(split) if refits else 1.0,
        floor=_floor(config, steps, data, split, with_seen=with_seen),
    )


def plan_to_refit(config: Config, steps: Steps, sequences: Sequences, *, epochs: float) -> Plan:
    """Return the plan of a last fit, which takes as long as was chosen."""
    total = max(1, round(epochs * steps.per_epoch))
    plan = plan_of(config, steps, of_epoch=len(sequences.values), total_steps=total)
    return replace(plan, time_budget=math.inf, patience=0)


def _floor(
    config: Config, steps: Steps, data: DataSummary, split: Split, *, with_seen: bool
) -> float | None:
    """Return what a model must have come to before patience may end its training."""
    if isinstance(steps, FitSteps) or not config.patience:
        return None
    # Users and not interactions are counted, as by the model of that name.
    chosen = distinct_targets(split.sequences).values
    counts = torch.bincount(chosen, minlength=len(data.vocabulary))
    return floor_of(split.validation, counts, config.metric, with_seen=with_seen)


def _part_of_time(split: Split) -> float:
    """Return how much of the time is for the training that validates, so that both fits fit in."""
    assert split.final is not None
    first, last = (int(each.offsets[-1]) for each in (split.sequences, split.final))
    return first / (first + last)
