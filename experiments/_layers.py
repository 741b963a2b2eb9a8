"""The rows of output_layers.py: how each head is made, its price and its claim.

The price is how many outputs a layer computes for each training token, forward: class scores, or
node scores of a tree. Classes shared by a batch count for each token of it, for each token's hidden
state is multiplied with all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor

from _heads import (
    CUTOFFS,
    EFFECTIVE_SIZE,
    FEW_SAMPLES,
    FRACTION,
    MOST_DRAWN,
    NUM_DRAWN,
    PART_CLASSES,
    REDUCTION,
    SHARED_SAMPLES,
    SPARSE_K,
    WIDTH,
    MeasuredTopK,
    Task,
    part_blocks,
)
from widemax.heads import (
    AdaptiveHead,
    FullHead,
    Head,
    HierarchicalHead,
    ImportanceHead,
    InfrequentHead,
    LayeredHead,
    SampledHead,
    ScorerHead,
    SelfNormalisedHead,
    TopKSoftmaxHead,
    Tree,
    log_normalizer_statistics,
)
from widemax.objectives import corrected_log_q, sampled_softmax
from widemax.sampling import PartitionSampler
from widemax.training.steps import Examples

TREE_EPOCHS = 3
"""Of the sampled softmax whose states a tree is clustered by."""
LONGER_EPOCHS = 5
"""The same, as many as all layers have: better on the valid part, over three seeds."""
TREE_DECAY = 0.1
"""Of node vectors: those far down the tree see few examples, and learn them by heart."""
BY_STATES = f"by the mean states of a sampled softmax, of {TREE_EPOCHS} epochs"
BY_LONGER_STATES = f"by the mean states of a sampled softmax, of {LONGER_EPOCHS} epochs"


def _target_mean(task: Task, of_class: Tensor) -> float:
    """The mean over the training tokens of something that each class has, [V]."""
    counts = task.corpus.counts.double()
    return float((counts * of_class).sum() / counts.sum())


def path_length(task: Task, head: Head) -> float:
    tree = head.head if isinstance(head, LayeredHead) else head
    return _target_mean(task, cast("HierarchicalHead", tree).tree.depths.double())


def opened_classes(task: Task, head: Head) -> float:
    """The classes of the first level with its clusters, and of the cluster a target is in."""
    limits = [*cast("AdaptiveHead", head).cutoffs, task.num_classes]
    opened = torch.full((task.num_classes,), float(limits[0] + len(limits) - 1))
    for start, stop in pairwise(limits):
        opened[start:stop] += stop - start
    return _target_mean(task, opened)


def part_size(task: Task, head: Head) -> float:
    sampler = cast("PartitionSampler", cast("SampledHead", head).sampler)
    tokens = [stop - start for start, stop in sampler.ranges]
    sizes = []
    for part in range(sampler.num_parts):
        sampler.select(part)
        sizes.append(len(sampler.classes))
    return 1 + sum(a * b for a, b in zip(tokens, sizes, strict=True)) / sum(tokens)


class DrawCounter:
    """Counts what an importance head draws a step, as a hook of its forward."""

    def __init__(self) -> None:
        self.steps = self.drawn = 0

    def __call__(self, head: Head, *_: object) -> None:
        draw = cast("ImportanceHead", head).last_draw
        if draw is not None:
            self.steps, self.drawn = self.steps + 1, self.drawn + draw.num_drawn

    @property
    def mean(self) -> float:
        return 1 + self.drawn / max(1, self.steps)


def log_normalizer_remark(head: Head, hidden: Tensor, targets: Tensor) -> str:
    """How far scores are from log-probabilities, where they are meant to be them."""
    log_z = log_normalizer_statistics(cast("ScorerHead", head), hidden)
    return f"log Z = {log_z.mean:.2f} ± {log_z.std:.2f}"


def impossible_remark(head: Head, hidden: Tensor, targets: Tensor) -> str:
    """How many words have probability 0 in the sparse distribution itself."""
    log_prob = TopKSoftmaxHead.log_prob(cast("MeasuredTopK", head), hidden, targets[:, None])
    share = torch.isneginf(log_prob).double().mean().item()
    return f"its own is infinite: {100 * share:.1f} % of the test words have probability 0"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One row of the table."""

    title: str
    make: Callable[[Task], Head]
    outputs: Callable[[Task, Head], float] = lambda task, head: float("nan")
    """Outputs a token; NaN where only training tells, see ``counts_draws``."""
    within: float | None = None
    """The most its perplexity may be above that of the exact softmax, as a fraction of it."""
    likelihood: bool = True
    """Whether the objective is consistent with the likelihood."""
    learning_rate: float | None = None
    """A rate of its own, chosen on the valid part; None: that of all."""
    epochs: int | None = None
    """Epochs of its own; None: those of all."""
    weight_decay: float = 0.0
    """Of the vectors of classes or nodes, chosen on the valid part."""
    examples: Callable[[Task, Head], Examples] | None = None
    """Batches of its own, each one row."""
    counts_draws: bool = False
    remark: Callable[[Head, Tensor, Tensor], str] | None = None
    """What else is to be said of the trained head, from hidden states and targets of the test."""
    note: str = ""


def _all_classes(task: Task, head: Head) -> float:
    return float(task.num_classes)


def _shared(task: Task, head: Head) -> float:
    return SHARED_SAMPLES + 1.0


def _few(task: Task, head: Head) -> float:
    return FEW_SAMPLES + 1.0


def _sampled(task: Task) -> Head:
    return task.sampled(task.table(), sampled_softmax)


