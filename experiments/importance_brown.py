"""Importance sampling against the full softmax on Brown: how many class scores each computes.

One small feed-forward language model (Bengio, Ducharme, Vincent & Janvin 2003), trained three
times from the same start, on the same batches, with the same optimiser and schedule: with the full
softmax, and with log Z from draws alone (Bengio & Senécal 2003, 2008), once of the unigram, shared
by the batch, once of a trigram that is interpolated and follows the model, own draws for each word.

What counts are the output evaluations in training, scores of one class for one word: V a word for
the full softmax, draws + 1 a word for the others, shared or not. They are summed until the
validation perplexity first comes within 2 % of the best of the full softmax; that is where the
full softmax is counted too. Perplexities are exact; the curve is measured on each tenth word
several times an epoch, the end of each training on all.

Seconds are those of the processor in training steps, on one thread. Words that stand only in the
parts that are not trained on borrow from <unk>, as in nnlm_brown.py, under all three.

    python experiments/importance_brown.py [--resume] [--json FILE] [--check]

Each training is stored in results/importance_brown.parts.json as it ends; with --resume one of the
same setting is not repeated.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import DATA
from _harness import Report, command_line
from _language import Corpus, examples_of, load_brown, perplexity
from nnlm_brown import UnseenWords
from widemax.encoders import NNLMEncoder
from widemax.heads import FullHead, Head, ImportanceHead
from widemax.models import NNLM
from widemax.sampling import NGramSampler, UnigramSampler
from widemax.scoring import TableScorer
from widemax.training.gradients.steps import GradientSteps
from widemax.training.schedules import learning_rate_at

STORED = Path(__file__).resolve().parent / "results" / "importance_brown.parts.json"
WITHIN = 1.02
LEAST_FEWER = {"unigram": 19.0, "trigram": 100.0}


@dataclass(frozen=True)
class Setting:
    """The one model and how it is trained; the full softmax sets it, the others follow."""

    context_size: int = 4
    dimension: int = 64
    dropout: float = 0.2
    batch_size: int = 512
    epochs: int = 2
    learning_rate: float = 2e-3
    seed: int = 1
    num_points: int = 16
    valid_every: int = 10


@dataclass(frozen=True)
class Layer:
    """One way to train the softmax, and the number of draws a word, None for all classes."""

    make_head: Callable[[Corpus, TableScorer, int | None], Head]
    num_samples: int | None = None


class Point(NamedTuple):
    """A measurement while training, and what it took up to there."""

    tokens: int
    evaluations: int
    seconds: float
    perplexity: float


@dataclass
class Part:
    """What one training came to."""

    points: list[Point] = field(default_factory=list)
    valid_perplexity: float = math.nan
    mean_effective_size: float = 0.0
    smallest_effective_size: float = 0.0

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Part:
        return cls(**{**stored, "points": [Point(*point) for point in stored["points"]]})

    @property
    def best(self) -> float:
        return min(point.perplexity for point in self.points)

    def first_within(self, limit: float) -> Point | None:
        """The first point with at most this perplexity."""
        return next((point for point in self.points if point.perplexity <= limit), None)


class Counter:
    """Counts class scores and watches what the draws are worth, as a hook of the head's forward."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self.tokens = self.evaluations = 0
        self.mean_sizes: list[float] = []
        self.smallest_sizes: list[float] = []

    def __call__(self, head: nn.Module, inputs: tuple[Tensor, ...], losses: Tensor) -> None:
        draw = head.last_draw if isinstance(head, ImportanceHead) else None
        a_token = self.num_classes if draw is None else draw.num_drawn + 1
        self.tokens += len(losses)
        self.evaluations += a_token * len(losses)
        if draw is not None:
            self.mean_sizes.append(draw.mean_effective_size)
            self.smallest_sizes.append(draw.smallest_effective_size)

    def __str__(self) -> str:
        if not self.mean_sizes:
            return ""
        lately = slice(-100, None)
        size, least = mean(self.mean_sizes[lately]), mean(self.smallest_sizes[lately])
        return f"  effective size {size:6.1f}, of the worst row {least:5.1f}"


def full_head(corpus: Corpus, scorer: TableScorer, num_samples: int | None) -> Head:
    return FullHead(scorer)


def unigram_head(corpus: Corpus, scorer: TableScorer, num_samples: int | None) -> Head:
    sampler = UnigramSampler(corpus.num_classes, corpus.counts, distortion=1.0)
    return ImportanceHead(scorer, sampler, num_samples=num_samples or 0)


def trigram_head(corpus: Corpus, scorer: TableScorer, num_samples: int | None) -> Head:
    sampler = NGramSampler.from_corpus(corpus.train, corpus.num_classes, order=3)
    return ImportanceHead(scorer, sampler, num_samples=num_samples or 0)


LAYERS = {
    "full": Layer(full_head),
    "unigram": Layer(unigram_head, 768),
    "trigram": Layer(trigram_head, 128),
}


