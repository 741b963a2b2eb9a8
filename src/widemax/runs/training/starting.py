"""A model as its first step finds it, and the learning rate that it begins with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from widemax.config import Config
from widemax.data import Sequences
from widemax.data.splitting.holding_out import Split
from widemax.data.summary import DataSummary
from widemax.models import Model
from widemax.models.building import build_model, build_steps
from widemax.runs.run import Run
from widemax.runs.training.warm_start import WarmStart, warm_start
from widemax.training.gradients.steps import GradientSteps
from widemax.training.range_test import LOWEST_RATE, RangeTest, range_test
from widemax.training.steps import Steps
from widemax.training.together import Together
from widemax.vectors import KeyedVectors


def built(
    config: Config,
    data: DataSummary,
    sequences: Sequences,
    goals: Tensor | None,
    learned: KeyedVectors | Run | None,
    together: Together,
) -> tuple[Model, Steps, WarmStart | None]:
    """Return a model as its first step finds it, how it is trained, and what it begins from."""
    torch.manual_seed(config.seed)
    if together.over is not None and learned is not None:
        raise ValueError("vectors cannot be given where tables are divided over processes")
    model = build_model(config, data, sequences, over=together.over)
    warm = None if learned is None else warm_start(model, data.vocabulary, learned)
    return model, build_steps(config, model, data, sequences, goals), warm


def tested_rates(
    config: Config,
    data: DataSummary,
    split: Split,
    learned: KeyedVectors | Run | None,
    together: Together,
    on_step: Callable[[int], None],
) -> RangeTest:
    """Try growing learning rates on a model that is built for it alone, and thrown away.

    The model of the run is built later, from its seed: as if there had been no test, and without
    room for two.
    """
    config = config.changed(learning_rate=LOWEST_RATE)
    _, steps, _ = built(config, data, split.sequences, split.goals, learned, together)
    together.attach(steps)

    def take(step: int, rate: float) -> float:
        assert isinstance(steps, GradientSteps)
        steps.take(step, rate)
        assert steps.loss is not None
        return together.total(steps.loss.item())

    return range_test(take, on_step=on_step)
