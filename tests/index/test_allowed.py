"""Searches among some of the classes, against brute force over those."""

import pytest
import torch

import widemax as wm
from widemax.index import ExactIndex, HNSWIndex, IVFIndex

NUM_CLASSES, DIMENSION, K = 4000, 8, 10


@pytest.fixture(scope="module")
def head():
    torch.manual_seed(0)
    head = wm.FullHead(wm.TableScorer(NUM_CLASSES, DIMENSION, bias=True))
    torch.nn.init.normal_(head.scorer.weight)
    torch.nn.init.normal_(head.scorer.bias)
    return head


@pytest.fixture(scope="module", params=[ExactIndex, IVFIndex, HNSWIndex])
def index(request, head):
    if request.param is IVFIndex:
        return IVFIndex(head, lists=20, probes=20)
    return request.param(head)


@torch.no_grad()
def brute_force(head, queries, allowed, exclude):
    scores = head.scores(queries).masked_fill(~allowed, -torch.inf)
    for row, left_out in enumerate(exclude):
        scores[row, left_out[left_out >= 0]] = -torch.inf
    return scores.topk(K)


@pytest.mark.parametrize("share", [0.9, 0.3, 0.01, 0.001, 0.0])
@torch.no_grad()
def test_what_is_found_is_allowed_and_as_much_as_there_is(index, head, share):
    generator = torch.Generator().manual_seed(1)
    allowed = torch.rand(NUM_CLASSES, generator=generator) < share
    queries = torch.randn(5, DIMENSION, generator=generator)
    # What is left out is the best of each row, so that it would be found.
    best = head.topk(queries, 3).ids
    exclude = torch.cat([best, torch.full((5, 1), -1)], dim=1)
    found = index.search(queries, K, exclude=exclude, allowed=allowed)
    wanted = brute_force(head, queries, allowed, exclude)
    there = wanted.values > -torch.inf
    assert torch.equal(found.ids >= 0, there)
    kept = found.ids[there]
    assert bool(allowed[kept].all())
    assert not bool((found.ids[:, :, None] == best[:, None, :]).any())
    if isinstance(index, HNSWIndex):
        # It looks at some classes only: of what it finds the scores are right.
        own = head.scores(queries).gather(1, found.ids.clamp(min=0))
        assert torch.allclose(own[there], found.scores[there], atol=1e-5)
        share_found = sum(
            len({*a.tolist()} & {*b.tolist()}) / K
            for a, b in zip(found.ids, wanted.indices, strict=True)
        ) / len(queries)
        assert share < 0.05 or share_found > 0.6
    else:
        assert torch.allclose(found.scores[there], wanted.values[there], atol=1e-5)


def test_what_is_no_mask_of_the_classes_is_refused(index):
    queries = torch.zeros(1, DIMENSION)
    for wrong in (torch.ones(3, dtype=torch.bool), torch.ones(NUM_CLASSES)):
        with pytest.raises(ValueError, match="allowed must be bool"):
            index.search(queries, K, allowed=wrong)
