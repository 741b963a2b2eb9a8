"""One training step among very many classes against its floor and its peers, with memory.

The floor is the three matrix products of a sampled step and nothing else: scores, gradient of the
hidden states, gradient of the class vectors. A step is drawing, forward, backward and optimiser.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import widemax as wm
from _harness import Report, command_line, interleaved
from widemax.heads.masks import hits_by_class
from widemax.kernels.objectives.log_sum import row_log_sums
from widemax.kernels.objectives.tiled_products import raise_by_tiles, sum_over_batch
from widemax.optim import RowAdagrad, RowAdam, RowSGD, RowwiseAdagrad
from widemax.optim.rows import grouped_rows

DIMENSION, BATCH, NUM_SAMPLES = 128, 1_024, 1_024
SHAPES = ((BATCH, NUM_SAMPLES), (256, 4_096), (8_192, 8_192))
SIZES = (10**5, 10**6, 10**7)
HEADLINE = 10**6
FLOOR = "three matrix products (floor)"
PRODUCTS = "products and exponentials"
OURS = "widemax, row-wise Adagrad"
DENSE = "torch, dense gradient, Adam"
ADAM = "widemax, Adam"
SPARSE = "torch, sparse gradient, SparseAdam"
TENSORFLOW = "TensorFlow sampled_softmax_loss, Adagrad"
RESULTS = Path(__file__).parent / "results"

Call = Callable[[], object]


def batch(num_classes: int, rows: int = BATCH) -> tuple[Tensor, Tensor]:
    """Return hidden states and targets all over the catalogue: the worst case of a cache."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, DIMENSION, generator=generator).requires_grad_()
    return hidden, torch.randint(num_classes, (rows,), generator=generator)


def floor(rows: int = BATCH, num_samples: int = NUM_SAMPLES) -> Call:
    hidden = torch.randn(rows, DIMENSION)
    vectors = torch.randn(num_samples, DIMENSION)
    gradient = torch.randn(rows, num_samples)

    def products() -> None:
        hidden @ vectors.T
        gradient @ vectors
        gradient.T @ hidden

    return products


class Ours:
    """The sampled softmax of this library on a row-sparse table."""

    def __init__(
        self,
        num_classes: int,
        optimizer: type[torch.optim.Optimizer] = RowwiseAdagrad,
        dtype: torch.dtype | None = None,
        *,
        rows: int = BATCH,
        num_samples: int = NUM_SAMPLES,
    ) -> None:
        scorer = wm.TableScorer(num_classes, DIMENSION, sparse=True, dtype=dtype)
        sampler = wm.LogUniformSampler(num_classes, unique=True)
        self.head = wm.SampledHead(scorer, sampler, num_samples=num_samples)
        self.optimizer = optimizer(self.head.parameters(), lr=0.01)
        self.hidden, self.targets = batch(num_classes, rows)

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.hidden.grad = None
        self.head(self.hidden, self.targets).mean().backward()
        self.optimizer.step()


class Plain:
    """The same step as one writes it in torch: an embedding, a matrix product, cross-entropy."""

    def __init__(self, num_classes: int, *, sparse: bool) -> None:
        self.table = nn.Embedding(num_classes, DIMENSION, sparse=sparse)
        optimizer = torch.optim.SparseAdam if sparse else torch.optim.Adam
        self.optimizer = optimizer(self.table.parameters(), lr=0.01)
        self.sampler = wm.LogUniformSampler(num_classes, unique=True)
        self.hidden, self.targets = batch(num_classes)

    def loss(self) -> Tensor:
        drawn = self.sampler.sample(NUM_SAMPLES, self.targets)
        target_scores = (self.hidden * self.table(self.targets)).sum(-1)
        scores = self.hidden @ self.table(drawn.ids).T - drawn.log_expected_count.float()
        scores = scores.masked_fill(drawn.ids == self.targets[:, None], -math.inf)
        corrected = target_scores - drawn.target_log_expected_count.float()
        logits = torch.cat([corrected[:, None], scores], dim=1)
        return nn.functional.cross_entropy(logits, torch.zeros(BATCH, dtype=torch.int64))

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.hidden.grad = None
        self.loss().backward()
        self.optimizer.step()


def check_results() -> None:
    """What is timed is right: loss and gradient of ours equal the plain ones on equal draws."""
    ours, plain = Ours(5_000), Plain(5_000, sparse=False)
    plain.table.weight.data.copy_(ours.head.scorer.weight.data)
    torch.manual_seed(1)
    loss = ours.head(ours.hidden, ours.targets).mean()
    torch.manual_seed(1)
    expected = plain.loss()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(ours.hidden.grad, plain.hidden.grad, rtol=1e-4, atol=1e-7)
    gradient = ours.head.scorer.weight.grad.to_dense()
    torch.testing.assert_close(gradient, plain.table.weight.grad, rtol=1e-4, atol=1e-7)


