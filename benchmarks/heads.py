"""One training step of every head against the exact softmax, and how the cost grows with V.

A step is forward, backward and optimiser (Adagrad; sparse gradients where the head offers them).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import widemax as wm
from _harness import Report, command_line, interleaved

NUM_CLASSES, DIMENSION, BATCH, NUM_SAMPLES = 100_000, 128, 1_024, 1_024
SIZES = (10**3, 10**4, 10**5, 10**6)
CUTOFFS = [4_000, 20_000]
RESULTS = Path(__file__).parent / "results"


def zipf_counts(num_classes: int) -> Tensor:
    return (1e9 / torch.arange(1, num_classes + 1, dtype=torch.float64)).long() + 1


class Step:
    """A head, its optimiser and one batch of Zipf targets: calling it trains once."""

    def __init__(self, head: nn.Module, num_classes: int = NUM_CLASSES) -> None:
        self.head = head
        self.optimizer = torch.optim.Adagrad(head.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(0)
        self.hidden = torch.randn(BATCH, DIMENSION, generator=generator).requires_grad_()
        frequency = wm.UnigramSampler(num_classes, zipf_counts(num_classes), distortion=1.0)
        self.targets = frequency.draw((BATCH,), generator=generator)

    def loss(self) -> Tensor:
        if isinstance(self.head, nn.AdaptiveLogSoftmaxWithLoss):
            return self.head(self.hidden, self.targets).loss
        return self.head(self.hidden, self.targets).mean()

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.hidden.grad = None
        self.loss().backward()
        self.optimizer.step()


def full(num_classes: int = NUM_CLASSES) -> wm.Head:
    return wm.FullHead(wm.TableScorer(num_classes, DIMENSION))


def sampled(
    num_classes: int = NUM_CLASSES, objective: wm.Objective = wm.sampled_softmax
) -> wm.Head:
    scorer = wm.TableScorer(num_classes, DIMENSION, sparse=True)
    return sampled_from(scorer, objective)


def sampled_from(scorer: wm.Scorer, objective: wm.Objective = wm.sampled_softmax) -> wm.Head:
    sampler = wm.LogUniformSampler(scorer.num_classes, unique=True)
    num_samples = min(NUM_SAMPLES, scorer.num_classes // 2)
    return wm.SampledHead(scorer, sampler, objective=objective, num_samples=num_samples)


def hierarchical(num_classes: int = NUM_CLASSES) -> wm.Head:
    tree = wm.Tree.huffman(zipf_counts(num_classes))
    return wm.HierarchicalHead(DIMENSION, tree, sparse=True)


def adaptive(num_classes: int = NUM_CLASSES) -> wm.Head:
    return wm.AdaptiveHead(
        DIMENSION, num_classes, counts=zipf_counts(num_classes), batch_size=BATCH
    )


def importance() -> wm.Head:
    scorer = wm.TableScorer(NUM_CLASSES, DIMENSION, sparse=True)
    sampler = wm.UnigramSampler(NUM_CLASSES, zipf_counts(NUM_CLASSES), distortion=1.0)
    return wm.heads.ImportanceHead(scorer, sampler, num_samples=NUM_SAMPLES)


def differentiated() -> wm.Scorer:
    blocks = [(4_000, 64), (16_000, 40), (80_000, 24)]
    return wm.scoring.DifferentiatedScorer(NUM_CLASSES, blocks, sparse=True)


def spelled() -> wm.Scorer:
    words = [f"{index:x}" for index in range(NUM_CLASSES)]
    return wm.scoring.CharCNNScorer(words, DIMENSION)


HEADS: dict[str, Callable[[], nn.Module]] = {
    "exact softmax (FullHead)": full,
    "sampled softmax, S = 1,024": sampled,
    "corrected log Q": lambda: sampled(objective=wm.corrected_log_q),
    "NCE": lambda: sampled(objective=wm.nce),
    "negative sampling": lambda: sampled(objective=wm.negative_sampling),
    "importance sampling": importance,
    "hierarchical, Huffman": hierarchical,
    "adaptive, automatic cutoffs": adaptive,
    "adaptive, fixed cutoffs": lambda: wm.AdaptiveHead(DIMENSION, NUM_CLASSES, cutoffs=CUTOFFS),
    "torch adaptive, fixed cutoffs": lambda: nn.AdaptiveLogSoftmaxWithLoss(
        DIMENSION, NUM_CLASSES, CUTOFFS
    ),
    "differentiated, sampled": lambda: sampled_from(differentiated()),
    "CNN-softmax, sampled": lambda: sampled_from(spelled()),
}
# Once, after the others: they look at every score, like the exact softmax and then some.
SLOW_HEADS: dict[str, Callable[[], nn.Module]] = {
    "self-normalised": lambda: wm.heads.SelfNormalisedHead(full().scorer),
    "infrequent normalisation, 10 %": lambda: wm.heads.InfrequentHead(full().scorer, fraction=0.1),
    "top-k sparse softmax, k = 100": lambda: wm.heads.TopKSoftmaxHead(full().scorer, k=100),
    "sparsemax": lambda: wm.heads.SparsemaxHead(full().scorer),
    "1.5-entmax": lambda: wm.heads.Entmax15Head(full().scorer),
}


def check_results() -> None:
    """What is timed is right: adaptive equals torch's, the exact head plain cross-entropy."""
    theirs = nn.AdaptiveLogSoftmaxWithLoss(DIMENSION, NUM_CLASSES, CUTOFFS)
    step = Step(theirs)
    ours = wm.AdaptiveHead.from_torch(theirs)
    torch.testing.assert_close(ours(step.hidden, step.targets).mean(), step.loss())
    head = full(5_000)
    targets = step.targets % 5_000
    plain = nn.functional.cross_entropy(head.scores(step.hidden), targets)
    torch.testing.assert_close(head(step.hidden, targets).mean(), plain)


