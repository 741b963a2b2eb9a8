"""A training that is prepared: run to its end, and fitted once more on all data but the test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from widemax.config import Config
from widemax.data import Source
from widemax.data.splitting.holding_out import Split
from widemax.data.summary import DataSummary
from widemax.models import Model
from widemax.runs.folder.chosen_checkpoint import refit_store, step_chosen_by
from widemax.runs.folder.kept_data import refit_summary
from widemax.runs.run import Run
from widemax.runs.training.plan import plan_to_refit
from widemax.runs.training.process import no_advice_against_the_usual, torch_as_before, use_threads
from widemax.runs.training.starting import built
from widemax.runs.training.warm_start import WarmStart
from widemax.training.loop import Loop, Progress
from widemax.vectors import KeyedVectors


@dataclass(kw_only=True)
class Training:
    """A run that is about to be trained: its parts, and its loop.

    Where it is to be refitted, model and loop become those of the last fit when that begins.
    """

    folder: Path
    config: Config
    source: Source
    model: Model
    split: Split
    loop: Loop
    random_state: Tensor
    """That of torch's own generator, as the first step finds it."""
    description: Mapping[str, Any]
    """What the run says about its data."""
    warm: WarmStart | None = None
    refits: bool = False
    """Whether a last fit on training and validation data follows."""
    learned: KeyedVectors | Run | None = None
    """What both fits start from."""
    on_refit: Callable[[Training, Progress], None] = lambda training, done: None
    """Called when the last fit is about to begin, with how the training before it has ended."""

    def run(self) -> Progress:
        """Train to the end, or raise ``Interrupted`` after saving."""
        with ExitStack() as afterwards:
            afterwards.enter_context(torch_as_before())
            afterwards.enter_context(no_advice_against_the_usual(self.config, self.source.kind))
            for tracker in self.loop.trackers:
                afterwards.callback(tracker.close)
            self._begin_writing(afterwards)
            torch.set_rng_state(self.random_state)
            use_threads(self.config)
            progress = self.loop.run()
            if not self.refits:
                return progress
            self._begin_refit(progress)
            self._begin_writing(afterwards)
            return self.loop.run()

    def _begin_writing(self, afterwards: ExitStack) -> None:
        if self.loop.together.writes:
            afterwards.enter_context(self.loop.store)

    def _begin_refit(self, done: Progress) -> None:
        """Make model and loop those of the last fit, as far as it has come already."""
        config, split, on_step = self.config, self.split, self.loop.on_step
        together = self.loop.together
        chosen = step_chosen_by(asdict(done))
        epochs = chosen / self.loop.steps.per_epoch
        # Before another is made: two models with their optimisers may be more than there is room.
        del self.model, self.loop
        data = refit_summary(self.folder, DataSummary.of(self.source))
        assert split.final is not None
        self.model, steps, _ = built(
            config, data, split.final, split.final_goals, self.learned, together
        )
        plan = plan_to_refit(config, steps, split.final, epochs=epochs)
        store = refit_store(self.folder, chosen, keep_last=config.keep_last)
        if together.writes:
            _remove_other_refits(self.folder, store.folder)
        together.attach(steps)
        self.loop = Loop(steps, plan, store=store, together=together, on_step=on_step)
        resume_loop(self.loop, self.folder)
        together.wait()
        self.on_refit(self, done)


def _remove_other_refits(folder: Path, kept: Path) -> None:
    """Remove the last fits of earlier choices, which a longer training has overtaken."""
    for path in folder.glob("refit-*"):
        if path != kept:
            shutil.rmtree(path)


def resume_loop(loop: Loop, folder: Path) -> None:
    """Go back to the newest checkpoint, if there is one."""
    try:
        loop.resume()
    # What torch raises when names or shapes of tensors differ from those of its module.
    except (RuntimeError, KeyError, TypeError) as error:
        raise ValueError(
            f"the newest checkpoint of {folder} does not fit its config.toml: "
            f"{' '.join(str(error).split())}"
        ) from error