def tensorflow_step(num_classes: int) -> Call:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(torch.get_num_threads())
    start = tf.random.stateless_normal([num_classes, DIMENSION], [0, 1]) * DIMENSION**-0.5
    table = tf.Variable(start)
    biases = tf.zeros([num_classes])
    optimizer = tf.keras.optimizers.Adagrad(learning_rate=0.01)
    hidden, targets = (tensor.detach().numpy() for tensor in batch(num_classes))
    hidden = tf.Variable(hidden)
    targets = tf.constant(targets[:, None])

    @tf.function
    def step() -> object:
        with tf.GradientTape() as tape:
            losses = tf.nn.sampled_softmax_loss(
                table, biases, targets, hidden, NUM_SAMPLES, num_classes
            )
            loss = tf.reduce_mean(losses)
        by_table, by_hidden = tape.gradient(loss, [table, hidden])
        optimizer.apply_gradients([(by_table, table)])
        return by_hidden

    return lambda: step().numpy()


def quick_steps(num_classes: int) -> dict[str, Call]:
    """Return the steps whose cost does not grow with the classes."""
    steps: dict[str, Call] = {
        FLOOR: floor(),
        OURS: Ours(num_classes),
        "widemax, row-wise Adagrad, bfloat16": Ours(num_classes, dtype=torch.bfloat16),
    }
    if num_classes > HEADLINE:
        return steps
    return steps | {
        "widemax, SGD": Ours(num_classes, RowSGD),
        "widemax, Adagrad": Ours(num_classes, RowAdagrad),
        ADAM: Ours(num_classes, RowAdam),
        SPARSE: Plain(num_classes, sparse=True),
    }


def slow_steps(num_classes: int) -> dict[str, Call]:
    """Return the steps that write the whole table, where it fits: a dense one needs four."""
    if num_classes > HEADLINE:
        return {}
    steps: dict[str, Call] = {DENSE: Plain(num_classes, sparse=False)}
    try:
        steps[TENSORFLOW] = tensorflow_step(num_classes)
    except ImportError as error:
        print(f"TensorFlow is missing, its bar is missed: {error} (pip install -e '.[bench]')")
    return steps


def parts(step: Ours) -> dict[str, Call]:
    """Return what a step consists of, each part on its own, on the same numbers."""
    head, targets = step.head, step.targets
    ids = head.sampler.sample(head.num_samples, targets).ids
    both, rows = torch.cat([targets, ids]), len(targets)
    queries, vectors = step.hidden.detach(), head.scorer.class_vectors(both).detach()
    factors = queries.numpy(), vectors[rows:].numpy()
    counts = torch.zeros(1, len(ids)).numpy()
    hits = counts > 0
    scores, by_vectors = (queries @ vectors[rows:].T).numpy(), torch.empty_like(vectors).numpy()
    step()
    gradient = head.scorer.weight.grad

    def products_and_exponentials() -> None:
        sums = raise_by_tiles(*factors, counts[0, :0], counts, hits, 1.0, pulls=True)
        sum_over_batch(sums.powers, factors[0], by_vectors[rows:])

    def draw() -> None:
        head.sampler.sample(head.num_samples, targets)
        hits_by_class(ids, targets)

    return {
        PRODUCTS: products_and_exponentials,
        "exponentials alone": lambda: row_log_sums(scores, counts, hits, 1.0),
        "draw, find hits": draw,
        "gather rows": lambda: head.scorer.class_vectors(both).detach(),
        "optimiser": step.optimizer.step,
        "of which scatter (equal rows found)": lambda: grouped_rows(gradient, torch.float32),
    }


