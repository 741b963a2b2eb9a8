"""An audit of very many classes: bounded memory, and sketches that agree with whole gradients."""

import sys

import pytest
import torch

from tests import forked
from widemax.auditing import audit
from widemax.auditing.measuring import spaces
from widemax.auditing.measuring.sketch import Sketch
from widemax.heads import SampledHead
from widemax.objectives import info_nce
from widemax.sampling import UnigramSampler
from widemax.scoring import TableScorer

V, D, N = 3000, 4, 32


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_inner_products_of_sketches_are_right_on_average():
    generator, width, rows = seeded(0), 64, 2000
    left, right = torch.randn(2, rows, V, generator=generator, dtype=torch.float64)
    sketch, ids = Sketch(V, most=width), torch.arange(V)
    assert (sketch.width, sketch.exact) == (width, False)
    kept = []
    for values in (left, right):
        signed = sketch.signed(values, torch.arange(rows), ids)
        places = sketch.places(ids).expand(rows, -1)
        kept.append(torch.zeros(rows, width, dtype=torch.float64).scatter_add_(1, places, signed))
    size = float(left.square().sum())
    assert float((kept[0] * kept[1]).sum()) / size == pytest.approx(
        float((left * right).sum()) / size, abs=0.02
    )
    squares = kept[0].square().sum(1) / left.square().sum(1)
    assert float(squares.mean()) == pytest.approx(1.0, abs=0.02)
    # Each row alone is off by sqrt(2 / width); their norms by half of that.
    assert float(squares.std()) == pytest.approx((2 / width) ** 0.5, rel=0.15)
    assert sketch.relative_error(1.0) == pytest.approx(float(squares.std()) / 2, rel=0.15)


def test_places_and_signs_are_even():
    ids = torch.arange(100_000)
    sketch = Sketch(len(ids), most=256)
    counts = torch.bincount(sketch.places(ids), minlength=256)
    assert 250 < int(counts.min()) <= int(counts.max()) < 550
    signs = sketch.signed(torch.ones(8, len(ids)), torch.arange(8), ids)
    assert signs.mean(1).abs().max() < 0.02
    # Signs of one row say nothing about those of another.
    products = signs @ signs.T / len(ids)
    assert (products - torch.eye(8)).abs().max() < 0.02


def head():
    counts = 1_000_000 // torch.arange(1, V + 1)
    scorer = TableScorer(V, D, bias=True)
    with torch.no_grad():
        scorer.weight.copy_(torch.randn(V, D, generator=seeded(1)))
        scorer.bias.copy_(0.5 * counts.log())
    sampler = UnigramSampler(V, counts, distortion=1.0)
    return SampledHead(scorer, sampler, objective=info_nce, num_samples=50), counts


def test_a_sketched_audit_agrees_with_a_whole_one(monkeypatch):
    wide, counts = head()
    hidden = torch.randn(N, D, generator=seeded(2))
    targets = torch.multinomial(counts.double(), N, replacement=True, generator=seeded(3))
    whole = audit(wide, hidden, targets, draws=200, generator=seeded(4))
    monkeypatch.setattr(spaces, "_MAX_BYTES", 2**20)
    sketched = audit(wide, hidden, targets, draws=200, generator=seeded(4))
    for space, exact in whole.overall.gradients.items():
        found = sketched.overall.gradients[space]
        assert found.bias == pytest.approx(exact.bias, rel=0.1)
        assert found.spread == pytest.approx(exact.spread, rel=0.1)
        assert found.bias_low <= exact.bias <= found.bias_high
    assert sketched.overall.gradients["scores"] != whole.overall.gradients["scores"]


MEASURED = """
import torch
import widemax as wm
from widemax.auditing import audit

def resident(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))

V = 1_000_000
head = wm.SampledHead(
    wm.TableScorer(V, 32, sparse=True),
    wm.UnigramSampler(V, torch.arange(V, 0, -1), unique=True),
    num_samples=1024,
)
hidden, targets = torch.randn(48, 32), torch.arange(48) * 20_000
groups = {name: torch.arange(48) % 3 == n for n, name in enumerate(("head", "torso", "tail"))}
head(hidden, targets).sum().backward()
head.zero_grad()
few = wm.SampledHead(
    wm.TableScorer(50_000, 32, sparse=True),
    wm.UnigramSampler(50_000, torch.arange(50_000, 0, -1), unique=True),
    num_samples=1024,
)
audit(few, hidden, targets // 20, draws=20, groups=groups)  # kernels are compiled
del few
open("/proc/self/clear_refs", "w").write("5")
before = resident("VmRSS")
report = audit(head, hidden, targets, draws=20, groups=groups)
print((resident("VmHWM") - before) / 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_audit_of_a_million_classes_takes_at_most_256_mb_beside_the_model():
    done = forked.run(["-c", MEASURED])
    assert done.returncode == 0, done.stderr
    assert 10 < float(done.stdout) < 256
