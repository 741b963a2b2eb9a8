"""Training a run: from a source and a configuration to a folder that resumes and answers."""

from __future__ import annotations

import logging
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from widemax.config import Config
from widemax.data import Sequences, Source
from widemax.data.splitting.holding_out import Split, later_than_asked
from widemax.data.splitting.log_split import distinct_targets
from widemax.data.summary import DataSummary
from widemax.models import Model
from widemax.models.building import build_model, build_steps
from widemax.runs.folder.chosen_checkpoint import refit_store, step_chosen_by
from widemax.runs.folder.creating import (
    check_free,
    check_same_source,
    create_folder,
    describe_source,
    finish_folder,
)
from widemax.runs.folder.description import (
    began_from_vectors,
    check_run,
    has_grown,
    holds_run,
    stored_vocabulary,
)
from widemax.runs.folder.features import store_features
from widemax.runs.folder.histories import max_history
from widemax.runs.folder.kept_data import earlier_histories, keep_data, refit_summary
from widemax.runs.folder.settings import (
    ADJUSTABLE,
    check_same_settings,
    continue_with,
    stored_config,
)
from widemax.runs.judging.protocol import ranks_seen
from widemax.runs.judging.validation import floor_of, validation_of
from widemax.runs.run import Run
from widemax.runs.source.configured import configured_for
from widemax.runs.source.features import shown_columns
from widemax.runs.source.reading import read_configured, read_growing, read_with
from widemax.runs.source.splitting import split_source
from widemax.runs.training.warm_start import Learned, WarmStart, as_learned, warm_start
from widemax.storage.files import remove_torn_files
from widemax.stores.addresses import place_of
from widemax.training.checkpoints import CheckpointStore
from widemax.training.loop import Loop, Plan, Progress
from widemax.training.range_test import LOWEST_RATE, RangeTest, range_test
from widemax.training.schedules import learning_rate_at
from widemax.training.steps import AUTO, FitSteps, GradientSteps, Steps
from widemax.training.together import ALONE, Together
from widemax.training.tracking import JsonLines, MLflow, TensorBoard, Tracker, check_tracking
from widemax.vectors import KeyedVectors

_LOGGER = logging.getLogger(__name__)


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
            afterwards.enter_context(_torch_as_before())
            afterwards.enter_context(_no_advice_against_the_usual(self.config, self.source.kind))
            for tracker in self.loop.trackers:
                afterwards.callback(tracker.close)
            self._begin_writing(afterwards)
            torch.set_rng_state(self.random_state)
            _use_threads(self.config)
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
        self.model, steps, _ = _built(
            config, data, split.final, split.final_goals, self.learned, together
        )
        total = max(1, round(epochs * steps.per_epoch))
        plan = plan_of(config, steps, of_epoch=len(split.final.values), total_steps=total)
        plan = replace(plan, time_budget=math.inf, patience=0)
        store = refit_store(self.folder, chosen, keep_last=config.keep_last)
        if together.writes:
            _remove_other_refits(self.folder, store.folder)
        together.attach(steps)
        self.loop = Loop(steps, plan, store=store, together=together, on_step=on_step)
        _resume(self.loop, self.folder)
        together.wait()
        self.on_refit(self, done)