def floor_figures(report: Report, repeats: int) -> None:
    """Our step against its three products at three shapes, and where its time goes."""
    # One thread's own time is fair on a busy machine; that of several would be their sum.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    table = Table(title="where a step's time goes at V = 10^6 (ms)")
    table.add_column("part")
    columns = []
    for rows, num_samples in SHAPES:
        table.add_column(f"B = {rows:,}, S = {num_samples:,}", justify="right")
        step = Ours(HEADLINE, rows=rows, num_samples=num_samples)
        steps: dict[str, Call] = {FLOOR: floor(rows, num_samples), OURS: step, **parts(step)}
        calls = max(1, 5 * BATCH * NUM_SAMPLES // (rows * num_samples))
        turns = repeats if calls > 1 else max(3, repeats // 3)
        seconds = interleaved(steps, turns, calls=calls, clock=clock)
        ratio = seconds[OURS] / seconds[FLOOR]
        name = f"V = 1e6, B = {rows:,}, S = {num_samples:,}: step / three matrix products"
        report.add(name, ratio, 1.35, "at most")
        known = (PRODUCTS, "draw, find hits", "gather rows", "optimiser")
        seconds["Python and the rest"] = seconds[OURS] - sum(seconds[part] for part in known)
        columns.append(seconds)
    for name in columns[0]:
        table.add_row(name, *(f"{1e3 * seconds[name]:,.2f}" for seconds in columns))
    Console(width=110).print(table)


def step_figures(report: Report, repeats: int) -> dict[int, dict[str, float]]:
    """Quick steps in rows of five, as training takes them; slow ones in turn with ours.

    After a step that writes gigabytes every cache is empty: who comes next would pay for it.
    """
    seconds = {}
    for num_classes in SIZES:
        quick = quick_steps(num_classes)
        seconds[num_classes] = interleaved(quick, repeats, calls=5)
        slow = slow_steps(num_classes)
        if slow:
            turns = interleaved({OURS: quick[OURS], **slow}, repeats)
            ours = turns.pop(OURS)
            seconds[num_classes] |= turns
            if num_classes == HEADLINE:
                slow_figures(report, ours, turns)
    headline = seconds[HEADLINE]
    report.add("V = 1e6: one step (ms)", 1e3 * headline[OURS])
    report.add("V = 1e6: SparseAdam of torch / our Adam", headline[SPARSE] / headline[ADAM])
    return seconds


def slow_figures(report: Report, ours: float, turns: dict[str, float]) -> None:
    report.add("V = 1e6: dense torch step / ours", turns[DENSE] / ours, 50)
    # Without its peer the figure is NaN, which keeps no bar.
    report.add("V = 1e6: TensorFlow / ours", turns.get(TENSORFLOW, math.nan) / ours, 20)


def flat_figure(report: Report, repeats: int) -> None:
    """The smallest against the largest table, in turn: seconds of different runs do not compare."""
    steps = {str(size): Ours(size) for size in (SIZES[0], SIZES[-1])}
    seconds = interleaved(dict(steps), repeats)
    grown = seconds[str(SIZES[-1])] / seconds[str(SIZES[0])]
    report.add("step at V = 1e7 / step at V = 1e5", grown, 1.5, "at most")


def peak_memory(num_classes: int) -> None:
    """Print how far the resident memory of this process grew, and what table and state declare."""
    warm = Ours(2_000)  # imports, kernels and buffers that do not depend on V
    warm()
    del warm
    process = psutil.Process()
    before = process.memory_info().rss
    step = Ours(num_classes)
    for _ in range(20):
        step()
    peak = max(process.memory_info().rss, _high_water_mark())
    state = [value for entry in step.optimizer.state.values() for value in entry.values()]
    tensors = [step.head.scorer.weight, *(value for value in state if torch.is_tensor(value))]
    declared = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    print(json.dumps({"grown": peak - before, "declared": declared}))


def _high_water_mark() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def memory_figures(report: Report) -> dict[int, float]:
    """Each size in a process of its own: a peak never falls."""
    grown = {}
    for num_classes in SIZES:
        command = [sys.executable, __file__, "--memory-of", str(num_classes)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        memory = json.loads(output.splitlines()[-1])
        grown[num_classes] = memory["grown"]
        ratio = memory["grown"] / memory["declared"]
        # Below 10^7 classes the scores and gradients of one batch are no longer a small part.
        limit = 1.1 if num_classes == SIZES[-1] else None
        report.add(f"V = {num_classes:,}: peak / (table + state)", ratio, limit, "at most")
    return grown


def show(seconds: dict[int, dict[str, float]], memory: dict[int, float]) -> None:
    title = f"one step, D = {DIMENSION}, B = {BATCH:,}, S = {NUM_SAMPLES:,}: ms (× the floor)"
    table = Table(title=title)
    table.add_column("step")
    for size in SIZES:
        table.add_column(f"V = {size:,}", justify="right")
    for name in seconds[HEADLINE]:
        table.add_row(name, *(_cell(seconds[size], name) for size in SIZES))
    table.add_row("peak memory of ours (MB)", *(f"{memory[size] / 1e6:,.0f}" for size in SIZES))
    Console(width=110).print(table)


def _cell(seconds: dict[str, float], name: str) -> str:
    if name not in seconds:
        return "-"
    ratio = seconds[name] / seconds[FLOOR]
    return f"{1e3 * seconds[name]:,.1f} ({ratio:,.1f}×)"


def plot(seconds: dict[int, dict[str, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name in seconds[HEADLINE]:
        sizes = [size for size in SIZES if name in seconds[size]]
        style = "--" if "floor" in name else "-"
        times = [1e3 * seconds[size][name] for size in sizes]
        axes.loglog(sizes, times, style, marker="o", label=name)
    axes.set_xlabel("classes")
    axes.set_ylabel("ms per training step")
    axes.set_title(f"D = {DIMENSION}, B = S = {BATCH:,}")
    axes.legend(fontsize="small")
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "steps.png", dpi=120)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--memory-of", type=int, metavar="V", help="only print the memory at V")
    parser.add_argument("--threads", type=int, help="threads of torch; else as torch chooses")
    parser.add_argument(
        "--floor-only", action="store_true", help="only our step against its three products"
    )
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.memory_of:
        peak_memory(options.memory_of)
        return
    report = Report(options)
    check_results()
    floor_figures(report, options.repeats)
    if options.floor_only:
        report.finish()
        return
    memory = memory_figures(report)
    flat_figure(report, options.repeats)
    seconds = step_figures(report, options.repeats)
    show(seconds, memory)
    plot(seconds)
    report.finish()


if __name__ == "__main__":
    main()
