"""One small head of every declared kind, for what must hold of all of them."""

from functools import partial

import torch

from widemax.declarations import declared
from widemax.heads import (
    AdaptiveHead,
    Entmax15Head,
    FullHead,
    HierarchicalHead,
    ImportanceHead,
    InfrequentHead,
    SampledHead,
    SelfNormalisedHead,
    SparsemaxHead,
    TopKSoftmaxHead,
    Tree,
)
from widemax.sampling import UniformSampler
from widemax.scoring import TableScorer

NUM_CLASSES, DIMENSION, ROWS = 40, 6, 5


def scored(kind, **options):
    return kind(TableScorer(NUM_CLASSES, DIMENSION, bias=True), **options)


def drawn(kind, *, objective=None, per_example=False, sparse=False, **options):
    scorer = TableScorer(NUM_CLASSES, DIMENSION, bias=True, sparse=sparse)
    options |= {} if objective is None else {"objective": objective}
    sampler = UniformSampler(NUM_CLASSES, per_example=per_example)
    return kind(scorer, sampler, num_samples=12, **options)


MAKERS = {
    "adaptive": partial(AdaptiveHead, DIMENSION, NUM_CLASSES, cutoffs=[5, 20], bias=True),
    "entmax-1.5": partial(scored, Entmax15Head),
    "full": partial(scored, FullHead),
    "hierarchical": partial(
        HierarchicalHead, DIMENSION, Tree.huffman(range(NUM_CLASSES, 0, -1)), bias=True
    ),
    "importance": partial(drawn, ImportanceHead),
    "infrequent": partial(scored, InfrequentHead, fraction=0.5),
    "sampled": partial(drawn, SampledHead),
    "self-normalised": partial(scored, SelfNormalisedHead),
    "sparsemax": partial(scored, SparsemaxHead),
    "top-k-softmax": partial(scored, TopKSoftmaxHead, k=9),
}

NAMES = sorted(declared("head"))


def make_head(name, *, makers=MAKERS, **options):
    """Return the head of that name with parameters that are drawn; KeyError: it needs a row."""
    torch.manual_seed(0)
    head = makers[name](**options)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return head


def make_batch(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(ROWS, DIMENSION, generator=generator, dtype=torch.float64)
    return hidden.to(dtype), torch.tensor([0, 7, 39, 7, 21])