def build(setting: Setting, layer: Layer, corpus: Corpus) -> NNLM:
    """Return the untrained model, its biases at the logarithm of the counts."""
    torch.manual_seed(setting.seed)
    size, dimension = corpus.num_classes, setting.dimension
    table = nn.Embedding(size, dimension)
    encoder = NNLMEncoder(size, setting.context_size, dimension, dimension, dropout=setting.dropout)
    table.weight = encoder.weight
    scorer = TableScorer.tied(table, bias=True)
    with torch.no_grad():
        scorer.bias.copy_((corpus.counts + 0.5).log() - math.log(len(corpus.train)))
    return NNLM(encoder, layer.make_head(corpus, scorer, layer.num_samples))


def measure(setting: Setting, layer: Layer, corpus: Corpus) -> Part:
    """Train a layer, and measure it on the way and at the end."""
    model, part = build(setting, layer, corpus), Part()
    counter, words = Counter(corpus.num_classes), UnseenWords(corpus)
    model.head.register_forward_hook(counter)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    examples = examples_of(model, corpus.train)
    steps = GradientSteps(
        model, optimizer, examples, batch_size=setting.batch_size, seed=setting.seed
    )
    total = setting.epochs * steps.per_epoch
    rate = learning_rate_at("linear", setting.learning_rate, total_steps=total, warmup_steps=0)
    torch.manual_seed(setting.seed)
    ends = [total * n // setting.num_points for n in range(setting.num_points + 1)]
    seconds = 0.0
    for begin, end in itertools.pairwise(ends):
        # Of the processor: one thread is waited for by nothing but other programs.
        start = time.process_time()
        for step in range(begin, end):
            steps.take(step, rate(step))
        seconds += time.process_time() - start
        words.lend(model)
        figure = perplexity(model, corpus.valid, every=setting.valid_every)
        part.points.append(Point(counter.tokens, counter.evaluations, seconds, figure))
        line = f"  epoch {end / steps.per_epoch:5.2f}  {seconds:6.0f} s"
        print(f"{line}  valid perplexity {figure:9.2f}{counter}", flush=True)
    part.valid_perplexity = perplexity(model, corpus.valid)
    part.mean_effective_size = mean(counter.mean_sizes)
    part.smallest_effective_size = mean(counter.smallest_sizes)
    return part


def mean(values: list[float]) -> float:
    """Return the mean, 0 of none."""
    return sum(values) / max(1, len(values))


def all_parts(setting: Setting, corpus: Corpus, stored: dict[str, Any]) -> dict[str, Part]:
    """Train each layer, or take it from what is stored if it was trained in this setting."""
    parts = {}
    for name, layer in LAYERS.items():
        key = {**asdict(setting), "num_samples": layer.num_samples}
        if stored.get(name, {}).get("setting") != key:
            print(f"{name}, {layer.num_samples or 'no'} draws", flush=True)
            stored[name] = {"setting": key, "part": asdict(measure(setting, layer, corpus))}
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
        parts[name] = Part.from_json(stored[name]["part"])
    return parts


def print_table(parts: dict[str, Part], limit: float) -> None:
    print(f"\nuntil valid perplexity {limit:.2f}, {WITHIN} of the best of the full softmax")
    print(f"{'':<8} {'tokens':>10} {'evaluations':>15} {'fewer':>7} {'seconds':>8} {'faster':>7}")
    base = parts["full"].first_within(limit)
    for name, part in parts.items():
        point = part.first_within(limit)
        if point is None or base is None:
            print(f"{name:<8} not reached; the best is {part.best:.2f}")
            continue
        print(
            f"{name:<8} {point.tokens:>10,} {point.evaluations:>15,} "
            f"{base.evaluations / point.evaluations:>7.1f} {point.seconds:>8.0f} "
            f"{base.seconds / point.seconds:>7.2f}"
        )


def add_figures(report: Report, parts: dict[str, Part], limit: float) -> None:
    full = parts["full"]
    base = full.first_within(limit)
    report.add("full: valid perplexity at the end", full.valid_perplexity)
    for name, least in LEAST_FEWER.items():
        part, point = parts[name], parts[name].first_within(limit)
        fewer = base.evaluations / point.evaluations if base and point else math.nan
        faster = base.seconds / point.seconds if base and point else math.nan
        ratio = part.valid_perplexity / full.valid_perplexity
        last = part.points[-1]
        report.add(f"{name}: valid perplexity at the end", part.valid_perplexity)
        report.add(f"{name}: its ratio to that of full", ratio, WITHIN, "at most")
        report.add(f"{name}: times fewer output evaluations", fewer, least)
        report.add(f"{name}: times faster", faster)
        report.add(f"{name}: evaluations a token", last.evaluations / last.tokens)
        report.add(f"{name}: effective sample size, mean", part.mean_effective_size)
        report.add(f"{name}: of the worst row of a batch, mean", part.smallest_effective_size)


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--resume", action="store_true", help="go on with what is stored")
    arguments = parser.parse_args()
    corpus = load_brown()
    if corpus is None:
        print(f"nothing measured: there is no Brown corpus in {DATA} (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(1)
    stored = json.loads(STORED.read_text()) if arguments.resume and STORED.is_file() else {}
    parts = all_parts(Setting(), corpus, stored)
    limit = WITHIN * parts["full"].best
    print_table(parts, limit)
    report = Report(arguments)
    add_figures(report, parts, limit)
    report.finish()


if __name__ == "__main__":
    main()
