"""The library's tree against the one that experiments/_plain_tree.py builds from nothing of it."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments"))

from _plain_tree import Codes, PlainTreeModel, Training, huffman_codes
from widemax.heads import HierarchicalHead, Tree

V, D, B = 60, 8, 64
COUNTS = [int(4000 / (rank + 2.7)) for rank in range(V)]


def codes_of(tree: Tree) -> Codes:
    """The library's paths, written as the plain model reads them."""
    paths = tree.paths(torch.arange(V))
    return Codes(paths.nodes, paths.signs.double())


def plain_model() -> PlainTreeModel:
    training = Training(context_size=2, dimension=D, hidden_size=D, dropout=0.0)
    model = PlainTreeModel(codes_of(Tree.huffman(COUNTS)), training).double()
    model.node_vectors.data.normal_()
    model.node_biases.data.normal_()
    return model


def test_both_huffman_trees_are_as_short():
    plain, library = huffman_codes(COUNTS), codes_of(Tree.huffman(COUNTS))
    counts = torch.tensor(COUNTS)
    assert (plain.depths * counts).sum() == (library.depths * counts).sum()


def test_both_start_at_the_frequencies():
    tree = Tree.huffman(COUNTS)
    counts = torch.tensor(COUNTS)
    torch.testing.assert_close(
        tree.log_odds(COUNTS).float(), codes_of(tree).log_odds(counts), rtol=1e-6, atol=1e-6
    )


def test_the_same_weights_have_the_same_loss_and_gradients():
    torch.manual_seed(0)
    plain = plain_model()
    head = HierarchicalHead(D, Tree.huffman(COUNTS), bias=True).double()
    head.weight.data.copy_(plain.node_vectors)
    head.bias.data.copy_(plain.node_biases)
    context, targets = torch.randint(V, (B, 2)), torch.randint(V, (B,))
    hidden = torch.tanh(plain.hidden(plain.words[context].flatten(1)))
    expected, found = plain(context, targets), head(hidden, targets)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    wanted = torch.autograd.grad(
        expected.sum(), [plain.node_vectors, plain.node_biases, plain.words]
    )
    given = torch.autograd.grad(found.sum(), [head.weight, head.bias, plain.words])
    for mine, other in zip(given, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-11, atol=1e-12)
