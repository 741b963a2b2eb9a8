"""Heads and scorers that order classes by frequency or leave most at 0, for the contract tests."""

from functools import partial

import torch
from torch import nn

from tests.heads.head_cases import DIMENSION, NUM_CLASSES, SAMPLERS
from widemax.heads import (
    AdaptiveHead,
    CostModel,
    Entmax15Head,
    FullHead,
    HierarchicalHead,
    LayeredHead,
    SampledHead,
    SparsemaxHead,
    TopKSoftmaxHead,
    Tree,
)
from widemax.objectives import nce, sampled_softmax
from widemax.scoring import TableScorer
from widemax.scoring.differentiated import DifferentiatedScorer
from widemax.scoring.sharded import ShardedTableScorer

MACHINE = CostModel(overhead=1e-6, per_score=1e-8, per_product=1e-10, per_parameter=1e-9)


def zipf(num_classes=NUM_CLASSES):
    return 1e6 / torch.arange(1, num_classes + 1, dtype=torch.float64)


SCORERS = {
    "differentiated": lambda: DifferentiatedScorer(NUM_CLASSES, [(10, 3), (30, 2)]),
    "differentiated, bias": lambda: DifferentiatedScorer(
        NUM_CLASSES, [(5, 2), (10, 2), (25, 1)], bias=True
    ),
    "differentiated, one block": lambda: DifferentiatedScorer(
        NUM_CLASSES, [(NUM_CLASSES, DIMENSION)], bias=True
    ),
    "sharded": lambda: ShardedTableScorer(NUM_CLASSES, DIMENSION, num_shards=3),
    "sharded, bias": lambda: ShardedTableScorer(
        NUM_CLASSES, DIMENSION, num_shards=7, shard_by="div", bias=True
    ),
}


def adaptive(**options):
    return lambda: AdaptiveHead(DIMENSION, NUM_CLASSES, reduction=2.0, **options)


ADAPTIVE = {
    "adaptive": adaptive(cutoffs=[10, 25]),
    "adaptive, bias": adaptive(cutoffs=[4, 10, 25], bias=True),
    "adaptive, no tail": adaptive(cutoffs=[], bias=True),
    "adaptive, one class in the head": adaptive(cutoffs=[1]),
    "adaptive, one class in the tail": adaptive(cutoffs=[NUM_CLASSES - 1], bias=True),
    "adaptive, automatic": adaptive(cutoffs="auto", counts=zipf(), cost_model=MACHINE),
}

SPARSE = {
    "top-k-softmax": partial(TopKSoftmaxHead, k=7),
    "top-k-softmax, one": partial(TopKSoftmaxHead, k=1),
    "top-k-softmax, all": partial(TopKSoftmaxHead, k=NUM_CLASSES),
    "sparsemax": SparsemaxHead,
    "entmax-1.5": Entmax15Head,
}


def sparse_heads():
    for name, make in SPARSE.items():
        yield name, partial(lambda make: make(TableScorer(NUM_CLASSES, DIMENSION, bias=True)), make)
    blocks = SCORERS["differentiated, bias"]
    yield "sparsemax, differentiated", lambda: SparsemaxHead(blocks())


def sampled(scorer, sampler_name, objective):
    sampler, num_samples = SAMPLERS[sampler_name]()
    return SampledHead(scorer(), sampler, objective=objective, num_samples=num_samples)


def heads_of_scorers():
    for name, scorer in SCORERS.items():
        yield f"full, {name}", partial(lambda scorer: FullHead(scorer()), scorer)
        for sampler in ("log-uniform", "uniform, per example", "in-batch"):
            for objective in (sampled_softmax, nce):
                label = f"{sampler} × {objective.__name__}, {name}"
                yield label, partial(sampled, scorer, sampler, objective)


def layered(head):
    return LayeredHead(DIMENSION, nn.Sequential(nn.Linear(DIMENSION, 9), nn.Tanh()), head)


LAYERED = {
    "layered, full": lambda: layered(FullHead(TableScorer(NUM_CLASSES, 9, bias=True))),
    "layered, hierarchical": lambda: layered(HierarchicalHead(9, Tree.huffman(zipf()), bias=True)),
}


# Losses of sparse heads are differentiable, the top-k one but for ties: every gradient is checked.
HEADS = {
    name: (make, True)
    for name, make in [
        *ADAPTIVE.items(),
        *LAYERED.items(),
        *sparse_heads(),
        *heads_of_scorers(),
    ]
}
