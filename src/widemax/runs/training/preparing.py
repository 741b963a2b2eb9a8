"""Preparing a training: its source read, its model built, its folder opened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from widemax.config import Config
from widemax.data import Source
from widemax.data.splitting.holding_out import Split, later_than_asked
from widemax.data.summary import DataSummary
from widemax.models import Model
from widemax.runs.folder.creating import check_free, check_same_source, describe_source
from widemax.runs.folder.description import (
    began_from_vectors,
    check_run,
    has_grown,
    holds_run,
    stored_vocabulary,
)
from widemax.runs.folder.histories import max_history
from widemax.runs.folder.settings import ADJUSTABLE, check_same_settings, stored_config
from widemax.runs.judging.protocol import ranks_seen
from widemax.runs.judging.validation import validation_of
from widemax.runs.run import Run
from widemax.runs.source.configured import configured_for
from widemax.runs.source.reading import read_configured, read_growing, read_with
from widemax.runs.source.splitting import split_source
from widemax.runs.training.deciding import decided, said
from widemax.runs.training.opening import open_folder
from widemax.runs.training.plan import plan_to_validate
from widemax.runs.training.process import torch_as_before, use_threads
from widemax.runs.training.starting import built, tested_rates
from widemax.runs.training.training import Training, resume_loop
from widemax.runs.training.warm_start import Learned, WarmStart, as_learned
from widemax.stores.addresses import place_of
from widemax.training.checkpoints import CheckpointStore
from widemax.training.gradients.steps import AUTO
from widemax.training.loop import Loop, Progress
from widemax.training.range_test import RangeTest
from widemax.training.together import ALONE, Together
from widemax.training.tracking import check_tracking
from widemax.vectors import KeyedVectors

_LOGGER = logging.getLogger(__name__)


@torch_as_before()
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
    of the run from then on; ``on_range_test`` gets the steps that this has taken. Other settings
    that are "auto" are decided by the data, and are those of the run from then on as well.
    ``resume`` continues the run in the folder, and starts one where there is none yet. From here on
    no other process writes to the folder, until the training has been run. Processes that train
    ``together`` all read the source, and see the same folder.
    """
    source_path, folder = place_of(source_path), Path(folder)
    resume = together.decided(resume and holds_run(folder))
    if resume:
        config = _settings_to_resume(folder, config)
        vectors = _vectors_to_resume(folder, vectors, refit=config.refit)
    elif together.writes:
        check_free(folder)
    together.wait()
    check_tracking(config.tracking)
    if not resume:
        config = configured_for(source_path, config)
    use_threads(config)
    learned = None if vectors is None else as_learned(vectors)
    source = _read(source_path, config, folder if resume else None, learned)
    data, split = DataSummary.of(source), split_source(config, source)
    if not resume:
        _check_features(config, data)
    refits = _refits(config, split)
    with_seen = ranks_seen(str(config.get("seen_items", "auto")), split.validation or split.test)
    asked = config
    config = decided(config, source, split, with_seen=with_seen, learned=learned, together=together)
    automatic = said(asked, config)
    tested = None
    if config.get("learning_rate", 0.0) == AUTO:
        tested = tested_rates(config, data, split, learned, together, on_range_test)
        config = config.changed(learning_rate=tested.rate)
    with ThreadPoolExecutor(1) as beside:
        # The sha256 of a long text takes as long as its model: both at once.
        describing = beside.submit(
            describe_source, source_path, source, grown=isinstance(learned, Run)
        )
        model, steps, warm = built(config, data, split.sequences, split.goals, learned, together)
    if together.writes:
        _say_if_fewer_are_drawn(config, model)
    together.attach(steps)
    description = {
        **describing.result(),
        "ranks_seen": with_seen,
        **_findings(config, source, split, warm, tested, automatic=automatic),
    }
    if resume:
        check_same_source(folder, description, source.vocabulary)
    loop = Loop(
        steps,
        plan_to_validate(config, steps, data, split, with_seen=with_seen, refits=refits),
        store=CheckpointStore(folder, keep_last=config.keep_last),
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
    if together.writes:
        open_folder(training, source_path, resume=resume)
    together.wait()
    if resume and not together.writes:
        resume_loop(loop, folder)
    training.random_state = torch.get_rng_state()
    return training


def _settings_to_resume(folder: Path, config: Config) -> Config:
    """Return the settings of a run, but for those given anew that may be others."""
    check_same_settings(folder, config.given)
    adjusted = {name: config.given[name] for name in ADJUSTABLE if name in config.given}
    return stored_config(folder).changed(**adjusted)


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


def _check_features(config: Config, data: DataSummary) -> None:
    """Raise if a setting of features is given where there are none.

    Not at its default: a configuration that was written to a file names every setting.
    """
    if data.item_features is None and data.user_features is None:
        for name, value in config.given.items():
            option = config.options[name]
            if option.of_features and value != option.default:
                raise ValueError(f"{name} has no effect: neither items nor users have features")


def _say_if_fewer_are_drawn(config: Config, model: Model) -> None:
    drawn = getattr(model.head, "num_samples", None)
    if drawn is not None and drawn < config.num_samples:
        distinct = getattr(model.head.sampler, "unique", False)
        _LOGGER.warning(
            "%s classes are drawn in place of num_samples = %s: %s",
            f"{drawn:,}",
            f"{config.num_samples:,}",
            "distinct ones (--unique) are half of all at most" if distinct else "there are no more",
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


def _findings(
    config: Config,
    source: Source,
    split: Split,
    warm: WarmStart | None,
    tested: RangeTest | None,
    *,
    automatic: dict[str, Any],
) -> dict[str, Any]:
    """Return what a run says of its beginning beside its source, where there is anything to say."""
    found: dict[str, Any] = {}
    later = later_than_asked(source.sequences, split, config.split)
    if later is not None and later[0]:
        found["later"] = list(later)
    if warm is not None:
        found["warm_start"] = {"found": warm.found}
    if tested is not None:
        found["range_test"] = {"steps": len(tested.losses), "halfway": tested.halfway}
    if automatic:
        found["automatic"] = automatic
    return found
