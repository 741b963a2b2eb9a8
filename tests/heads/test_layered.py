"""A head behind a layer of its own: what it is made of, and that trees gain by it."""

import pytest
import torch
from torch import nn

from tests.heads import head_cases_structured as cases
from widemax.contracts.head import check_head
from widemax.heads import FullHead, HierarchicalHead, LayeredHead, Tree
from widemax.scoring import TableScorer


@pytest.mark.parametrize("name", cases.LAYERED)
def test_contract(name):
    torch.manual_seed(0)
    check_head(cases.LAYERED[name](), dimension=cases.DIMENSION)


@pytest.mark.parametrize("name", cases.LAYERED)
def test_it_is_the_head_of_what_the_layer_gives(name):
    torch.manual_seed(0)
    outer = cases.LAYERED[name]()
    hidden, targets = torch.randn(6, cases.DIMENSION), torch.arange(6)
    wide = outer.layer(hidden)
    assert torch.equal(outer(hidden, targets), outer.head(wide, targets))
    assert torch.equal(outer.log_prob(hidden), outer.head.log_prob(wide))
    assert torch.equal(outer.scores(hidden, targets), outer.head.scores(wide, targets))
    seen = targets[:, None]
    found = outer.topk(hidden, 3, exclude=seen), outer.head.topk(wide, 3, exclude=seen)
    assert torch.equal(found[0].ids, found[1].ids)


def test_the_layer_is_trained_and_stored():
    torch.manual_seed(0)
    head = cases.LAYERED["layered, hierarchical"]()
    head.head.weight.data.normal_()
    head(torch.randn(6, cases.DIMENSION), torch.arange(6)).sum().backward()
    assert all(bool((each.grad != 0).any()) for each in head.layer.parameters())
    other = cases.LAYERED["layered, hierarchical"]()
    other.load_state_dict(head.state_dict())
    hidden = torch.randn(2, cases.DIMENSION)
    assert torch.equal(other.log_prob(hidden), head.log_prob(hidden))


def test_ignored_targets_are_those_of_the_head():
    inner = HierarchicalHead(4, Tree.balanced(5), ignore_index=-1)
    head = LayeredHead(4, nn.Identity(), inner)
    assert head.ignore_index == -1
    assert head(torch.randn(2, 4), torch.tensor([-1, 3]))[0] == 0


def test_nodes_part_what_no_plane_parts():
    """Exclusive or: the class is told by whether two signs agree, which one node cannot see."""
    torch.manual_seed(0)
    hidden = torch.randn(400, 2).sign() + 0.1 * torch.randn(400, 2)
    targets = (hidden.prod(-1) > 0).long()
    losses = {}
    for name, width in {"plain": None, "layered": 16}.items():
        inner = HierarchicalHead(width or 2, Tree.balanced(2), bias=True)
        layer = nn.Sequential(nn.Linear(2, width), nn.ReLU()) if width else nn.Identity()
        head = LayeredHead(2, layer, inner)
        optimizer = torch.optim.Adam(head.parameters(), 0.05)
        for _ in range(200):
            optimizer.zero_grad()
            loss = head(hidden, targets).mean()
            loss.backward()
            optimizer.step()
        losses[name] = loss.item()
    assert losses["plain"] > 0.6
    assert losses["layered"] < 0.1


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda head: LayeredHead(0, nn.Identity(), head), "dimension"),
        (lambda head: LayeredHead(4, torch.tanh, head), "layer"),
        (lambda head: LayeredHead(4, nn.Identity(), nn.Linear(4, 4)), "head"),
        (lambda head: LayeredHead(4, nn.Identity(), head).topk(torch.zeros(1, 3), 1), "hidden"),
        (
            lambda head: LayeredHead(4, nn.Linear(4, 3), head)(
                torch.zeros(1, 4), torch.zeros(1, dtype=torch.int64)
            ),
            "hidden",
        ),
    ],
)
def test_errors_name_what_is_wrong(make, named):
    with pytest.raises(ValueError, match=named):
        make(FullHead(TableScorer(5, 4)))
