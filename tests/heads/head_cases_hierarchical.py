"""One row for each tree and each option of the hierarchical head, for the contract tests."""

from functools import partial

import torch

from widemax.heads import HierarchicalHead, Tree

NUM_CLASSES = 40
DIMENSION = 5


def counts():
    return 1.0 / torch.arange(1, NUM_CLASSES + 1)


def vectors():
    return torch.randn(NUM_CLASSES, 3, generator=torch.Generator().manual_seed(0))


TREES = {
    "balanced": lambda: Tree.balanced(NUM_CLASSES),
    "huffman": lambda: Tree.huffman(counts()),
    "huffman, vectors": lambda: Tree.huffman(counts(), vectors()),
    "clustered": lambda: Tree.clustered(vectors()),
    "clustered, counts": lambda: Tree.clustered(vectors(), counts()),
    "given, nested": lambda: Tree.given([list(range(20)), [[*range(20, 39)], [39]]]),
    "given, parents": lambda: Tree.given(parents=[40] * 20 + [41] * 20 + [42, 42, -1]),
    "given, categories": lambda: Tree.given(
        categories=[f"{y % 3}/{y % 5}" for y in range(NUM_CLASSES)]
    ),
    "chain": lambda: Tree.given(parents=[40, *range(40, 79), *range(41, 79), -1]),
}

OPTIONS = {"": {}, ", bias": {"bias": True}}


def make_head(tree, *, dimension=DIMENSION, seed=0, **options):
    """A head that has learned something: at the start all its vectors are 0."""
    head = HierarchicalHead(dimension, tree, **options)
    generator = torch.Generator().manual_seed(seed)
    for parameter in head.parameters():
        parameter.data.normal_(generator=generator)
    return head


def make(tree, options):
    return make_head(tree(), **options)


HEADS = {
    f"hierarchical, {name}{suffix}": (partial(make, tree, options), True)
    for name, tree in TREES.items()
    for suffix, options in OPTIONS.items()
}