def _built(
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


def _range_test(
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
    _, steps, _ = _built(config, data, split.sequences, split.goals, learned, together)
    together.attach(steps)

    def take(step: int, rate: float) -> float:
        assert isinstance(steps, GradientSteps)
        steps.take(step, rate)
        assert steps.loss is not None
        return together.total(steps.loss.item())

    return range_test(take, on_step=on_step)


def _remove_other_refits(folder: Path, kept: Path) -> None:
    """Remove the last fits of earlier choices, which a longer training has overtaken."""
    for path in folder.glob("refit-*"):
        if path != kept:
            shutil.rmtree(path)


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


@contextmanager
def _no_advice_against_the_usual(config: Config, kind: str) -> Iterator[None]:
    """Let no warning advise against what a model is usually trained with, and was measured with."""
    usual = Config(source=kind, model=config.model)
    negatives = ("objective", "sampler", "batch_size")
    with warnings.catch_warnings():
        if all(config.get(name, "") == usual.get(name, "") for name in negatives):
            warnings.filterwarnings("ignore", message="sampled_softmax: a target is expected")
        yield


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
    together: Together = ALONE,
    on_step: Callable[[Progress], None] = lambda progress: None,
    on_validation: Callable[[Progress, Mapping[str, float]], None] = lambda p, metrics: None,
    on_refit: Callable[[Training, Progress], None] = lambda training, done: None,
    on_range_test: Callable[[int], None] = lambda step: None,
) -> Training:
    """Read the source, build the model, and open the folder; nothing is trained yet.

    A learning rate that is "auto" is found first, by another model of the same start, and is that
    of the run from then on; ``on_range_test`` gets the steps that this has taken.
    ``resume`` continues the run in the folder, and starts one where there is none yet. From here on
    no other process writes to the folder, until the training has been run. Processes that train
    ``together`` all read the source, and see the same folder.
    """
    source_path, folder = place_of(source_path), Path(folder)
    resume = together.decided(resume and holds_run(folder))
    if resume:
        check_same_settings(folder, config.given)
        adjusted = {name: config.given[name] for name in ADJUSTABLE if name in config.given}
        config = stored_config(folder).changed(**adjusted)
        vectors = _vectors_to_resume(folder, vectors, refit=config.refit)
    elif together.writes:
        check_free(folder)
    together.wait()
    check_tracking(config.tracking)
    if not resume:
        config = configured_for(source_path, config)
    _use_threads(config)
    learned = None if vectors is None else as_learned(vectors)
    source = _read(source_path, config, folder if resume else None, learned)
    data, split = DataSummary.of(source), split_source(config, source)
    if not resume:
        _check_features(config, data)
    refits = _refits(config, split)
    tested = None
    if config.get("learning_rate", 0.0) == AUTO:
        tested = _range_test(config, data, split, learned, together, on_range_test)
        config = config.changed(learning_rate=tested.rate)
    with ThreadPoolExecutor(1) as beside:
        # The sha256 of a long text takes as long as its model: both at once.
        describing = beside.submit(
            describe_source, source_path, source, grown=isinstance(learned, Run)
        )
        model, steps, warm = _built(config, data, split.sequences, split.goals, learned, together)
    if together.writes:
        _say_if_fewer_are_drawn(config, model)
    together.attach(steps)
    description = describing.result()
    with_seen = ranks_seen(str(config.get("seen_items", "auto")), split.validation or split.test)
    description["ranks_seen"] = with_seen
    later = later_than_asked(source.sequences, split, config.split)
    if later is not None and later[0]:
        description["later"] = list(later)
    if warm is not None:
        description["warm_start"] = {"found": warm.found}
    if tested is not None:
        description["range_test"] = {"steps": len(tested.losses), "halfway": tested.halfway}
    store = CheckpointStore(folder, keep_last=config.keep_last)
    loop = Loop(
        steps,
        plan_of(
            config,
            steps,
            of_epoch=len(split.sequences.values),
            part_of_time=_part_of_time(split) if refits else 1.0,
            floor=_floor(config, steps, data, split, with_seen=with_seen),
        ),
        store=store,
        validate=validation_of(
            model,
            split.validation,
            config.metric,
            max_history=max_history(config),
            with_seen=with_seen,
        ),
        together=together,
        on_step=on_step,
        on_validation=on_validation,
    )
    if resume:
        check_same_source(folder, description, source.vocabulary)
    training = Training(
        folder=folder,
        config=config,
        source=source,
        model=model,
        split=split,
        loop=loop,
        random_state=torch.get_rng_state(),
        warm=warm,
        description=description,
        refits=refits,
        learned=learned,
        on_refit=on_refit,
    )
    if not together.writes:
        together.wait()
        if resume:
            _resume(loop, folder)
            training.random_state = torch.get_rng_state()
        return training
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
            keep_data(
                folder,
                source,
                split,
                refit_counts=_refit_counts(source, split, learned),
                earlier=_earlier(learned, source),
            )
            finish_folder(folder, description)
        else:
            _resume(loop, folder)
            continue_with(folder, adjusted)
        loop.trackers = _trackers(folder, config, loop.progress.step, if_this_fails)
        if_this_fails.pop_all()
    training.random_state = torch.get_rng_state()
    together.wait()
    return training


def _vectors_to_resume(folder: Path, vectors: Learned | None, *, refit: bool) -> Learned | None:
    """Return what a run starts from that is resumed: nothing, once it has a checkpoint.

    A last fit starts from the same once more.
    """
    warm, begun = began_from_vectors(folder), bool(CheckpointStore(folder).steps())
    if vectors is not None and not warm:
        raise ValueError(f"{folder} did not start from vectors, so that it cannot go on from them")
    if begun and not (warm and refit):
        return None
    if warm and vectors is None:
        why = "its last fit does, too" if begun else "was stopped before its first checkpoint"
        raise ValueError(f"{folder} began from vectors and {why}: resume it with the same vectors")
    return vectors


def _refits(config: Config, split: Split) -> bool:
    """Return whether a last fit follows; raise if one is asked for and nothing validates."""
    if config.refit and split.validation is None and "refit" in config.given:
        raise ValueError("refit has no effect: the data are too few to hold any out for validation")
    return bool(config.refit) and split.validation is not None


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


def _refit_counts(
    source: Source, split: Split, learned: KeyedVectors | Run | None
) -> Tensor | None:
    """Return how often each class is fitted at last; None where the vocabulary counts all data.

    Ids stay in falling count, as some samplers need them: a class counts at least as often as any
    behind it.
    """
    if split.final is None or source.kind == "text" or isinstance(learned, Run):
        return None
    counts = torch.bincount(split.final.values, minlength=len(source.vocabulary))
    return counts.flip(0).cummax(0).values.flip(0)


def _check_features(config: Config, data: DataSummary) -> None:
    """Raise if a setting of features is given where there are none."""
    if data.item_features is None and data.user_features is None:
        for name in config.given:
            if config.options[name].of_features:
                raise ValueError(f"{name} has no effect: neither items nor users have features")


def _say_if_fewer_are_drawn(config: Config, model: Model) -> None:
    drawn = getattr(model.head, "num_samples", None)
    if drawn is not None and drawn < config.num_samples:
        distinct = getattr(model.head.sampler, "unique", False)
        _LOGGER.warning(
            "num_samples = %s is more than there are to choose from: %s are drawn%s",
            f"{config.num_samples:,}",
            f"{drawn:,}",
            ", half of the classes, as they are to be distinct (--unique)" if distinct else "",
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


def _earlier(learned: KeyedVectors | Run | None, source: Source) -> pl.DataFrame | None:
    """Return what users had in the log of the run that this one starts from."""
    if not isinstance(learned, Run) or source.kind == "text":
        return None
    return earlier_histories(learned.folder, learned.vocabulary, source.vocabulary)


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
