"""The heads that output_layers.py compares, made for one corpus and one width of hidden state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from _language import Corpus
from widemax.data import Sequences, WindowBatch, Windows
from widemax.heads import (
    AdaptiveHead,
    Head,
    HierarchicalHead,
    ImportanceHead,
    LayeredHead,
    SampledHead,
    ScorerHead,
    TopKSoftmaxHead,
    Tree,
)
from widemax.objectives import Objective, nce, negative_sampling
from widemax.sampling import LogUniformSampler, PartitionSampler, UnigramSampler
from widemax.scoring import CharCNNScorer, DifferentiatedScorer, Scorer, TableScorer
from widemax.training.steps import Examples

SHARED_SAMPLES, FEW_SAMPLES = 1_000, 25
CUTOFFS, REDUCTION = [2_000], 2.0
FREQUENT, NARROW = 0.7, 1 / 16
PART_CLASSES, SPARSE_K, FRACTION = 2_000, 1_000, 0.5
NUM_DRAWN, EFFECTIVE_SIZE, MOST_DRAWN = 500, 50, 2_000
WIDTH, WIDE_DROPOUT = 512, 0.2


@dataclass(frozen=True)
class Task:
    """What layers are made for; ``class_vectors`` are those a tree is clustered by, by epochs."""

    corpus: Corpus
    dimension: int
    batch_size: int
    context_size: int
    class_vectors: Callable[[int], Tensor]

    @property
    def num_classes(self) -> int:
        return self.corpus.num_classes

    def table(self) -> TableScorer:
        scorer = TableScorer(self.num_classes, self.dimension, bias=True)
        scorer.weight.data.mul_(0.5)
        self.start_at_frequencies(scorer.bias)
        return scorer

    def differentiated(self) -> DifferentiatedScorer:
        frequent = round(FREQUENT * self.num_classes)
        narrow = round(NARROW * self.dimension)
        blocks = [(frequent, self.dimension - narrow), (self.num_classes - frequent, narrow)]
        scorer = DifferentiatedScorer(self.num_classes, blocks, bias=True)
        for weight in scorer.weights:
            weight.data.mul_(0.5)
        self.start_at_frequencies(scorer.bias)
        return scorer

    def spelled(self) -> CharCNNScorer:
        words = self.corpus.vocabulary.keys
        scorer = CharCNNScorer(
            words, self.dimension, widths=(1, 3, 5), filters=32, correction_dimension=32, bias=True
        )
        self.start_at_frequencies(scorer.bias)
        return scorer

    def start_at_frequencies(self, bias: Tensor | None) -> None:
        """Let a flat layer predict the frequencies at first: log Z then starts near 0, too."""
        cast("Tensor", bias).data.copy_((self.corpus.counts / self.corpus.counts.sum()).log())

    def sampled(self, scorer: Scorer, objective: Objective) -> SampledHead:
        sampler = LogUniformSampler(self.num_classes, unique=True)
        return SampledHead(scorer, sampler, objective=objective, num_samples=SHARED_SAMPLES)

    def unigram(self, *, distortion: float, per_example: bool) -> UnigramSampler:
        return UnigramSampler(
            self.num_classes, self.corpus.counts, distortion=distortion, per_example=per_example
        )

    def noise_contrastive(self) -> SampledHead:
        noise = self.unigram(distortion=1.0, per_example=True)
        return SampledHead(self.table(), noise, objective=nce, num_samples=FEW_SAMPLES)

    def negative_sampling(self) -> SampledHead:
        # No log-frequencies here: F learns log(P/Q), in which they cancel.
        scorer = TableScorer(self.num_classes, self.dimension, bias=True)
        noise = self.unigram(distortion=0.75, per_example=True)
        return SampledHead(scorer, noise, objective=negative_sampling, num_samples=FEW_SAMPLES)

    def importance(self) -> ImportanceHead:
        return ImportanceHead(
            self.table(),
            self.unigram(distortion=1.0, per_example=False),
            num_samples=NUM_DRAWN,
            effective_size=EFFECTIVE_SIZE,
            max_samples=MOST_DRAWN,
        )

    def parts(self, *, share_correction: bool = False) -> SampledHead:
        sampler = PartitionSampler.from_targets(
            self.corpus.train,
            self.num_classes,
            max_classes=PART_CLASSES,
            share_correction=share_correction,
        )
        return SampledHead(self.table(), sampler)

    def hierarchical(self, tree: Tree) -> HierarchicalHead:
        head = HierarchicalHead(self.dimension, tree, bias=True)
        cast("Tensor", head.bias).data.copy_(tree.log_odds(self.corpus.counts))
        return head

    def behind_layer(self, make: Callable[[Task], Head]) -> LayeredHead:
        """What ``make`` makes, reading the state through a wider layer of the head's own."""
        head = make(replace(self, dimension=WIDTH))
        units = nn.Sequential(nn.Linear(self.dimension, WIDTH), nn.ReLU(), nn.Dropout(WIDE_DROPOUT))
        return LayeredHead(self.dimension, units, head)

    def adaptive(self) -> AdaptiveHead:
        head = AdaptiveHead(
            self.dimension, self.num_classes, cutoffs=CUTOFFS, reduction=REDUCTION, bias=True
        )
        head.weight.data.mul_(0.5)
        limits = [*CUTOFFS, self.num_classes]
        frequencies = self.corpus.counts / self.corpus.counts.sum()
        clusters = [frequencies[start:stop].sum() for start, stop in pairwise(limits)]
        first_level = torch.cat([frequencies[: limits[0]], torch.stack(clusters)])
        cast("Tensor", head.bias).data.copy_(first_level.log())
        return head


class MeasuredTopK(TopKSoftmaxHead):
    """The sparse softmax, measured by the softmax over all its scores: its own gives −inf."""

    def log_prob(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        return ScorerHead.log_prob(self, hidden, ids)


class PartBlocks:
    """Batches of one part each: a row is a block of tokens of one part, mixed within the part."""

    def __init__(self, task: Task, sampler: PartitionSampler) -> None:
        stream = task.corpus.train
        sequences = Sequences(stream, torch.tensor([0, len(stream)]))
        self.windows = Windows(sequences, before=task.context_size)
        self.sampler = sampler
        mixed = torch.Generator().manual_seed(0)
        self.blocks = [
            (part, start + rows)
            for part, (start, stop) in enumerate(sampler.ranges)
            for rows in torch.randperm(stop - start, generator=mixed).split(task.batch_size)
        ]

    def __len__(self) -> int:
        return len(self.blocks)

    def batch(self, rows: Tensor) -> WindowBatch:
        (row,) = rows.tolist()
        part, places = self.blocks[row]
        self.sampler.select(part)
        return self.windows.batch(places)


def part_blocks(task: Task, head: Head) -> Examples:
    return PartBlocks(task, cast("PartitionSampler", cast("SampledHead", head).sampler))
