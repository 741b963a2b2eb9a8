"""SASRec on Amazon Beauty: full cross-entropy, sampled softmax and one negative, all else equal.

Two blocks of vectors of 64 read the last 50 items; each item is told from those before it. The
last item of a user is the test, the one before it chooses the epoch, and all 54,542 items are
ranked but those the user had. Only the loss changes from row to row. Its speed is that of the head
alone, forward and backward on the states of one batch, in turn with the full head.

    python experiments/beauty.py [--rows sampled_3000,full] [--resume] [--json FILE] [--check]

Each row is stored in results/beauty.rows.json as soon as it is done, and the table in
results/beauty.table.md; with --resume rows of the same configuration are not trained again. The
data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _beauty import MAX_HISTORY, Beauty, judge, load_beauty, train
from _common import DATA, some_users
from _harness import Report, command_line, interleaved
from _stored import StoredRows, some_of
from widemax.encoders.sasrec import SASRecEncoder
from widemax.heads import FullHead, Head, SampledHead, hits_by_class
from widemax.models import Model
from widemax.models.baselines.item_knn import ItemKNN
from widemax.models.baselines.popularity import Popularity
from widemax.models.retrieval.sasrec import SASRec
from widemax.objectives import negative_sampling
from widemax.sampling import UniformSampler, UnigramSampler
from widemax.scoring import TableScorer
from widemax.training.steps import GradientSteps

RESULTS = Path(__file__).resolve().parent / "results"
STORED, TABLE = StoredRows(RESULTS / "beauty.rows.json"), RESULTS / "beauty.table.md"
MOST_SECONDS = 7200.0
WATCHED_USERS = 10_000
TIMED = 15
NUM_PARTS = 8


@dataclass(frozen=True)
class Setting:
    """The one encoder and how it is trained, chosen on the valid part with a sampled softmax."""

    dimension: int = 64
    num_blocks: int = 2
    num_heads: int = 1
    dropout: float = 0.5
    batch_size: int = 128
    learning_rate: float = 2e-3
    averaging: float = 0.998
    patience: int = 8
    seed: int = 0


@dataclass(frozen=True)
class Loss:
    """One way to train the encoder."""

    title: str
    head: Callable[[Beauty, TableScorer], Head]
    epochs: int
    least: tuple[float, float] | None = None
    """What HR@10 and NDCG@10 must reach."""
    within: float | None = None
    """How far below the full cross-entropy they may be, as a share of it."""
    least_speed: float | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    """What of the setting is another for this loss, chosen on the valid part."""


class InParts(SampledHead):
    """Each eighth of a batch has negatives of its own, and all their vectors are looked up at once.

    All negatives of a batch are then eight times as many for the same products.
    """

    def forward(
        self, hidden: Tensor, targets: Tensor, *, generator: torch.Generator | None = None
    ) -> Tensor:
        parts = targets.chunk(NUM_PARTS)
        drawn = [self.sampler.sample(self.num_samples, part, generator=generator) for part in parts]
        ids = [targets, *(each.ids for each in drawn)]
        own, *others = self.scorer.class_vectors(torch.cat(ids)).split([len(each) for each in ids])
        target_scores = (hidden * own).sum(-1).chunk(NUM_PARTS)
        losses = [
            self.objective(
                scores,
                states @ vectors.T,
                target_log_expected_count=candidates.target_log_expected_count,
                log_expected_count=candidates.log_expected_count,
                hits=hits_by_class(candidates.ids, part),
            )
            for scores, states, vectors, candidates, part in zip(
                target_scores, hidden.chunk(NUM_PARTS), others, drawn, parts, strict=True
            )
        ]
        return torch.cat(losses)


def _shared(
    num_samples: int, distortion: float, kind: type[SampledHead] = SampledHead
) -> Callable[[Beauty, TableScorer], Head]:
    def head(data: Beauty, scorer: TableScorer) -> Head:
        # One more of each: an item that is never drawn is never told to stay down.
        sampler = UnigramSampler(
            data.num_classes, data.counts + 1, distortion=distortion, unique=True
        )
        return kind(scorer, sampler, num_samples=num_samples)

    return head


def _one_negative(data: Beauty, scorer: TableScorer) -> Head:
    sampler = UniformSampler(data.num_classes, per_example=True)
    return SampledHead(scorer, sampler, objective=negative_sampling, num_samples=1)


LOSSES = {
    "sampled_3000": Loss(
        title="sampled softmax + log Q, 3,000 shared",
        head=_shared(3000, 0.5),
        epochs=30,
        least=(0.047, 0.028),
    ),
    "sampled_512": Loss(
        title="sampled softmax + log Q, 512 shared by an eighth of the batch",
        head=_shared(512, 0.5, InParts),
        epochs=70,
        within=0.05,
        least_speed=5.0,
    ),
    "one_negative": Loss(
        title="binary cross-entropy, one uniform negative",
        head=_one_negative,
        epochs=300,
        # For long it knows nothing but which items are popular; with the dropout and the rate of
        # the others that took it 30 epochs.
        own={"dropout": 0.2, "learning_rate": 1e-3, "patience": 40},
    ),
    "full": Loss(
        title="full cross-entropy",
        head=lambda data, scorer: FullHead(scorer),
        epochs=25,
        least=(0.050, 0.030),
    ),
}
"""In the order in which they are trained: the dearest is last."""


@dataclass(frozen=True)
class Row:
    """What one loss came to."""

    valid_hit_rate: float
    valid_ndcg: float
    hit_rate: float
    ndcg: float
    epochs: int
    """Until the best."""
    train_seconds: float
    speed: float
    """Of the head alone, as a ratio to the full head."""


def build(setting: Setting, loss: Loss, data: Beauty) -> SASRec:
    """The model with a loss; its encoder starts the same under all of them."""
    torch.manual_seed(setting.seed)
    encoder = SASRecEncoder(
        data.num_classes,
        setting.dimension,
        MAX_HISTORY,
        num_blocks=setting.num_blocks,
        num_heads=setting.num_heads,
        dropout=setting.dropout,
    )
    return SASRec(encoder, loss.head(data, TableScorer.tied(encoder.items)))


def measure(setting: Setting, loss: Loss, data: Beauty) -> Row:
    """Train with a loss, judge on valid and once on test, then time its head."""
    setting = replace(setting, **loss.own)
    model = build(setting, loss, data)
    steps = GradientSteps(
        model,
        # Dense: the momentum of rare items goes on between the few batches that show them.
        torch.optim.Adam(model.parameters(), fused=True),
        model.segments(data.train, length=MAX_HISTORY),
        batch_size=setting.batch_size,
        seed=setting.seed,
    )
    history = train(
        model,
        steps,
        some_users(data.valid, WATCHED_USERS),
        epochs=loss.epochs,
        learning_rate=setting.learning_rate,
        averaging=setting.averaging,
        patience=setting.patience,
        progress=lambda line: print(f"  {line}", flush=True),
    )
    valid, test = judge(model, data.valid), judge(model, data.test)
    return Row(
        valid_hit_rate=valid.hit_rate,
        valid_ndcg=valid.ndcg,
        hit_rate=test.hit_rate,
        ndcg=test.ndcg,
        epochs=history.best_epoch,
        train_seconds=history.seconds,
        speed=speed(setting, loss, data, model),
    )


def speed(setting: Setting, loss: Loss, data: Beauty, model: SASRec) -> float:
    """How many times faster the head is than the full one, on the states of one batch."""
    if loss is LOSSES["full"]:
        return 1.0
    model.eval()
    segments = model.segments(data.train, length=MAX_HISTORY)
    generator = torch.Generator().manual_seed(setting.seed)
    rows = torch.randperm(len(segments), generator=generator)[: setting.batch_size]
    batch = segments.batch(rows)
    held: dict[str, Tensor] = {}
    hook = model.head.register_forward_pre_hook(
        lambda head, inputs: held.update(hidden=inputs[0], targets=inputs[1])
    )
    with torch.no_grad():
        model(batch, generator=generator)
    hook.remove()
    hidden = held["hidden"].requires_grad_()

    def run(head: Head) -> None:
        hidden.grad = None
        head.zero_grad()
        head(hidden, held["targets"], generator=generator).mean().backward()

    full = FullHead(model.head.scorer)
    seconds = interleaved({"full": lambda: run(full), "own": lambda: run(model.head)}, TIMED)
    return seconds["full"] / seconds["own"]


def configuration(setting: Setting, loss: Loss) -> dict[str, Any]:
    """What a stored row must have been made with to be taken for this one."""
    return {**asdict(setting), **loss.own, "title": loss.title, "epochs": loss.epochs}


def stored_rows(setting: Setting) -> dict[str, Row]:
    """The stored rows that were made with this configuration, in the order of the losses."""
    made_with = {name: configuration(setting, loss) for name, loss in LOSSES.items()}
    return {name: Row(**row) for name, row in STORED.fitting(made_with).items()}


def store(setting: Setting, name: str, row: Row, floors: dict[str, Row]) -> None:
    """Add a row to those of the file, and write the table anew."""
    STORED.add(name, configuration(setting, LOSSES[name]), asdict(row))
    TABLE.write_text(markdown(setting, stored_rows(setting), floors))


def floors_of(data: Beauty) -> dict[str, Row]:
    """Recommenders that are only counted, to see what training is worth."""
    models: dict[str, Model] = {
        "popularity": Popularity(data.num_classes),
        "item-kNN": ItemKNN(data.num_classes),
    }
    floors = {}
    for name, model in models.items():
        model.fit(data.train)
        valid, test = judge(model, data.valid), judge(model, data.test)
        floors[name] = Row(*valid, *test, epochs=0, train_seconds=0.0, speed=math.nan)
        print(f"{name}\n  {floors[name]}", flush=True)
    return floors


def markdown(setting: Setting, rows: dict[str, Row], floors: dict[str, Row]) -> str:
    lines = [
        f"SASRec on Amazon Beauty: {setting.num_blocks} blocks, vectors of {setting.dimension}, "
        f"dropout {setting.dropout:g}, the last {MAX_HISTORY} items; Adam at "
        f"{setting.learning_rate:g}, batches of {setting.batch_size} users, running means of "
        f"the weights ({setting.averaging:g} a step). Rankings over all items, seen "
        "ones left out. `python experiments/beauty.py`",
        "",
        "| loss | test HR@10 | test NDCG@10 | valid HR@10 | epochs | training (s) | head to full "
        "| changed |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, row in floors.items():
        lines.append(f"| {name} | {_figures(row)} | | | | |")
    for name, row in rows.items():
        loss = LOSSES[name]
        changed = ", ".join(f"{name} {value:g}" for name, value in loss.own.items())
        lines.append(
            f"| {loss.title} | {_figures(row)} | {row.epochs} | {row.train_seconds:,.0f} "
            f"| {row.speed:.1f}× | {changed} |"
        )
    return "\n".join(lines) + "\n"


def _figures(row: Row) -> str:
    return " | ".join(f"{figure:.4f}" for figure in (row.hit_rate, row.ndcg, row.valid_hit_rate))


def add_bars(report: Report, rows: dict[str, Row]) -> None:
    full = rows.get("full")
    for name, row in rows.items():
        loss = LOSSES[name]
        least = loss.least or (None, None)
        if loss.within is not None:
            # Without the row that it is held to, the bar is NaN, which nothing keeps.
            kept = 1 - loss.within
            least = (kept * full.hit_rate, kept * full.ndcg) if full else (math.nan, math.nan)
        report.add(f"{loss.title}: test HR@10", row.hit_rate, least[0])
        report.add(f"{loss.title}: test NDCG@10", row.ndcg, least[1])
        report.add(f"{loss.title}: head, speed to full", row.speed, loss.least_speed)
        report.add(f"{loss.title}: seconds", row.train_seconds, MOST_SECONDS, "at most")


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--rows", type=some_of(LOSSES), default=list(LOSSES), help="like sampled_512,full"
    )
    parser.add_argument("--resume", action="store_true", help="keep stored rows that fit")
    options = parser.parse_args()
    data = load_beauty()
    if data is None:
        print(f"nothing measured: there is no Beauty in {DATA} (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(1)
    setting, floors = Setting(), floors_of(data)
    done = stored_rows(setting) if options.resume else {}
    for name in options.rows:
        if name not in done:
            print(f"{LOSSES[name].title}", flush=True)
            done[name] = measure(setting, LOSSES[name], data)
            store(setting, name, done[name], floors)
            print(f"  {done[name]}", flush=True)
    rows = {name: done[name] for name in LOSSES if name in done}
    print(markdown(setting, rows, floors))
    report = Report(options)
    for name, row in floors.items():
        report.add(f"{name}: test HR@10", row.hit_rate)
    add_bars(report, rows)
    report.finish()


if __name__ == "__main__":
    main()
