"""Tables in half precision against float32 tables of the same, rounded, values."""

import pytest
import torch
from torch import nn

from widemax.contracts import check_head
from widemax.heads import (
    FullHead,
    SampledHead,
    as_full_head,
    as_sampled_head,
    as_table,
    class_vectors_of,
    copy_class_vectors,
)
from widemax.heads.exact import linear
from widemax.sampling import UniformSampler
from widemax.scoring import TableScorer

V, D, B = 60, 8, 10
OPTIONS = {
    "plain": {},
    "bias": {"bias": True},
    "temperature": {"bias": True, "temperature": 0.5},
    "cosine": {"bias": True, "similarity": "cosine", "temperature": 0.2},
}
HALVES = [torch.bfloat16, torch.float16]


def twins(dtype=torch.bfloat16, sparse=True, **options):
    """Return a table in half precision and one in float32 with the same numbers."""
    torch.manual_seed(0)
    half = TableScorer(V, D, dtype=dtype, sparse=sparse, **options)
    wide = TableScorer(V, D, sparse=sparse, **options)
    if half.bias is not None:
        nn.init.normal_(half.bias)
    wide.load_state_dict(half.state_dict())  # widens: no number is lost
    return half, wide


def batch():
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(B, D, generator=generator).requires_grad_()
    return hidden, torch.randint(V, (B,), generator=generator)


def assert_same(one, other):
    assert one.dtype == other.dtype == torch.float32
    torch.testing.assert_close(one, other)


def test_the_table_is_stored_as_asked_and_the_bias_is_not():
    for dtype in (*HALVES, torch.float32, torch.float64):
        scorer = TableScorer(V, D, bias=True, dtype=dtype)
        assert scorer.weight.dtype == dtype
        assert scorer.bias.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert TableScorer(V, D).weight.dtype == torch.float32
    half, _ = twins()
    assert half.weight.untyped_storage().nbytes() == V * D * 2
    # Drawn like any table, only rounded.
    assert half.weight.float().std().item() == pytest.approx(D**-0.5, rel=0.1)
    tied = TableScorer.tied(nn.Embedding(V, D, dtype=torch.bfloat16), bias=True)
    assert tied.bias.dtype == torch.float32
    assert class_vectors_of(half).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.float8_e4m3fn, "bfloat16"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match=r"dtype must be one of .*bfloat16.* got"):
        TableScorer(V, D, dtype=dtype)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("ids", [None, torch.tensor([3, 5, 3]), torch.arange(2 * B).view(B, 2)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_scores_are_those_of_the_wide_table(options, ids, dtype):
    half, wide = twins(dtype, **options)
    hidden, _ = batch()
    assert_same(half(hidden, ids), wide(hidden, ids))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_training_step_is_that_of_the_wide_table(options, sparse):
    half, wide = twins(sparse=sparse, **options)
    found = []
    for scorer in (half, wide):
        hidden, targets = batch()
        head = SampledHead(scorer, UniformSampler(V), num_samples=12)
        head(hidden, targets, generator=torch.Generator().manual_seed(2)).sum().backward()
        found.append([hidden.grad, *(each.grad.to_dense() for each in scorer.parameters())])
    for one, other in zip(*found, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("tile", [21, 2**21])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_exact_evaluation_is_that_of_the_wide_table(options, tile, monkeypatch):
    monkeypatch.setattr(linear, "_TILE_SCORES", tile)
    monkeypatch.setattr(linear, "_TOPK_TILE_SCORES", tile)
    half, wide = (FullHead(scorer) for scorer in twins(**options))
    hidden, targets = batch()
    assert_same(half(hidden, targets), wide(hidden, targets))
    assert_same(half.log_prob(hidden), wide.log_prob(hidden))
    assert_same(half.log_prob(hidden, targets[:, None]), wide.log_prob(hidden, targets[:, None]))
    assert_same(half.log_normalizer(hidden), wide.log_normalizer(hidden))
    best, expected = half.topk(hidden, 7), wide.topk(hidden, 7)
    assert torch.equal(best.ids, expected.ids)
    assert_same(best.scores, expected.scores)


def test_full_and_sampled_gradients_of_one_table_add_up():
    """The two meet in ``log_prob`` of given classes: one is dense, one sparse."""
    half, wide = twins(bias=True)
    for scorer in (half, wide):
        hidden, targets = batch()
        FullHead(scorer).log_prob(hidden, targets[:, None]).sum().backward()
    torch.testing.assert_close(
        half.weight.grad.to_dense().float(), wide.weight.grad.to_dense(), rtol=1e-2, atol=1e-2
    )


def test_hidden_states_may_have_half_precision_too():
    half, wide = twins(bias=True)
    hidden, targets = batch()
    rounded = hidden.detach().bfloat16().requires_grad_()
    assert_same(half(rounded, targets), wide(rounded.float(), targets))
    half(rounded, targets).sum().backward()
    assert rounded.grad.dtype == torch.bfloat16


def test_conversions_keep_the_scores():
    half, wide = twins(temperature=0.5, bias=True)
    hidden, _ = batch()
    sampled = as_sampled_head(FullHead(half), UniformSampler(V), num_samples=5)
    assert as_full_head(sampled).scorer is half
    plain = as_table(half)
    torch.testing.assert_close(plain(hidden), wide(hidden), rtol=2e-2, atol=2e-2)
    into = TableScorer(V, D, bias=True)
    copy_class_vectors(half, into)
    torch.testing.assert_close(into(hidden), wide(hidden), rtol=2e-2, atol=2e-2)
    back = TableScorer(V, D, bias=True, temperature=0.5, dtype=torch.bfloat16)
    copy_class_vectors(wide, back)
    assert torch.equal(back.weight, half.weight)
    assert torch.equal(back.bias, half.bias)


def test_a_tied_embedding_learns_from_both_uses():
    embedding = nn.Embedding(V, D, dtype=torch.bfloat16, sparse=True)
    scorer = TableScorer.tied(embedding, sparse=True)
    ids = torch.tensor([1, 2, 3])
    hidden = embedding(ids).float()
    scorer(hidden, torch.tensor([2, 9])).sum().backward()
    assert embedding.weight.grad.is_sparse
    assert embedding.weight.grad.dtype == torch.float32
    touched = embedding.weight.grad.coalesce().indices()[0]
    assert touched.tolist() == [1, 2, 3, 9]
    # d/dw_1 of Σ h_i·w_j with h_1 = w_1 is w_2 + w_9.
    table = embedding.weight.detach().float()
    found = embedding.weight.grad.to_dense()[1]
    torch.testing.assert_close(found, table[2] + table[9], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_contract_of_heads(sparse):
    half, _ = twins(bias=True, sparse=sparse)
    check_head(FullHead(half), dimension=D)
    check_head(SampledHead(half, UniformSampler(V), num_samples=12), dimension=D)


def test_training_brings_the_loss_down():
    torch.manual_seed(0)
    scorer = TableScorer(V, D, bias=True, sparse=True, dtype=torch.bfloat16)
    head = SampledHead(scorer, UniformSampler(V), num_samples=20)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.5)
    hidden, targets = batch()
    hidden = hidden.detach()
    before = -head.log_prob(hidden, targets[:, None]).mean().item()
    for _ in range(60):
        optimizer.zero_grad()
        head(hidden, targets).mean().backward()
        optimizer.step()
    after = -head.log_prob(hidden, targets[:, None]).mean().item()
    assert after < before / 2