def _alike(task: Task, epochs: int = TREE_EPOCHS) -> Head:
    return task.hierarchical(Tree.huffman(task.corpus.counts, task.class_vectors(epochs)))


LAYERS = {
    "full": Layer(
        title="full softmax", make=lambda task: FullHead(task.table()), outputs=_all_classes
    ),
    "sampled": Layer(
        title=f"sampled softmax + log Q, {SHARED_SAMPLES:,} shared",
        make=_sampled,
        outputs=_shared,
        within=0.03,
        note="log-uniform negatives without repetition",
    ),
    "adaptive": Layer(
        title="adaptive softmax",
        make=Task.adaptive,
        outputs=opened_classes,
        within=0.03,
        note=f"cutoff {CUTOFFS[0]:,}, the tail at 1/{REDUCTION:g} of the dimension",
    ),
    "self_normalised": Layer(
        title="self-normalised",
        make=lambda task: SelfNormalisedHead(task.table(), alpha=0.1),
        outputs=_all_classes,
        within=0.03,
        remark=log_normalizer_remark,
        note="α = 0.1",
    ),
    "infrequent": Layer(
        title=f"infrequent normalisation, γ = {FRACTION:g}",
        make=lambda task: InfrequentHead(task.table(), alpha=1.0, fraction=FRACTION),
        outputs=lambda task, head: 1 + FRACTION * task.num_classes,
        within=0.03,
        remark=log_normalizer_remark,
        note="α = 1",
    ),
    "differentiated": Layer(
        title="differentiated softmax",
        make=lambda task: FullHead(task.differentiated()),
        outputs=_all_classes,
        within=0.03,
        note="15/16 of the dimensions for the first 7/10 of the classes, 1/16 for the others",
    ),
    "huffman": Layer(
        title="hierarchical, Huffman tree",
        make=lambda task: task.hierarchical(Tree.huffman(task.corpus.counts)),
        outputs=path_length,
        within=0.12,
        weight_decay=TREE_DECAY,
        note="starts at the frequencies",
    ),
    "huffman_alike": Layer(
        title="hierarchical, Huffman tree, similar words side by side",
        make=lambda task: _alike(task, LONGER_EPOCHS),
        outputs=path_length,
        within=0.12,
        learning_rate=0.002,
        epochs=8,
        weight_decay=0.15,
        note=f"{BY_LONGER_STATES}; starts at the frequencies",
    ),
    "huffman_wide": Layer(
        title=f"hierarchical, Huffman tree, nodes of {WIDTH}",
        make=lambda task: task.behind_layer(_alike),
        outputs=path_length,
        within=0.12,
        weight_decay=TREE_DECAY,
        note=f"similar words side by side, {BY_STATES}; nodes read the state through "
        f"{WIDTH} rectified units of the head's own",
    ),
    "clustered": Layer(
        title="hierarchical, clustered tree",
        make=lambda task: task.hierarchical(
            Tree.clustered(task.class_vectors(TREE_EPOCHS), task.corpus.counts)
        ),
        outputs=path_length,
        within=0.12,
        weight_decay=TREE_DECAY,
        note=f"{BY_STATES}; starts at the frequencies",
    ),
    "nce": Layer(
        title=f"NCE, {FEW_SAMPLES} samples",
        make=Task.noise_contrastive,
        outputs=_few,
        within=0.16,
        remark=log_normalizer_remark,
        note="unigram noise, drawn for each token",
    ),
    "corrected_log_q": Layer(
        title=f"corrected log Q, {SHARED_SAMPLES:,} shared",
        make=lambda task: task.sampled(task.table(), corrected_log_q),
        outputs=_shared,
        note="log-uniform negatives without repetition",
    ),
    "sampled_wide": Layer(
        title=f"sampled softmax + log Q, {SHARED_SAMPLES:,} shared, class vectors of {WIDTH}",
        make=lambda task: task.behind_layer(_sampled),
        outputs=_shared,
        note=f"the state through the same {WIDTH} units as the tree",
    ),
    "target_sampling": Layer(
        title=f"target sampling, ≤ {PART_CLASSES:,} classes a part",
        make=Task.parts,
        outputs=part_size,
        examples=part_blocks,
    ),
    "target_sampling_share": Layer(
        title=f"target sampling + log π, ≤ {PART_CLASSES:,} classes a part",
        make=lambda task: task.parts(share_correction=True),
        outputs=part_size,
        examples=part_blocks,
        note="π: the share of the text whose part holds the word",
    ),
    "importance": Layer(
        title=f"importance sampling, ESS ≥ {EFFECTIVE_SIZE}",
        make=Task.importance,
        counts_draws=True,
        note=f"unigram draws, {NUM_DRAWN:,} to {MOST_DRAWN:,} shared",
    ),
    "negative_sampling": Layer(
        title=f"negative sampling, {FEW_SAMPLES} samples",
        make=Task.negative_sampling,
        outputs=_few,
        likelihood=False,
        note="F learns log(P/Q); measured by the softmax over F",
    ),
    "cnn": Layer(
        title=f"CNN softmax, {SHARED_SAMPLES:,} shared",
        make=lambda task: task.sampled(task.spelled(), sampled_softmax),
        outputs=_shared,
        note="class vectors from spellings, a correction of 32 dimensions",
    ),
    "topk": Layer(
        title=f"top-k sparse softmax, k = {SPARSE_K:,}",
        make=lambda task: MeasuredTopK(task.table(), k=SPARSE_K),
        outputs=_all_classes,
        likelihood=False,
        epochs=2,
        remark=impossible_remark,
        note="measured by the softmax over all scores",
    ),
}
"""In the order in which they are trained: what is claimed comes first."""
