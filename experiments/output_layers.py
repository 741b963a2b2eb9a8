"""One feed-forward language model on the Penn Treebank; only its output layer changes.

Every layer is trained from the same start of the same encoder on the same batches. The table has
the exact test perplexity, from a distribution that is normalised over all classes explicitly; the
training speed as a ratio to the full softmax, medians over blocks of steps that alternate with
those of a full softmax on the same batches, after training; and the outputs computed a token.

    python experiments/output_layers.py [--rows full,adaptive] [--resume] [--json FILE] [--check]
    python experiments/output_layers.py --rows sampled,clustered --seeds 3 --resume

Each row is stored in results/output_layers.rows.json as soon as it is done, and the table in
results/output_layers.table.md; with --resume rows of the same configuration are not trained again.
All have been trained with one seed, some with more, which are stored beside it: the table then has
the mean, and how far apart they are.
The data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _harness import Report, command_line
from _heads import Task
from _language import Corpus, examples_of, load_ptb, mean_states, perplexity, train
from _layers import LAYERS, DrawCounter, Layer
from _stored import StoredRows, some_of
from widemax.encoders import NNLMEncoder
from widemax.models import NNLM
from widemax.training.gradients.steps import GradientSteps

RESULTS = Path(__file__).resolve().parent / "results"
STORED, TABLE = StoredRows(RESULTS / "output_layers.rows.json"), RESULTS / "output_layers.table.md"
MOST_PERPLEXITY = 140.2
MOST_SEEDS = 3
# Valid perplexity after each epoch is exact, on each n-th word: it only chooses the epoch.
VALID_EVERY = 4
TIMED_BLOCKS, STEPS_A_BLOCK = 15, 4


@dataclass(frozen=True)
class Setting:
    """The one model and how it is trained, chosen on the valid part with a sampled softmax."""

    context_size: int = 5
    dimension: int = 128
    hidden_size: int = 128
    dropout: float = 0.2
    batch_size: int = 256
    epochs: int = 5
    learning_rate: float = 0.0015
    warmup_epochs: float = 0.03
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """What one layer came to."""

    valid_perplexity: float
    test_perplexity: float
    speed: float
    """Tokens a second, as a ratio to the full softmax."""
    outputs: float
    """Class or node scores computed a training token."""
    train_seconds: float
    remark: str = ""


def task_of(setting: Setting, corpus: Corpus) -> Task:
    return Task(
        corpus,
        setting.hidden_size,
        setting.batch_size,
        setting.context_size,
        class_vectors=partial(pretrained_states, setting, corpus),
    )


def build(setting: Setting, layer: Layer, task: Task) -> NNLM:
    """The model with a layer; its encoder starts the same under all of them."""
    torch.manual_seed(setting.seed)
    encoder = NNLMEncoder(
        task.num_classes,
        setting.context_size,
        setting.dimension,
        setting.hidden_size,
        dropout=setting.dropout,
    )
    return NNLM(encoder, layer.make(task))


def optimizer_of(model: NNLM, weight_decay: float = 0.0) -> torch.optim.Optimizer:
    """Adam; ``weight_decay`` is of the vectors of classes or nodes."""
    most = model.head.num_classes - 1
    vectors = [each for each in model.head.parameters() if each.dim() > 1 and len(each) >= most]
    decaying = vectors if weight_decay else []
    own = {id(each) for each in decaying}
    others = [each for each in model.parameters() if id(each) not in own]
    groups = [
        {"params": others, "weight_decay": 0.0},
        {"params": decaying, "weight_decay": weight_decay},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], fused=True)


def pretrained_states(setting: Setting, corpus: Corpus, epochs: int) -> Tensor:
    """The mean state before each word in a sampled softmax, to cluster a tree by."""
    model = build(setting, LAYERS["sampled"], task_of(setting, corpus))
    train(
        model,
        corpus.train,
        corpus.valid,
        optimizer_of(model),
        epochs=epochs,
        batch_size=setting.batch_size,
        learning_rate=setting.learning_rate,
        schedule="linear",
        warmup_epochs=setting.warmup_epochs,
        seed=setting.seed,
        valid_every=VALID_EVERY,
        progress=lambda line: print(f"  for the tree: {line}", flush=True),
    )
    return mean_states(model, corpus.train, corpus.num_classes)


def measure(setting: Setting, layer: Layer, corpus: Corpus) -> Row:
    """Train a layer, measure it, then time it."""
    task = task_of(setting, corpus)
    model = build(setting, layer, task)
    drawn = DrawCounter()
    if layer.counts_draws:
        model.head.register_forward_hook(drawn)
    history = train(
        model,
        corpus.train,
        corpus.valid,
        optimizer_of(model, layer.weight_decay),
        epochs=layer.epochs or setting.epochs,
        batch_size=1 if layer.examples else setting.batch_size,
        learning_rate=layer.learning_rate or setting.learning_rate,
        schedule="linear",
        warmup_epochs=setting.warmup_epochs,
        seed=setting.seed,
        valid_every=VALID_EVERY,
        examples=layer.examples(task, model.head) if layer.examples else None,
        progress=lambda line: print(f"  {line}", flush=True),
    )
    outputs = drawn.mean if layer.counts_draws else layer.outputs(task, model.head)
    # The timing, which goes on training, is last.
    return Row(
        valid_perplexity=perplexity(model, corpus.valid),
        test_perplexity=perplexity(model, corpus.test),
        remark=remark(layer, model, corpus),
        outputs=outputs,
        train_seconds=history.seconds,
        speed=speed(setting, layer, task, model),
    )


@torch.no_grad()
def remark(layer: Layer, model: NNLM, corpus: Corpus) -> str:
    if layer.remark is None:
        return ""
    model.eval()
    every_eighth = torch.arange(0, len(corpus.test), 8)
    batch = examples_of(model, corpus.test).batch(every_eighth)
    return layer.remark(model.head, model.encode(batch.context), batch.targets)


def speed(setting: Setting, layer: Layer, task: Task, model: NNLM) -> float:
    """Tokens a second of a trained model over those of a full softmax, block by block in turn."""
    full = LAYERS["full"]
    if layer is full:
        return 1.0
    both = [
        _stepping(setting, full, task, build(setting, full, task)),
        _stepping(setting, layer, task, model),
    ]
    seconds: list[list[float]] = [[], []]
    for block in range(TIMED_BLOCKS + 1):
        for steps, taken in zip(both, seconds, strict=True):
            start = time.perf_counter()
            for step in range(STEPS_A_BLOCK):
                steps.take(block * STEPS_A_BLOCK + step, 1e-5)
            taken.append(time.perf_counter() - start)
    # The first block warms up.
    medians = [statistics.median(taken[1:]) for taken in seconds]
    return medians[0] / medians[1]


def _stepping(setting: Setting, layer: Layer, task: Task, model: NNLM) -> GradientSteps:
    own = layer.examples(task, model.head) if layer.examples else None
    return GradientSteps(
        model,
        optimizer_of(model, layer.weight_decay),
        own or examples_of(model, task.corpus.train),
        batch_size=1 if own else setting.batch_size,
        seed=setting.seed + 1,
    )


def configuration(setting: Setting, layer: Layer) -> dict[str, Any]:
    """What a stored row must have been made with to be taken for this one."""
    own = {
        "learning_rate": layer.learning_rate or setting.learning_rate,
        "epochs": layer.epochs or setting.epochs,
    }
    own |= {"weight_decay": layer.weight_decay} if layer.weight_decay else {}
    return {**asdict(setting), **own, "title": layer.title, "note": layer.note}


Done = dict[str, dict[int, Row]]
"""By the name of the layer, a row for each seed."""


def stored_key(name: str, seed: int) -> str:
    return f"{name}, seed {seed}" if seed else name


def stored_rows(setting: Setting) -> Done:
    """The stored rows that were made with this configuration, in the order of the layers."""
    keys = {stored_key(name, seed): (name, seed) for name in LAYERS for seed in range(MOST_SEEDS)}
    made_with = {
        key: configuration(replace(setting, seed=seed), LAYERS[name])
        for key, (name, seed) in keys.items()
    }
    rows: Done = {}
    for key, row in STORED.fitting(made_with).items():
        name, seed = keys[key]
        rows.setdefault(name, {})[seed] = Row(**row)
    return rows


def store(setting: Setting, name: str, row: Row) -> None:
    """Add a row to those of the file, and write the table anew."""
    STORED.add(stored_key(name, setting.seed), configuration(setting, LAYERS[name]), asdict(row))
    TABLE.write_text(markdown(Setting(), stored_rows(Setting())))


def mean_perplexity(rows: dict[int, Row]) -> float:
    """The test perplexity, the mean over the seeds that are there."""
    return statistics.mean(row.test_perplexity for row in rows.values())


def full_perplexity(done: Done) -> float:
    """What all are held to; without it their bars are NaN, which nothing keeps."""
    return mean_perplexity(done["full"]) if "full" in done else math.nan


def markdown(setting: Setting, done: Done) -> str:
    """The table; perplexities beside that of the full softmax where there is one."""
    full = full_perplexity(done)
    lines = [
        f"Feed-forward language model on the Penn Treebank: {setting.context_size} words of "
        f"context, vectors of {setting.dimension}, {setting.hidden_size} hidden units, dropout "
        f"{setting.dropout:g}; Adam from {setting.learning_rate:g} down to 0 over "
        f"{setting.epochs} epochs, batches of {setting.batch_size}. "
        "`python experiments/output_layers.py`",
        "",
        "| output layer | test perplexity | to full | tokens/s to full | outputs a token | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for name, rows in done.items():
        figure, row = mean_perplexity(rows), _first(rows)
        lines.append(
            f"| {LAYERS[name].title} | {figure:,.1f} | {100 * (figure / full - 1):+,.1f} % "
            f"| {row.speed:.2f} | {row.outputs:,.1f} | {'; '.join(_notes(LAYERS[name], rows))} |"
        )
    return "\n".join(lines) + "\n"


def _first(rows: dict[int, Row]) -> Row:
    return rows[min(rows)]


def _notes(layer: Layer, rows: dict[int, Row]) -> list[str]:
    notes = [] if layer.likelihood else ["**not likelihood-consistent**"]
    notes += [f"rate {layer.learning_rate:g}"] if layer.learning_rate else []
    notes += [f"{layer.epochs} epochs"] if layer.epochs else []
    notes += [f"weight decay {layer.weight_decay:g}"] if layer.weight_decay else []
    if len(rows) > 1:
        figures = [row.test_perplexity for row in rows.values()]
        notes.append(f"{len(rows)} seeds from {min(figures):.1f} to {max(figures):.1f}")
    return notes + [note for note in (layer.note, _first(rows).remark) if note]


def add_bars(report: Report, done: Done) -> None:
    full = full_perplexity(done)
    for name, rows in done.items():
        layer, row = LAYERS[name], _first(rows)
        limit = MOST_PERPLEXITY if name == "full" else None
        if layer.within is not None:
            limit = full * (1 + layer.within)
        report.add(f"{layer.title}: test perplexity", mean_perplexity(rows), limit, "at most")
        report.add(f"{layer.title}: tokens/s to full", row.speed)
        report.add(f"{layer.title}: outputs a token", row.outputs)


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--rows", type=some_of(LAYERS), default=list(LAYERS), help="like full,adaptive"
    )
    parser.add_argument(
        "--seeds", type=int, choices=range(1, MOST_SEEDS + 1), default=1, help="of each row"
    )
    parser.add_argument("--resume", action="store_true", help="keep stored rows that fit")
    options = parser.parse_args()
    corpus = load_ptb()
    if corpus is None:
        print("nothing measured: there is no Penn Treebank (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(1)
    setting = Setting()
    done = stored_rows(setting) if options.resume else {}
    for name in options.rows:
        rows = done.setdefault(name, {})
        for seed in range(options.seeds):
            if seed not in rows:
                print(f"{LAYERS[name].title}, seed {seed}", flush=True)
                seeded = replace(setting, seed=seed)
                rows[seed] = measure(seeded, LAYERS[name], corpus)
                store(seeded, name, rows[seed])
                print(f"  {rows[seed]}", flush=True)
    done = {name: done[name] for name in LAYERS if name in done}
    print(markdown(setting, done))
    report = Report(options)
    add_bars(report, done)
    report.finish()


if __name__ == "__main__":
    main()
