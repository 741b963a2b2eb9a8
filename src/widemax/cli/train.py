"""``widemax train``: a run is trained, and where it stands is shown."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from widemax.cli.waiting import waiting
from widemax.runs.config.resolved import DEFAULT, MODEL_DEFAULT, ResolvedConfig, flag_of
from widemax.runs.run_folder import check_run, stored_config
from widemax.runs.training import Training, prepare
from widemax.training.loop import Interrupted
from widemax.training.loop import Progress as TrainingProgress


def train_verb(
    source: Path,
    folder: Path,
    resolved: ResolvedConfig,
    *,
    resume: bool,
    vectors: Path | None = None,
) -> None:
    """Train on a source into a folder, showing where it stands."""
    display = _Display()
    for note in resolved.notes:
        display.say(note)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder must be a folder, and {folder} is a file")
    if resume:
        _check_same_settings(folder, resolved)
    with waiting(f"reading {source}"):
        training = prepare(
            source,
            resolved.config,
            folder,
            resume=resume,
            vectors=vectors,
            on_step=display.step,
            on_validation=display.validation,
        )
    asked = resolved.origins["num_samples"] not in (DEFAULT, MODEL_DEFAULT)
    display.training(training, vectors=vectors, asked_for_samples=asked)
    if resume:
        display.say(f"resumed at step {training.loop.progress.step:,}")
    with display.showing(training.loop.plan.total_steps, training.loop.progress.step):
        try:
            progress = training.run()
        except Interrupted:
            command = ["widemax", "train", str(source), "--folder", str(folder), "--resume"]
            display.say(f"saved; go on with: {shlex.join(command)}")
            raise KeyboardInterrupt from None
    display.say(f"finished by {progress.finished} after {progress.step:,} steps: {folder}")


def _check_same_settings(folder: Path, resolved: ResolvedConfig) -> None:
    """Raise if a setting is given that is not that of the run: it would be passed over."""
    check_run(folder)
    stored = stored_config(folder)
    for name, origin in resolved.origins.items():
        given, kept = getattr(resolved.config, name), getattr(stored, name)
        if origin not in (DEFAULT, MODEL_DEFAULT) and given != kept:
            raise ValueError(
                f"{flag_of(name)} is {given!r}, and {folder} was started with {kept!r}: a run that "
                "is resumed keeps its settings; leave it out, or train in another folder"
            )


class _Display:
    """A bar and live figures on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.live = self.console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self.bar = Progress(
            *columns, TimeRemainingColumn(), console=self.console, disable=not self.live
        )
        self.task = self.bar.add_task("training", total=None)

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def training(
        self, training: Training, *, vectors: Path | None, asked_for_samples: bool
    ) -> None:
        """Say what is about to be trained, and where it is not what was asked for."""
        head = training.model.head
        self.say(
            f"{training.source.kind}: {len(training.source.vocabulary):,} classes, "
            f"{len(training.split.training):,} examples; {type(head).__name__}"
        )
        drawn = getattr(head, "num_samples", None)
        if asked_for_samples and drawn is not None and drawn < training.config.num_samples:
            self.say(f"num_samples is more than half of the classes: {drawn:,} are drawn")
        if training.warm is not None:
            found, classes = training.warm.found, training.warm.classes
            self.say(f"{found:,} of {classes:,} classes start from {vectors}")

    def showing(self, total: int, done: int) -> Progress:
        self.bar.update(self.task, total=total, completed=done)
        return self.bar

    def step(self, progress: TrainingProgress) -> None:
        if self.live:
            self.bar.update(self.task, completed=progress.step)

    def validation(self, progress: TrainingProgress, metrics: Mapping[str, float]) -> None:
        figures = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        rate = progress.step / progress.seconds if progress.seconds else 0.0
        self.say(f"step {progress.step:,}  {figures}  {rate:,.0f} steps/s")
