"""The head of experiments/beauty.py that draws for parts of a batch."""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from widemax.scoring import TableScorer

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))

import beauty


def test_parts_are_the_head_of_each_part():
    """Looked up at once or part by part, losses and gradients are the same."""
    torch.manual_seed(0)
    data = SimpleNamespace(num_classes=300, counts=torch.randint(50, (300,)))
    scorer = TableScorer(300, 8).double()
    hidden = torch.randn(50, 8, dtype=torch.float64)
    targets = torch.randint(300, (50,))
    at_once = beauty._shared(40, 0.5, beauty.InParts)(data, scorer)
    plain = beauty._shared(40, 0.5)(data, scorer)
    losses = at_once(hidden, targets, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1)
    parts = zip(hidden.chunk(beauty.NUM_PARTS), targets.chunk(beauty.NUM_PARTS), strict=True)
    expected = torch.cat([plain(*part, generator=generator) for part in parts])
    assert torch.allclose(losses, expected, rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(losses.sum(), scorer.weight)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), scorer.weight)
    assert torch.allclose(gradient, expected_gradient, rtol=0, atol=1e-12)
