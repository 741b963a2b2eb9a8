"""Two adapting n-gram proposals for importance sampling on Brown, step by step in turn.

The model of importance_brown.py, twice from the same start, on the same batches, 128 draws a word.
One draws from a trigram of which the weights of the orders follow the model (``n-gram``), the other
from one of which the n-grams follow it too, with weights by the count of the context
(``adaptive-n-gram``; Bengio & Senécal 2008). Both compute the same number of class scores. Printed
are the effective size of their draws over the last 100 steps, the exact validation perplexity on
each 50th word, and the time of the processor.

    python experiments/proposals_brown.py [--steps 300] [--json FILE]

The data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import DATA
from _harness import Report, command_line
from _language import Corpus, examples_of, load_brown, perplexity
from importance_brown import Counter, Layer, Setting, build, trigram_head
from widemax.heads import Head, ImportanceHead
from widemax.sampling import AdaptiveNGramSampler
from widemax.scoring import TableScorer
from widemax.training.gradients.steps import GradientSteps
from widemax.training.schedules import learning_rate_at

VALID_EVERY = 50
LATELY = 100


def adaptive_head(corpus: Corpus, scorer: TableScorer, num_samples: int | None) -> Head:
    sampler = AdaptiveNGramSampler.from_corpus(corpus.train, corpus.num_classes, order=3)
    return ImportanceHead(scorer, sampler, num_samples=num_samples or 0)


LAYERS = {"n-gram": Layer(trigram_head, 128), "adaptive-n-gram": Layer(adaptive_head, 128)}


class Contender:
    """A model in training, with what it drew and how long it took."""

    def __init__(self, setting: Setting, layer: Layer, corpus: Corpus) -> None:
        self.model = build(setting, layer, corpus)
        self.counter = Counter(corpus.num_classes)
        self.model.head.register_forward_hook(self.counter)
        self.steps = GradientSteps(
            self.model,
            torch.optim.Adam(self.model.parameters(), fused=True),
            examples_of(self.model, corpus.train),
            batch_size=setting.batch_size,
            seed=setting.seed,
        )
        self.seconds: list[float] = []

    def take(self, step: int, rate: float) -> None:
        start = time.process_time()
        self.steps.take(step, rate)
        self.seconds.append(time.process_time() - start)


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=300, help="of 512 words, for each proposal")
    options = parser.parse_args()
    corpus = load_brown()
    if corpus is None:
        print(f"nothing measured: there is no Brown corpus in {DATA} (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(1)
    setting = Setting()
    rate = learning_rate_at(
        "linear", setting.learning_rate, total_steps=options.steps, warmup_steps=0
    )
    contenders = {name: Contender(setting, layer, corpus) for name, layer in LAYERS.items()}
    for step in range(options.steps):
        for contender in contenders.values():
            contender.take(step, rate(step))
        if (step + 1) % LATELY == 0:
            lines = [f"{name}{each.counter}" for name, each in contenders.items()]
            print(f"step {step + 1}: " + "; ".join(lines), flush=True)
    report = Report(options)
    for name, each in contenders.items():
        lately = slice(-LATELY, None)
        report.add(f"{name}: evaluations", each.counter.evaluations)
        report.add(
            f"{name}: valid perplexity", perplexity(each.model, corpus.valid, every=VALID_EVERY)
        )
        report.add(f"{name}: effective size", statistics.mean(each.counter.mean_sizes[lately]))
        report.add(
            f"{name}: of the worst row", statistics.mean(each.counter.smallest_sizes[lately])
        )
        # The first steps compile.
        report.add(f"{name}: processor ms a step", 1e3 * statistics.median(each.seconds[3:]))
    report.finish()


if __name__ == "__main__":
    main()