def step_figures(report: Report, repeats: int) -> None:
    steps = {name: Step(make()) for name, make in HEADS.items()}
    seconds = interleaved(dict(steps), repeats, warmup=2)
    steps.clear()
    for name, make in SLOW_HEADS.items():
        seconds |= interleaved({name: Step(make())}, 1, warmup=0)
    exact = seconds["exact softmax (FullHead)"]
    bars = {
        "sampled softmax, S = 1,024": 50,
        "hierarchical, Huffman": 20,
        "adaptive, automatic cutoffs": 5,
    }
    report.add("one step of the exact softmax (s)", exact)
    for name, value in seconds.items():
        if value is not exact:
            report.add(f"exact / {name}", exact / value, bars.get(name))
    theirs = seconds["torch adaptive, fixed cutoffs"]
    report.add(
        "torch adaptive / ours, same cutoffs", theirs / seconds["adaptive, fixed cutoffs"], 1
    )
    report.add("torch adaptive / automatic", theirs / seconds["adaptive, automatic cutoffs"], 1)


def growth_figures(report: Report, repeats: int) -> dict[str, list[float]]:
    """Steps at every size; the sizes of one head are interleaved with each other."""
    makers = {"exact": full, "adaptive": adaptive, "hierarchical": hierarchical, "sampled": sampled}
    curves = {}
    for name, make in makers.items():
        steps = {str(size): Step(make(size), size) for size in SIZES}
        rounds = 2 if name == "exact" else repeats
        seconds = interleaved(dict(steps), rounds, warmup=1)
        curves[name] = [seconds[str(size)] for size in SIZES]
        for size, value in zip(SIZES, curves[name], strict=True):
            report.add(f"{name}, V = {size:,} (ms)", 1e3 * value)
    grown = {name: curve[-1] / curve[0] for name, curve in curves.items()}
    report.add("exact, V = 1e6 / V = 1e3", grown["exact"])
    # log V doubles from 10^3 to 10^6, and the tables leave the cache.
    report.add("hierarchical, V = 1e6 / V = 1e3", grown["hierarchical"], 5, "at most")
    report.add(
        "sampled, V = 1e6 / V = 1e4", curves["sampled"][-1] / curves["sampled"][1], 2, "at most"
    )
    return curves


def tree_figures(report: Report) -> None:
    """Average path lengths at V = 10,000 beside the entropy, which no binary code can beat."""
    counts = 1.0 / torch.arange(1, 10_001, dtype=torch.float64)
    summaries = {
        "balanced": wm.Tree.balanced(10_000).describe(counts),
        "Huffman": wm.Tree.huffman(counts).describe(counts),
    }
    for name, summary in summaries.items():
        print(f"{name} tree, Zipf counts: {summary}")
    entropy = summaries["Huffman"].entropy_bits
    report.add("balanced tree, V = 10,000: average path", summaries["balanced"].average_path)
    huffman = summaries["Huffman"].average_path
    report.add("Huffman tree, V = 10,000: average path", huffman, entropy + 1, "at most")
    report.add("entropy of the counts (bits)", entropy)


def plot(curves: dict[str, list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for name, curve in curves.items():
        axes.loglog(SIZES, [1e3 * value for value in curve], marker="o", label=name)
    axes.set_xlabel("classes")
    axes.set_ylabel("ms per training step")
    axes.set_title(f"D = {DIMENSION}, B = {BATCH:,}")
    axes.legend()
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "heads.png", dpi=120)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-growth", action="store_true", help="only the steps at one size")
    options = parser.parse_args()
    # torch's own Adagrad warns of the sparse tensors that it makes itself.
    warnings.filterwarnings("ignore", message="Sparse invariant checks")
    report = Report(options)
    check_results()
    tree_figures(report)
    step_figures(report, options.repeats)
    if not options.no_growth:
        plot(growth_figures(report, options.repeats))
    report.finish()


if __name__ == "__main__":
    main()
