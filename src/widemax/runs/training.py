"""Training a run: from a source and a configuration to a folder that resumes and answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from widemax.data import Sequences, Source, Windows, read_source
from widemax.evaluation import evaluate_ranking
from widemax.files import atomic_write, read_text
from widemax.models import Model
from widemax.runs.building import build_model, build_optimizer, model_class
from widemax.runs.config import Config
from widemax.runs.toml import read_toml, to_toml
from widemax.runs.warm_start import WarmStart, as_vectors, warm_start
from widemax.training.checkpoints import CheckpointStore
from widemax.training.loop import Loop, Plan, Progress
from widemax.training.schedules import learning_rate_at
from widemax.training.tracking import JsonLines, MLflow, TensorBoard, Tracker
from widemax.vectors import KeyedVectors

FORMAT_VERSION = 1
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


def plan_of(config: Config, num_examples: int) -> Plan:
    """Return what of a configuration concerns the loop."""
    per_epoch = math.ceil(num_examples / config.batch_size)
    total = config.steps or config.epochs * per_epoch
    return Plan(
        batch_size=config.batch_size,
        total_steps=total,
        learning_rate=learning_rate_at(
            config.schedule,  # type: ignore[arg-type]
            config.learning_rate,
            total_steps=total,
            warmup_steps=config.warmup_steps,
        ),
        seed=config.seed,
        time_budget=config.time_budget or math.inf,
        clip_norm=config.clip_norm,
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
    """Read the source, build the model, and open the folder; nothing is trained yet."""
    folder = Path(folder)
    if resume:
        if vectors is not None:
            raise ValueError("vectors start a new run: a run that is resumed has its own")
        check_run(folder)
        config = stored_config(folder)
    elif (folder / "run.json").exists():
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder")
    if config.threads:
        torch.set_num_threads(config.threads)
    source = _read(source_path, config)
    model = build_model(config, source)
    warm = None
    if vectors is not None:
        warm = warm_start(model, source.vocabulary, as_vectors(vectors))
    split = split_source(config, source)
    description = {"format": FORMAT_VERSION, **_describe(source_path, source)}
    if warm is not None:
        description["warm_start"] = {"found": warm.found}
    if resume:
        _check_same_source(folder, description)
    else:
        _create(folder, config, source, description)
    store = CheckpointStore(folder, keep_last=config.keep_last)
    loop = Loop(
        model,
        build_optimizer(config, model),
        split.training,
        plan_of(config, len(split.training)),
        store=store,
        validate=_validation(model, split.validation),
        on_step=on_step,
        on_validation=on_validation,
    )
    if resume and not loop.resume():
        _check_cold(folder)
    loop.trackers = trackers = _trackers(folder, config, loop.progress.step)
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


def _read(path: str | Path, config: Config) -> Source:
    return read_source(
        path,
        user_column=config.user_column,
        item_column=config.item_column,
        time_column=config.time_column,
        min_count=config.min_count,
    )


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


def _describe(path: str | Path, source: Source) -> dict[str, Any]:
    """Return what tells this source from another: where it is, and what was read from it."""
    digest = sha256()
    for tensor in (source.sequences.values, source.sequences.offsets):
        digest.update(_bytes(tensor))
    return {
        "source": str(Path(path).absolute()),
        "kind": source.kind,
        "classes": len(source.vocabulary),
        "sequences": len(source.sequences),
        "sha256": digest.hexdigest(),
    }


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()


def _create(folder: Path, config: Config, source: Source, description: Mapping[str, Any]) -> None:
    """Make the folder; ``run.json`` comes last, so a folder with it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / "config.toml") as file:
        file.write(to_toml(config).encode())
    source.vocabulary.save(folder / "vocabulary.parquet")
    with atomic_write(folder / "run.json") as file:
        file.write((json.dumps(description, indent=1) + "\n").encode())


def stored_config(folder: Path) -> Config:
    """Return the configuration that a run was started with."""
    values: dict[str, Any] = dict(read_toml(folder / "config.toml"))
    return Config(**values)


def check_run(folder: Path) -> dict[str, Any]:
    """Return what ``run.json`` says, if this is the folder of a run that we can read."""
    path = folder / "run.json"
    if not path.is_file():
        raise ValueError(f"{folder} is not the folder of a run: it has no run.json")
    try:
        description = json.loads(read_text(path))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    version = description.get("format") if isinstance(description, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{path} is damaged: it names no format version")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{folder} has format version {version}, this widemax reads up to {FORMAT_VERSION}: "
            "a newer widemax is needed"
        )
    return dict(description)


def _check_same_source(folder: Path, description: Mapping[str, Any]) -> None:
    before = check_run(folder)
    if before.get("sha256") != description["sha256"]:
        raise ValueError(
            f"{description['source']} is not what {folder} was trained on: the content differs; "
            "a run is resumed on the same data"
        )


def _check_cold(folder: Path) -> None:
    """Raise if a run without a checkpoint began from vectors: they are not kept, so it cannot."""
    if "warm_start" in check_run(folder):
        raise ValueError(
            f"{folder} began from vectors and was stopped before its first checkpoint: "
            "train it again, with them, in another folder"
        )
