"""Draws the pictures of docs/theory: one a page, each from what the library computes.

Run it after a change of this file::

    python docs/draw_theory.py            # all
    python docs/draw_theory.py nce sparse # some
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import widemax as wm

FOLDER = Path(__file__).resolve().parent / "theory"
NUM_CLASSES, SHOWN = 1000, 40
SIZES = [2**power for power in range(3, 13)]
TRIALS = 2000
STEPS = 1500
COLOURS = {"uniform": "#b2182b", "by counts": "#2166ac", "close to P": "#1b7837"}
RED, BLUE, GREEN, ORANGE, GREY = "#b2182b", "#2166ac", "#1b7837", "#d95f02", "#777777"


# -- importance ------------------------------------------------------------------------------------


def world() -> tuple[Tensor, dict[str, wm.Sampler]]:
    """Return the scores of 1,000 classes in one context, and three proposals to draw them by."""
    generator = torch.Generator().manual_seed(2)
    counts = 1.0 / torch.arange(1, NUM_CLASSES + 1, dtype=torch.float64)
    noise = torch.randn(NUM_CLASSES, generator=generator, dtype=torch.float64)
    scores = counts.log() + noise
    near = (counts.log() + 0.8 * noise).exp()
    return scores, {
        "uniform": wm.UniformSampler(NUM_CLASSES),
        "by counts": wm.UnigramSampler(NUM_CLASSES, counts, distortion=1.0),
        "close to P": wm.UnigramSampler(NUM_CLASSES, near, distortion=1.0),
    }


def relative_errors(scores: Tensor, sampler: wm.Sampler) -> list[float]:
    """Return the root mean squared error of Ẑ / Z for each number of draws."""
    generator = torch.Generator().manual_seed(0)
    everything = scores.logsumexp(0)
    errors = []
    for size in SIZES:
        drawn = sampler.draw((TRIALS, size), generator=generator)  # type: ignore[attr-defined]
        log_weights = scores[drawn] - sampler.log_prob(drawn)
        ratio = (log_weights.logsumexp(1) - torch.tensor(size).log() - everything).exp()
        errors.append(float((ratio - 1).square().mean().sqrt()))
    return errors


def effective_share(scores: Tensor, sampler: wm.Sampler) -> float:
    """Return ESS / S for many draws: (E r)² / E r², r = exp(F) / q."""
    log_weights = scores - sampler.log_prob(torch.arange(NUM_CLASSES))
    log_q = sampler.log_prob(torch.arange(NUM_CLASSES))
    first, second = ((log_q + power * log_weights).logsumexp(0) for power in (1, 2))
    return float((2 * first - second).exp())


def draw_importance(left: Any, right: Any) -> None:
    """Three proposals, and how wrong the normaliser is that each estimates."""
    scores, samplers = world()
    classes = torch.arange(NUM_CLASSES)
    shown = range(1, SHOWN + 1)
    left.bar(shown, scores.softmax(0)[:SHOWN].tolist(), color="#d9d9d9", label="P, the softmax")
    for name, sampler in samplers.items():
        share = effective_share(scores, sampler)
        probabilities = sampler.log_prob(classes).exp()[:SHOWN].tolist()
        left.plot(
            shown, probabilities, color=COLOURS[name], label=f"{name}: ESS = {share:.0%} of S"
        )
        errors = relative_errors(scores, sampler)
        right.loglog(SIZES, errors, "o-", color=COLOURS[name], markersize=3)
        _name(right, name, SIZES[-1], errors[-1], COLOURS[name])
    slope = [0.85 * (size / SIZES[0]) ** -0.5 for size in SIZES]
    right.loglog(SIZES, slope, ":", color=GREY)
    _name(right, "1 / √S", SIZES[-1], slope[-1], GREY)
    left.set_xlabel(f"the {SHOWN} most frequent of {NUM_CLASSES:,} classes")
    left.set_ylabel("probability")
    left.set_title("What is drawn")
    handles, labels = left.get_legend_handles_labels()
    left.legend(handles[-1:] + handles[:-1], labels[-1:] + labels[:-1], frameon=False)
    right.set_xlabel("draws S")
    right.set_ylabel("relative error of Ẑ (root mean square)")
    right.set_title("How wrong Ẑ is, the estimated sum over all classes")
    right.set_xlim(SIZES[0] * 0.8, SIZES[-1] * 7)


# -- denominator -----------------------------------------------------------------------------------


def draw_denominator(left: Any, right: Any) -> None:
    """The gradient of one example by its scores, and what a step multiplies."""
    scores, _ = world()
    order = scores.argsort(descending=True)
    gradient = scores.softmax(0)[order]
    target, shown = 3, 25
    gradient[target] -= 1
    colours = [GREEN if place == target else RED for place in range(shown)]
    left.bar(range(1, shown + 1), (-gradient[:shown]).tolist(), color=colours)
    left.axhline(0, color="black", linewidth=0.8)
    left.set_yscale("symlog", linthresh=0.01, linscale=1.0)
    left.set_ylim(-0.6, 1.6)
    left.annotate("target: 1 − P", (target + 1, 0.9), xytext=(target + 2.5, 0.55), color=GREEN)
    left.annotate("all others: −P", (9, -0.05), xytext=(13, -0.16), color=RED)
    left.set_xlabel(f"the {shown} best of {NUM_CLASSES:,} classes, by score")
    left.set_ylabel("how a step moves the score")
    left.set_title("Pulled up and pushed down")

    sizes = [10**power for power in range(3, 8)]
    dimension, samples = 128, 1000
    curves = {
        "exact": (RED, [dimension * size for size in sizes]),
        f"{samples:,} samples": (BLUE, [dimension * (samples + 1)] * len(sizes)),
        "Huffman tree": (GREEN, [dimension * _entropy(size) for size in sizes]),
    }
    for name, (colour, values) in curves.items():
        right.loglog(sizes, values, "o-", color=colour, markersize=3)
        _name(right, name, sizes[-1], values[-1], colour)
    right.set_xlim(sizes[0] * 0.7, sizes[-1] * 40)
    right.set_xlabel("classes V")
    right.set_ylabel("multiplications")
    right.set_title("One example forward, vectors of 128")


def _entropy(size: int) -> float:
    return wm.advising.Popularity.zipf(size).entropy_bits


# -- objectives ------------------------------------------------------------------------------------


def learned(objective: Any, power: float, num_samples: int, *, unique: bool) -> tuple[Tensor, ...]:
    """Return P, the chance q of a draw, and the scores that an objective learns by drawing."""
    size = 60
    counts = 1.0 / torch.arange(1, size + 1, dtype=torch.float64)
    truth = counts / counts.sum()
    sampler = wm.UnigramSampler(size, counts, distortion=power, unique=unique)
    scores = torch.full((size,), -4.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([scores], lr=0.05)
    generator = torch.Generator().manual_seed(0)
    kept = torch.zeros(size, dtype=torch.float64)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / STEPS) + 1e-4
        targets = torch.multinomial(truth, 512, replacement=True, generator=generator)
        parts = []
        for own in targets.chunk(8):  # draws of their own: less noise a step
            drawn = sampler.sample(num_samples, own, generator=generator)
            parts.append(
                objective(
                    scores[own],
                    scores[drawn.ids].expand(len(own), -1),
                    target_log_expected_count=drawn.target_log_expected_count,
                    log_expected_count=drawn.log_expected_count,
                    hits=drawn.ids == own[:, None],
                    target_mask=None,
                )
            )
        optimizer.zero_grad()
        torch.cat(parts).mean().backward()
        optimizer.step()
        # The mean of the last half: what noise leaves is averaged out.
        if 2 * step >= STEPS:
            kept += scores.detach() / (STEPS - STEPS // 2)
    return truth, sampler.log_prob(torch.arange(size)).exp(), kept


def draw_nce(left: Any, right: Any) -> None:
    """Scores learned by NCE and negative sampling, against log P and against log(P / kq)."""
    samples = 10
    for axes, objective, title in (
        (left, wm.nce, "NCE: F = log P"),
        (right, wm.negative_sampling, "Negative sampling: F = log(P / kq)"),
    ):
        truth, chance, scores = learned(objective, 0.5, samples, unique=False)
        line = truth.log()
        axes.plot(line, line, color=GREY, linestyle=":")
        _name(axes, "log P", float(line[0]), float(line[0]), GREY)
        shifted = (truth / (samples * chance)).log()
        axes.plot(line, shifted, color=GREY, linestyle="--")
        _name(axes, "log(P / kq)", float(line[0]), float(shifted[0]), GREY)
        axes.plot(line, scores, "o", color=BLUE if axes is left else ORANGE, markersize=3)
        axes.set_xlim(float(line[-1]) - 0.3, float(line[0]) + 1.6)
        axes.set_xlabel("log P of the class")
        axes.set_ylabel("learned score F")
        axes.set_title(title)


def draw_log_q(left: Any, right: Any) -> None:
    """Probabilities that are learned with and without log Q, and their ratio to the truth."""
    for objective, name, colour in (
        (wm.sampled_softmax, "with log Q", BLUE),
        (wm.info_nce, "without", RED),
    ):
        truth, _, scores = learned(objective, 1.0, 8, unique=True)
        found = scores.softmax(0)
        ranks = range(1, len(truth) + 1)
        left.loglog(ranks, found, "o", color=colour, markersize=3, label=name)
        right.loglog(ranks, found / truth, "o-", color=colour, markersize=3)
    left.loglog(ranks, truth, color="black", linewidth=1, label="P")
    left.legend(frameon=False)
    left.set_xlabel("class, by popularity")
    left.set_ylabel("probability")
    left.set_title("What is learned")
    right.axhline(1, color="black", linewidth=1)
    right.set_xlabel("class, by popularity")
    right.set_ylabel("learned / P")
    right.set_title("How far from the truth")


# -- trees and clusters ----------------------------------------------------------------------------


def draw_trees(left: Any, right: Any) -> None:
    """Path lengths by rank, and average paths by number of classes."""
    size = 10_000
    counts = 1.0 / torch.arange(1, size + 1, dtype=torch.float64)
    ranks = torch.arange(1, size + 1)
    shown = torch.unique(torch.logspace(0, 4, 120).long().clamp(1, size)) - 1
    content = -(counts / counts.sum()).log2()
    for tree, name, colour in (
        (wm.Tree.balanced(size), "balanced", RED),
        (wm.Tree.huffman(counts), "Huffman", BLUE),
    ):
        left.plot(ranks[shown], tree.depths[shown], "o", color=colour, markersize=3, label=name)
    left.plot(ranks[shown], content[shown], color="black", linewidth=1, label="−log2 p")
    left.set_xscale("log")
    left.set_ylim(0, 19)
    left.legend(frameon=False, loc="lower right")
    left.set_xlabel("word, by frequency")
    left.set_ylabel("nodes on the path")
    left.set_title(f"{size:,} words, Zipf's law")

    sizes = [100, 300, 1000, 3000, 10_000, 30_000, 100_000]
    balanced, huffman, entropy = [], [], []
    for number in sizes:
        own = 1.0 / torch.arange(1, number + 1, dtype=torch.float64)
        summary = wm.Tree.huffman(own).describe(own)
        huffman.append(summary.average_path)
        entropy.append(summary.entropy_bits)
        balanced.append(wm.Tree.balanced(number).describe(own).average_path)
    right.semilogx(sizes, balanced, "o-", color=RED, markersize=3)
    _name(right, "balanced", sizes[-1], balanced[-1], RED)
    right.semilogx(sizes, huffman, "o-", color=BLUE, markersize=3)
    _name(right, "Huffman", sizes[-1], huffman[-1] + 0.25, BLUE)
    right.semilogx(sizes, entropy, color="black", linewidth=1)
    _name(right, "entropy", sizes[-1], entropy[-1] - 0.6, "black")
    right.set_xlim(sizes[0] * 0.7, sizes[-1] * 12)
    right.set_xlabel("classes V")
    right.set_ylabel("nodes on the average path")
    right.set_title("Frequent classes are near the root")


def draw_clusters(left: Any, right: Any) -> None:
    """Three output tables to scale, and what an adaptive softmax costs by its cutoff."""
    from matplotlib.patches import Rectangle

    tables = (
        ("full", [(0, 10_000, 128, 0)]),
        ("differentiated", [(0, 1000, 96, 0), (1000, 4000, 24, 96), (4000, 10_000, 8, 120)]),
        ("adaptive", [(0, 500, 128, 0), (500, 2500, 32, 0), (2500, 10_000, 8, 0)]),
    )
    for place, (name, blocks) in enumerate(tables):
        start = 190 * place
        numbers = sum((stop - first) * width for first, stop, width, _ in blocks)
        for (first, stop, width, offset), colour in zip(
            blocks, (BLUE, GREEN, ORANGE), strict=False
        ):
            left.add_patch(
                Rectangle((start + offset, -stop), width, stop - first, color=colour, alpha=0.8)
            )
        left.add_patch(
            Rectangle((start, -10_000), 128, 10_000, fill=False, edgecolor="#bbbbbb", linewidth=0.8)
        )
        left.annotate(
            f"{name}\n{numbers:,}",
            (start + 64, 250),
            ha="center",
            va="bottom",
            annotation_clip=False,
        )
    left.set_xlim(-15, 525)
    left.set_ylim(-10_300, 2600)
    left.set_yticks([0, -2500, -5000, -7500, -10_000], ["0", "2,500", "5,000", "7,500", "10,000"])
    left.set_xticks([0, 128], ["0", "128"])
    left.set_ylabel("class, by frequency")
    left.set_xlabel("length of its vector", loc="left")
    left.set_title("Numbers in the output table")

    size, dimension = 100_000, 128
    curve = wm.advising.Popularity.zipf(size)
    cuts = [2**power for power in range(6, 17)]
    costs = []
    for cut in cuts:
        opened, reduced = 1 - curve.top_share(cut / size), dimension // 4
        tail = opened * (dimension * reduced + reduced * (size - cut))
        costs.append(dimension * (cut + 1) + tail)
    right.loglog(cuts, costs, "o-", color=BLUE, markersize=3)
    right.axhline(dimension * size, color=RED, linewidth=1)
    _name(right, "exact softmax", cuts[0] * 0.7, dimension * size * 1.12, RED)
    best = min(range(len(cuts)), key=costs.__getitem__)
    right.annotate(
        f"{dimension * size / costs[best]:.0f} times less",
        (cuts[best], costs[best]), xytext=(0, -14), textcoords="offset points",
        ha="center", color=BLUE,
    )  # fmt: skip
    right.set_ylim(min(costs) * 0.5, dimension * size * 2)
    right.set_xlabel("classes of the shortlist")
    right.set_ylabel("multiplications of an example")
    right.set_title(f"Adaptive, {size:,} classes, one cluster")


# -- sparse outputs --------------------------------------------------------------------------------


def draw_sparse(left: Any, right: Any) -> None:
    """Softmax, 1.5-entmax, sparsemax and top-k of the same scores."""
    from entmax import entmax15, sparsemax

    maps: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
        "softmax": (GREY, lambda scores: scores.softmax(-1)),
        "1.5-entmax": (BLUE, lambda scores: entmax15(scores, dim=-1)),
        "sparsemax": (RED, lambda scores: sparsemax(scores, dim=-1)),
    }
    differences = torch.linspace(-4, 4, 161)
    pairs = torch.stack([differences, torch.zeros_like(differences)], -1)
    for name, (colour, project) in maps.items():
        left.plot(differences, project(pairs)[:, 0], color=colour, label=name)
    left.legend(frameon=False)
    left.set_xlabel("score of the class less that of the other")
    left.set_ylabel("probability")
    left.set_title("Two classes")

    scores = torch.tensor([3.0, 2.7, 2.2, 1.9, 1.7, 1.2, 0.9, 0.5, 0.2, -0.3, -0.8, -1.5])
    table = wm.TableScorer(len(scores), len(scores))
    table.weight.data.copy_(torch.eye(len(scores)))
    top = wm.heads.TopKSoftmaxHead(table, k=4).log_prob(scores[None]).exp()[0]
    bars = {name: (colour, project(scores)) for name, (colour, project) in maps.items()}
    bars["top-4 softmax"] = (GREEN, top.detach())
    for number, (name, (colour, values)) in enumerate(bars.items()):
        seen = values > 0
        places = torch.arange(1, len(scores) + 1)[seen] + 0.2 * number - 0.3
        right.bar(places, values[seen], width=0.2, color=colour, label=name)
    right.legend(frameon=False)
    right.set_xlabel("twelve classes, by score")
    right.set_ylabel("probability")
    right.set_title("What is missing has probability 0")


PICTURES: dict[str, Callable[[Any, Any], None]] = {
    "denominator": draw_denominator,
    "importance": draw_importance,
    "nce": draw_nce,
    "log-q": draw_log_q,
    "trees": draw_trees,
    "clusters": draw_clusters,
    "sparse": draw_sparse,
}
"""The pictures by the page that shows them."""


def _name(axes: Any, name: str, x: float, y: float, colour: str) -> None:
    """Write a name behind the end of a line."""
    axes.annotate(name, (x, y), xytext=(5, -3), textcoords="offset points", color=colour)


def draw(name: str) -> Path:
    """Write one picture."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "theory", "font.size": 9})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6))
    PICTURES[name](*panels)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path = FOLDER / f"{name}.svg"
    # A white ground: letters are black, and a page may be dark.
    figure.savefig(path, metadata={"Date": None}, facecolor="white")
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    for chosen in sys.argv[1:] or PICTURES:
        print(draw(chosen))
