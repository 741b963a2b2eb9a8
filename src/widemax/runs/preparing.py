"""Training a run: from a source and a configuration to a folder that resumes and answers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from widemax.config import Config
from widemax.data import Source
from widemax.data.splitting.holding_out import Split
from widemax.data.summary import DataSummary
from widemax.models import Model
from widemax.models.building import build_model, build_steps
from widemax.runs.folder import (
    ADJUSTABLE,
    began_from_vectors,
    check_free,
    check_run,
    check_same_settings,
    check_same_source,
    continue_with,
    create_folder,
    describe_source,
    finish_folder,
    has_grown,
    holds_run,
    stored_config,
    stored_vocabulary,
)
from widemax.runs.item_data import shown_columns, store_features
from widemax.runs.judging import ranks_seen, validation_of
from widemax.runs.kept_data import keep_data
from widemax.runs.run import Run
from widemax.runs.source import (
    configured_for,
    max_history,
    read_configured,
    read_growing,
    read_with,
    split_source,
)
from widemax.runs.warm_start import Learned, WarmStart, as_learned, warm_start
from widemax.storage.files import remove_torn_files
from widemax.training.checkpoints import CheckpointStore
from widemax.training.loop import Loop, Plan, Progress
from widemax.training.schedules import learning_rate_at
from widemax.training.steps import FitSteps, Steps
from widemax.training.tracking import JsonLines, MLflow, TensorBoard, Tracker, check_tracking
from widemax.vectors import KeyedVectors

_LOGGER = logging.getLogger(__name__)


def plan_of(config: Config, steps: Steps) -> Plan:
    """Return what of a configuration concerns the loop."""
    total = 1
    if not isinstance(steps, FitSteps):
        total = config.steps or config.epochs * steps.per_epoch
    return Plan(
        total_steps=total,
        learning_rate=learning_rate_at(
            config.get("schedule", "constant"),  # type: ignore[arg-type]
            float(config.get("learning_rate", 1.0)),
            total_steps=total,
            warmup_steps=int(config.get("warmup_steps", 0)),
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
    random_state: Tensor
    """That of torch's own generator, as the first step finds it."""
    warm: WarmStart | None = None

    def run(self) -> Progress:
        """Train to the end, or raise ``Interrupted`` after saving."""
        with ExitStack() as afterwards:
            afterwards.enter_context(_torch_as_before())
            for tracker in self.loop.trackers:
                afterwards.callback(tracker.close)
            afterwards.enter_context(self.loop.store)
            torch.set_rng_state(self.random_state)
            _use_threads(self.config)
            return self.loop.run()


@contextmanager
def _torch_as_before() -> Iterator[None]:
    """Leave torch's own generator and the number of its threads as they were.

    A training must not reseed the program around it.
    """
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def _use_threads(config: Config) -> None:
    if config.threads:
        torch.set_num_threads(config.threads)


