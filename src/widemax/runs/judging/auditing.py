"""The audit of a run: on what it holds out, and kept in its folder."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from widemax.auditing.examining.examination import AuditedExamples, Examination, Stage
from widemax.auditing.examining.findings import RunAudit
from widemax.auditing.examining.remedies import Workshop
from widemax.auditing.measuring.gradient import MAX_EXAMPLES
from widemax.config import Config
from widemax.config.flags import as_flags
from widemax.data import Holdout, Sequences, WindowBatch, Windows
from widemax.data.summary import DataSummary
from widemax.evaluation.list_metrics import BUCKETS, popularity_buckets
from widemax.models import Model
from widemax.runs.folder.histories import max_history
from widemax.runs.folder.kept_data import KeptTest
from widemax.runs.judging.held_out import NextItems
from widemax.storage.files import atomic_write
from widemax.storage.manifest import DamagedFileError, read_manifest
from widemax.stores.addresses import place_of
from widemax.validation import check_whole

AUDIT = "audit.json"
AUDIT_VERSION = 1

_USUAL_EXAMPLES = 256
_MAX_OUTPUTS = 2**28
"""Exact outputs of an audit: of very many classes fewer examples are taken."""


def usual_examples(num_classes: int) -> int:
    """Return how many examples are audited unless another number is asked for.

    >>> usual_examples(1_000), usual_examples(10_000_000)
    (256, 26)
    """
    return max(16, min(_USUAL_EXAMPLES, _MAX_OUTPUTS // num_classes))


def audit_run(
    model: Model,
    data: DataSummary,
    test: KeptTest,
    config: Config,
    *,
    corpus: Sequences | None,
    step: int,
    draws: int,
    examples: int | None,
    num_samples: Sequence[int],
    tolerance: float,
    seed: int,
    progress: Stage | None,
) -> RunAudit:
    """Return what the audit of a trained model finds on what its run holds out."""
    if "gradients" not in config.parts["model"].traits or not model.trains_by_head:
        raise ValueError(
            f"model {config.model!r} is not trained by the gradients of an output layer: there is "
            "nothing to audit"
        )
    most = usual_examples(model.head.num_classes) if examples is None else examples
    most = check_whole("examples", most, 1, MAX_EXAMPLES)
    return Examination(
        model.head,
        Workshop(config, data, model.head, corpus),
        audited_examples(model, test, config, most=most, seed=seed),
        draws=draws,
        tolerance=tolerance,
        seed=seed,
        progress=progress,
    ).make(step, num_samples)


@torch.no_grad()
def audited_examples(
    model: Model, test: KeptTest, config: Config, *, most: int, seed: int
) -> AuditedExamples:
    """Return some of what a run holds out, as the head of its model is trained on it."""
    generator = torch.Generator().manual_seed(seed)
    sampler = model.head.proposal
    batch_size = int(config.get("batch_size", 1024))
    if sampler is not None and sampler.from_batch:
        # Batches of the size of training, of which there must be more than one.
        most = max(most, min(4 * batch_size, _MAX_OUTPUTS // model.head.num_classes))
    asked = test.holdout if test.holdout is not None else test.windows
    if asked is None or not len(asked):
        raise ValueError("nothing was held out to audit on")
    # What was never a target in training has no gradient there, and may never be drawn.
    known = (test.counts[_targets(asked)] > 0).nonzero()[:, 0]
    if not len(known):
        raise ValueError("nothing was held out to audit on that was trained on")
    # In order: a text that is read as one stream is read once.
    rows = known[torch.randperm(len(known), generator=generator)[:most]].sort().values
    hidden, batch = _states(model, asked, rows, config, generator)
    groups = popularity_buckets(test.counts)[batch.targets]
    return AuditedExamples(
        hidden=hidden,
        targets=batch.targets,
        contexts=batch.context,
        groups={name: groups == number for number, name in enumerate(BUCKETS)},
        batch_size=batch_size,
        objects="items" if test.holdout is not None else "words",
    )


def _targets(asked: Holdout | Windows) -> Tensor:
    """Return what is asked for first in each question, or the word at each place, [N]."""
    if isinstance(asked, Holdout):
        return asked.targets.values[asked.targets.offsets[:-1]]
    values, places = asked.sequences.values, asked.positions
    return values if places is None else values[places]


def _states(
    model: Model, asked: Holdout | Windows, rows: Tensor, config: Config, generator: torch.Generator
) -> tuple[Tensor, WindowBatch]:
    if isinstance(asked, Holdout):
        batch = NextItems(asked, max_history(config)).batch(rows)
        return model.trained_on(batch, generator), batch
    batch, read = asked.batch(rows), model.reading(asked)
    if read is not None:
        return read.batch(rows).context, batch
    return model.trained_on(batch, generator), batch


def training_commands(found: RunAudit, run: Path, source: str, kind: str) -> list[str]:
    """Return commands that train with the remedies that help most, best first."""
    here, shown = Path.cwd(), place_of(source)
    if isinstance(shown, Path) and shown.is_relative_to(here):
        shown = shown.relative_to(here)
    commands = []
    for remedy in found.helpful[:2]:
        config = Config(source=kind, **remedy.minimal)
        plugins = [word for each in _plugins(config) for word in ("--plugin", each)]
        name = "-".join(str(value) for value in remedy.settings.values()).lower()
        folder = run.with_name(f"{run.name or 'run'}-{name}")
        words = ["widemax", *plugins, "train", str(shown), "--folder", str(folder)]
        commands.append(shlex.join([*words, *as_flags(remedy.minimal)]))
    return commands


def _plugins(config: Config) -> list[str]:
    """Return the files of the methods that are not the package's own."""
    homes = [part.lives.partition(":")[0] for part in config.parts.values()]
    others = dict.fromkeys(home for home in homes if not home.startswith("widemax."))
    return [str(getattr(sys.modules.get(home), "__file__", None) or home) for home in others]


