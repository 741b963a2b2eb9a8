"""Training a run: from a source and a configuration to a folder that resumes and answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from widemax.data import Sequences, Source, Windows
from widemax.evaluation import evaluate_ranking
from widemax.files import remove_torn_files
from widemax.models import Model
from widemax.runs.building import build_model, build_steps, model_class
from widemax.runs.config import Config
from widemax.runs.reading import read_configured
from widemax.runs.run_folder import (
    check_cold,
    check_run,
    check_same_source,
    create_folder,
    describe,
    holds_run,
    stored_config,
)
from widemax.runs.warm_start import WarmStart, as_vectors, warm_start
from widemax.training.checkpoints import CheckpointStore
from widemax.training.loop import Loop, Plan, Progress
from widemax.training.schedules import learning_rate_at
from widemax.training.steps import FitSteps, Steps
from widemax.training.tracking import JsonLines, MLflow, TensorBoard, Tracker
from widemax.vectors import KeyedVectors

_HELD_OUT_SEED = 20_111


@dataclass(frozen=True, kw_only=True)
class Split:
    """The examples of a source: those trained on, and those held out."""

    training: Windows
    validation: Windows | None


def split_source(config: Config, source: Source) -> Split:
    """Hold out ``validation_size`` examples, never seen in training.

    Of a log, the last item of users, with all before it as history; of a text, whole sentences.
    """
    cut = partial(
        model_class(config, source.kind).windows,
        max_history=config.max_history,
        window=config.window,
    )
    sequences = source.sequences
    if not config.validation_size:
        return Split(training=cut(sequences), validation=None)
    if source.kind == "text":
        train, held = _split_sentences(sequences, config.validation_size)
        return Split(training=cut(train), validation=_some(cut(held), config))
    train, targets = sequences.split_last()
    last = (sequences.offsets[1:] - 1)[targets[:, 0] >= 0]
    validation = cut(sequences, positions=last)
    return Split(training=cut(train), validation=_some(validation, config))


def _split_sentences(sequences: Sequences, size: int) -> tuple[Sequences, Sequences]:
    """Hold out the last sentences that hold about ``size`` words, at most a tenth of all."""
    words = max(1, len(sequences.values))
    return sequences.split(min(0.1, size / words))


def _some(windows: Windows, config: Config) -> Windows:
    """Return ``validation_size`` examples, the same in every run."""
    positions = windows.positions
    if positions is None:
        positions = torch.arange(len(windows))
    if len(positions) > config.validation_size:
        seeded = torch.Generator().manual_seed(_HELD_OUT_SEED)
        chosen = torch.randperm(len(positions), generator=seeded)[: config.validation_size]
        positions = positions[chosen.sort().values]
    return Windows(windows.sequences, windows.before, windows.after, positions)


def plan_of(config: Config, steps: Steps) -> Plan:
    """Return what of a configuration concerns the loop."""
    total = config.steps or config.epochs * steps.per_epoch
    if isinstance(steps, FitSteps):
        total = 1
    return Plan(
        total_steps=total,
        learning_rate=learning_rate_at(
            config.schedule,  # type: ignore[arg-type]
            config.learning_rate,
            total_steps=total,
            warmup_steps=config.warmup_steps,
        ),
        time_budget=config.time_budget or math.inf,
        validate_every=config.validate_every,
        patience=config.patience,
        checkpoint_every=config.checkpoint_every,
        metric=config.metric,
    )


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run that is about to be trained: its parts, and its loop."""

    folder: Path
    config: Config
    source: Source
    model: Model
    split: Split
    loop: Loop
    trackers: list[Tracker]
    warm: WarmStart | None = None

    def run(self) -> Progress:
        """Train to the end, or raise ``Interrupted`` after saving."""
        try:
            with self.loop.store:
                return self.loop.run()
        finally:
            for tracker in self.trackers:
                tracker.close()


def prepare(
    source_path: str | Path,
    config: Config,
    folder: str | Path,
    *,
    resume: bool = False,
    vectors: KeyedVectors | str | Path | None = None,
    on_step: Callable[[Progress], None] = lambda progress: None,
    on_validation: Callable[[Progress, Mapping[str, float]], None] = lambda p, metrics: None,
) -> Training:
    """Read the source, build the model, and open the folder; nothing is trained yet.

    From here on no other process writes to the folder, until the training has been run.
    """
    folder = Path(folder)
    if resume:
        if vectors is not None:
            raise ValueError("vectors start a new run: a run that is resumed has its own")
        check_run(folder)
        config = stored_config(folder)
    _check_free(folder, resume)
    if config.threads:
        torch.set_num_threads(config.threads)
    source = read_configured(source_path, config)
    model = build_model(config, source)
    warm = None
    if vectors is not None:
        warm = warm_start(model, source.vocabulary, as_vectors(vectors))
    split = split_source(config, source)
    description = describe(source_path, source)
    if warm is not None:
        description["warm_start"] = {"found": warm.found}
    store = CheckpointStore(folder, keep_last=config.keep_last)
    steps = build_steps(config, model, split.training.sequences, split.training)
    loop = Loop(
        steps,
        plan_of(config, steps),
        store=store,
        validate=_validation(model, split.validation),
        on_step=on_step,
        on_validation=on_validation,
    )
    if resume:
        check_same_source(folder, description, source.vocabulary)
    with ExitStack() as unlock_if_this_fails:
        # Before anything is written: a run that another process trains must not lose a line.
        unlock_if_this_fails.enter_context(store)
        _check_free(folder, resume)
        remove_torn_files(folder)
        if not resume:
            create_folder(folder, config, source.vocabulary, description)
        elif not _resume(loop, folder):
            check_cold(folder)
        loop.trackers = trackers = _trackers(folder, config, loop.progress.step)
        unlock_if_this_fails.pop_all()
    return Training(
        folder=folder,
        config=config,
        source=source,
        model=model,
        split=split,
        loop=loop,
        trackers=trackers,
        warm=warm,
    )


def _check_free(folder: Path, resume: bool) -> None:
    if not resume and holds_run(folder):
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder")


def _resume(loop: Loop, folder: Path) -> bool:
    """Go back to the newest checkpoint; return whether there is one."""
    try:
        return loop.resume()
    # What torch raises when names or shapes of tensors differ from those of its module.
    except (RuntimeError, KeyError, TypeError) as error:
        raise ValueError(
            f"the newest checkpoint of {folder} does not fit its config.toml: "
            f"{' '.join(str(error).split())}"
        ) from error


def _validation(model: Model, examples: Windows | None) -> Callable[[], Mapping[str, float]] | None:
    if examples is None or not len(examples):
        return None
    return lambda: evaluate_ranking(model.head, model.encode, examples).metrics()


def _trackers(folder: Path, config: Config, step: int) -> list[Tracker]:
    trackers: list[Tracker] = [JsonLines(folder / "metrics.jsonl", after_step=step)]
    if config.tracking == "tensorboard":
        trackers.append(TensorBoard(folder / "tensorboard"))
    elif config.tracking == "mlflow":
        trackers.append(MLflow(folder.name))
    return trackers