@_torch_as_before()
def prepare(
    source_path: str | Path,
    config: Config,
    folder: str | Path,
    *,
    resume: bool = False,
    vectors: Learned | None = None,
    on_step: Callable[[Progress], None] = lambda progress: None,
    on_validation: Callable[[Progress, Mapping[str, float]], None] = lambda p, metrics: None,
) -> Training:
    """Read the source, build the model, and open the folder; nothing is trained yet.

    ``resume`` continues the run in the folder, and starts one where there is none yet. From here on
    no other process writes to the folder, until the training has been run.
    """
    folder = Path(folder)
    resume = resume and holds_run(folder)
    if resume:
        check_same_settings(folder, config.given)
        adjusted = {name: config.given[name] for name in ADJUSTABLE if name in config.given}
        config = stored_config(folder).changed(**adjusted)
        vectors = _vectors_to_resume(folder, vectors)
    else:
        check_free(folder)
    check_tracking(config.tracking)
    if not resume:
        config = configured_for(source_path, config)
    _use_threads(config)
    learned = None if vectors is None else as_learned(vectors)
    source = _read(source_path, config, folder if resume else None, learned)
    data, split = DataSummary.of(source), split_source(config, source)
    if not resume:
        _check_features(config, data)
    torch.manual_seed(config.seed)
    model = build_model(config, data, split.sequences)
    _say_if_fewer_are_drawn(config, model)
    description = describe_source(source_path, source, grown=isinstance(learned, Run))
    with_seen = ranks_seen(str(config.get("seen_items", "auto")), split.validation or split.test)
    description["ranks_seen"] = with_seen
    warm = None
    if learned is not None:
        warm = warm_start(model, source.vocabulary, learned)
        description["warm_start"] = {"found": warm.found}
    store = CheckpointStore(folder, keep_last=config.keep_last)
    steps = build_steps(config, model, data, split.sequences, split.goals)
    loop = Loop(
        steps,
        plan_of(config, steps),
        store=store,
        validate=validation_of(
            model,
            split.validation,
            config.metric,
            max_history=max_history(config),
            with_seen=with_seen,
        ),
        on_step=on_step,
        on_validation=on_validation,
    )
    if resume:
        check_same_source(folder, description, source.vocabulary)
    with ExitStack() as if_this_fails:
        # Before anything is written: a run that another process trains must not lose a line.
        if_this_fails.enter_context(store)
        if not resume:
            check_free(folder)
        remove_torn_files(folder)
        if not resume:
            shown = shown_columns(source_path, config, source.vocabulary)
            create_folder(folder, config, source, shown)
            store_features(folder, source)
            keep_data(folder, source, split)
            finish_folder(folder, description)
        else:
            _resume(loop, folder)
            continue_with(folder, adjusted)
        loop.trackers = _trackers(folder, config, loop.progress.step, if_this_fails)
        if_this_fails.pop_all()
    return Training(
        folder=folder,
        config=config,
        source=source,
        model=model,
        split=split,
        loop=loop,
        random_state=torch.get_rng_state(),
        warm=warm,
    )


def _vectors_to_resume(folder: Path, vectors: Learned | None) -> Learned | None:
    """Return what a run starts from that is resumed: nothing, once it has a checkpoint."""
    warm = began_from_vectors(folder)
    if vectors is not None and not warm:
        raise ValueError(f"{folder} did not start from vectors, so that it cannot go on from them")
    if CheckpointStore(folder).steps():
        return None
    if warm and vectors is None:
        raise ValueError(
            f"{folder} began from vectors and was stopped before its first checkpoint: "
            "resume it with the same vectors"
        )
    return vectors


def _check_features(config: Config, data: DataSummary) -> None:
    """Raise if a setting of features is given where there are none."""
    if data.item_features is None and data.user_features is None:
        for name in config.given:
            if config.options[name].of_features:
                raise ValueError(f"{name} has no effect: neither items nor users have features")


def _say_if_fewer_are_drawn(config: Config, model: Model) -> None:
    drawn = getattr(model.head, "num_samples", None)
    if drawn is not None and drawn < config.num_samples:
        _LOGGER.warning(
            "num_samples = %s is more than there are to choose from: %s are drawn",
            f"{config.num_samples:,}",
            f"{drawn:,}",
        )


def _read(
    path: str | Path, config: Config, resumed: Path | None, learned: KeyedVectors | Run | None
) -> Source:
    """Read a source with the classes that it has in this run."""
    if isinstance(learned, Run):
        return read_growing(path, config, learned.vocabulary, learned.folder)
    if resumed is not None and has_grown(check_run(resumed)):
        return read_with(path, config, stored_vocabulary(resumed), resumed)
    return read_configured(path, config)


def _resume(loop: Loop, folder: Path) -> None:
    """Go back to the newest checkpoint, if there is one."""
    try:
        loop.resume()
    # What torch raises when names or shapes of tensors differ from those of its module.
    except (RuntimeError, KeyError, TypeError) as error:
        raise ValueError(
            f"the newest checkpoint of {folder} does not fit its config.toml: "
            f"{' '.join(str(error).split())}"
        ) from error


def _trackers(
    folder: Path, config: Config, step: int, if_this_fails: ExitStack
) -> Sequence[Tracker]:
    """Open the trackers of a run; those that are open are closed if another one cannot be."""
    trackers: list[Tracker] = [JsonLines(folder / "metrics.jsonl", after_step=step)]
    if_this_fails.callback(trackers[0].close)
    if config.tracking == "tensorboard":
        trackers.append(TensorBoard(folder / "tensorboard", after_step=step))
    elif config.tracking == "mlflow":
        trackers.append(MLflow(folder.name))
    return trackers