def keep_audit(folder: Path, found: RunAudit, commands: Sequence[str]) -> dict[str, Any]:
    """Write what was found beside the run, with its sha256, and return it as JSON holds it."""
    content = as_json(found, commands)
    text = json.dumps(content, allow_nan=False, sort_keys=True)
    fields = {
        "format": AUDIT_VERSION,
        "sha256": sha256(text.encode()).hexdigest(),
        "audit": content,
    }
    with atomic_write(folder / AUDIT) as file:
        file.write(json.dumps(fields, allow_nan=False, indent=1).encode() + b"\n")
    return content


def stored_audit(folder: Path) -> dict[str, Any] | None:
    """Return the last audit of a run, if it is still what was written; None: there is none."""
    path = folder / AUDIT
    if not path.exists():
        return None
    content = read_manifest(
        path, AUDIT_VERSION, version_field="format", if_older="audit the run again"
    )
    found = content.get("audit")
    text = json.dumps(found, sort_keys=True)
    if not isinstance(found, dict) or sha256(text.encode()).hexdigest() != content.get("sha256"):
        raise DamagedFileError(path, "was changed: its sha256 is not the one recorded")
    return found


def as_json(found: RunAudit, commands: Sequence[str]) -> dict[str, Any]:
    """Return the findings of an audit as JSON holds them; null for a number that is not finite."""
    series = found.by_samples
    content = {
        "verdict": found.verdict,
        "sentence": found.sentence,
        "commands": list(commands),
        "step": found.step,
        "seed": found.seed,
        "report": dataclasses.asdict(found.report),
        "cost": dataclasses.asdict(found.cost),
        "remedies": [
            {
                "words": str(each),
                "settings": dict(each.settings),
                "report": dataclasses.asdict(each.report),
                "cost": dataclasses.asdict(each.cost),
            }
            for each in found.remedies
        ],
        "by_samples": None,
    }
    if series is not None:
        slopes = {"bias": series.bias_slope, "variance": series.variance_slope}
        content["by_samples"] = {
            "num_samples": list(series.num_samples),
            "reports": [dataclasses.asdict(each) for each in series.reports],
            "slopes": {
                name: None if slope is None else dataclasses.asdict(slope)
                for name, slope in slopes.items()
            },
        }
    cleaned = _plain(content)
    assert isinstance(cleaned, dict)
    return cleaned


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
