"""Draws docs/theory.svg: three proposals, and how wrong the normaliser is that each estimates.

Run it after a change of this file::

    python docs/draw_theory.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import widemax as wm

PICTURE = Path(__file__).resolve().parent / "theory.svg"
NUM_CLASSES, SHOWN = 1000, 40
SIZES = [2**power for power in range(3, 13)]
TRIALS = 2000
COLOURS = {"uniform": "#b2182b", "by counts": "#2166ac", "close to P": "#1b7837"}


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


def draw() -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "theory", "font.size": 9})
    from matplotlib import pyplot

    scores, samplers = world()
    classes = torch.arange(NUM_CLASSES)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6))
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
        right.annotate(
            name, (SIZES[-1], errors[-1]), xytext=(5, -3), textcoords="offset points",
            color=COLOURS[name],
        )  # fmt: skip
    slope = [0.85 * (size / SIZES[0]) ** -0.5 for size in SIZES]
    right.loglog(SIZES, slope, ":", color="#777777")
    right.annotate(
        "1 / √S", (SIZES[-1], slope[-1]), xytext=(5, -3), textcoords="offset points",
        color="#777777",
    )  # fmt: skip
    left.set_xlabel(f"the {SHOWN} most frequent of {NUM_CLASSES:,} classes")
    left.set_ylabel("probability")
    left.set_title("What is drawn")
    handles, labels = left.get_legend_handles_labels()
    left.legend(handles[-1:] + handles[:-1], labels[-1:] + labels[:-1], frameon=False)
    right.set_xlabel("draws S")
    right.set_ylabel("relative error of Ẑ (root mean square)")
    right.set_title("How wrong Ẑ is, the estimated sum over all classes")
    right.set_xlim(SIZES[0] * 0.8, SIZES[-1] * 7)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    draw()
