"""Hard negatives of the batch against a loop over rows."""

import pytest
import torch

from widemax.contracts.head import check_head
from widemax.heads import SampledHead
from widemax.objectives import info_nce
from widemax.sampling import BatchHardNegativeSampler, MixtureSampler, UniformSampler
from widemax.scoring import TableScorer

V, D = 25, 4


def expected(scores, own, pool, number, semi_hard):
    """The ids of one row, by sorting (group, −score)."""
    lowest = min(scores[y] for y in own)

    def key(y):
        group = 2 if y in own else int(semi_hard and scores[y] >= lowest)
        return group, -scores[y]

    return sorted(pool, key=key)[:number]


@pytest.mark.parametrize("semi_hard", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_equals_a_loop_over_rows(semi_hard, several):
    generator = torch.Generator().manual_seed(0)
    scorer = TableScorer(V, D)
    hidden = torch.randn(9, D, generator=generator)
    targets = torch.randint(V, (9, 2) if several else (9,), generator=generator)
    if several:
        targets[3, 1] = -1
    sampler = BatchHardNegativeSampler(V, scorer, semi_hard=semi_hard)
    ids = sampler.sample(5, targets, hidden=hidden).ids
    scores = scorer(hidden).detach().tolist()
    rows = targets.view(9, -1).tolist()
    pool = {y for row in rows for y in row if y >= 0}
    for row, got in enumerate(ids.tolist()):
        own = {y for y in rows[row] if y >= 0}
        assert got == expected(scores[row], own, pool, 5, semi_hard)


def test_no_probability_sample():
    sampler = BatchHardNegativeSampler(V, TableScorer(V, D))
    with pytest.raises(ValueError, match="no log_prob"):
        sampler.log_prob(torch.tensor([1]))
    with pytest.raises(ValueError, match="no probability sample"):
        MixtureSampler([sampler, UniformSampler(V, per_example=True)], [0.5, 0.5])


def test_wrong_arguments_are_named():
    sampler = BatchHardNegativeSampler(V, TableScorer(V, D))
    with pytest.raises(ValueError, match="num_samples must be at most 2"):
        sampler.sample(3, torch.tensor([1, 2, 2]), hidden=torch.randn(3, D))
    with pytest.raises(ValueError, match="hidden"):
        sampler.sample(1, torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="score"):
        BatchHardNegativeSampler(V, None)
    assert sampler.available(torch.tensor([[1, 2], [2, -1]])) == 2


@pytest.mark.parametrize("semi_hard", [False, True])
def test_the_head_keeps_its_contract(semi_hard):
    torch.manual_seed(0)
    scorer = TableScorer(V, D).double()
    sampler = BatchHardNegativeSampler(V, scorer, semi_hard=semi_hard)
    check_head(SampledHead(scorer, sampler, objective=info_nce), dimension=D)
