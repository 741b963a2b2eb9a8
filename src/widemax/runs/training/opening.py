"""Opening the folder of a training: written for a new run, continued for one that is resumed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from widemax.config import Config
from widemax.data import Source
from widemax.data.splitting.holding_out import Split
from widemax.runs.folder.creating import check_free, create_folder, finish_folder
from widemax.runs.folder.features import store_features
from widemax.runs.folder.kept_data import earlier_histories, keep_data
from widemax.runs.folder.settings import continue_with
from widemax.runs.run import Run
from widemax.runs.source.features import shown_columns
from widemax.runs.training.training import Training, resume_loop
from widemax.storage.files import remove_torn_files
from widemax.training.tracking import JsonLines, MLflow, TensorBoard, Tracker
from widemax.vectors import KeyedVectors


def open_folder(training: Training, source_path: str | Path, *, resume: bool) -> None:
    """Open the folder, to which no other process writes from here on."""
    folder, loop = training.folder, training.loop
    with ExitStack() as if_this_fails:
        # Before anything is written: a run that another process trains must not lose a line.
        if_this_fails.enter_context(loop.store)
        if not resume:
            check_free(folder)
        remove_torn_files(folder)
        if resume:
            resume_loop(loop, folder)
            continue_with(folder, training.config.given)
        else:
            _write(training, source_path)
        loop.trackers = _trackers(folder, training.config, loop.progress.step, if_this_fails)
        if_this_fails.pop_all()


def _write(training: Training, source_path: str | Path) -> None:
    """Write what the folder of a new run keeps of its data."""
    folder, config, source = training.folder, training.config, training.source
    shown = shown_columns(source_path, config, source.vocabulary)
    create_folder(folder, config, source, shown)
    store_features(folder, source)
    keep_data(
        folder,
        source,
        training.split,
        refit_counts=_refit_counts(source, training.split, training.learned),
        earlier=_earlier(training.learned, source),
    )
    finish_folder(folder, training.description)


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


def _earlier(learned: KeyedVectors | Run | None, source: Source) -> pl.DataFrame | None:
    """Return what users had in the log of the run that this one starts from."""
    if not isinstance(learned, Run) or source.kind == "text":
        return None
    return earlier_histories(learned.folder, learned.vocabulary, source.vocabulary)


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
