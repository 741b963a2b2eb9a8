"""Sparse heads: against brute force, the package entmax and the full softmax, in float64."""

import entmax
import pytest
import torch

from tests.heads import head_cases_structured as cases
from widemax.contracts.head import check_head
from widemax.heads import Entmax15Head, FullHead, SparsemaxHead, TopKSoftmaxHead
from widemax.heads.sparse import heads as sparse_heads
from widemax.heads.sparse import loss as sparse_loss
from widemax.scoring import TableScorer

HEADS = {
    "top-k": lambda scorer: TopKSoftmaxHead(scorer, k=6),
    "sparsemax": SparsemaxHead,
    "entmax": Entmax15Head,
}
PROJECTIONS = {
    "sparsemax": (SparsemaxHead, entmax.sparsemax, entmax.sparsemax_loss),
    "entmax": (Entmax15Head, entmax.entmax15, entmax.entmax15_loss),
}


@pytest.fixture(params=["at once", "small chunks", "nothing kept"])
def chunks(request, monkeypatch):
    if request.param != "at once":
        monkeypatch.setattr(sparse_loss, "_CHUNK_SCORES", 150)
        monkeypatch.setattr(sparse_heads, "_NARROW", 2)
    if request.param == "nothing kept":
        monkeypatch.setattr(sparse_loss, "_KEPT_SUPPORT", 0)


def make(kind, *, num_classes=50, dtype=torch.float64, spread=1.0):
    torch.manual_seed(0)
    scorer = TableScorer(num_classes, 8, bias=True)
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.copy_(torch.randn(parameter.shape) * spread)
    hidden = torch.randn(10, 8, dtype=dtype, requires_grad=True)
    return HEADS[kind](scorer.to(dtype)), hidden, torch.randint(num_classes, (10,))


def assert_same(left, right, tolerance=1e-10):
    for one, other in zip(left, right, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def gradients(losses, head, hidden):
    grad = torch.linspace(-1, 2, len(losses), dtype=losses.dtype)
    return torch.autograd.grad(losses, [hidden, *head.parameters()], grad)


def plain_losses(kind, scores, targets):
    """Losses of targets [B] with every score at hand."""
    if kind != "top-k":
        return PROJECTIONS[kind][2](scores, targets)
    losses = []
    for row, target in zip(scores, targets.tolist(), strict=True):
        union = sorted({*row.topk(6).indices.tolist(), target})
        losses.append(row[union].logsumexp(0) - row[target])
    return torch.stack(losses)


@pytest.mark.parametrize("name", [n for n in cases.HEADS if n.startswith(tuple(cases.SPARSE))])
def test_contract(name):
    make_head, gradients = cases.HEADS[name]
    torch.manual_seed(0)
    check_head(make_head(), dimension=cases.DIMENSION, gradients=gradients)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("spread", [0.05, 1.0])
@pytest.mark.parametrize("kind", HEADS)
def test_losses_equal_the_plain_ones_with_their_gradients(kind, spread):
    head, hidden, targets = make(kind, spread=spread)
    losses, plain = head(hidden, targets), plain_losses(kind, head.scores(hidden), targets)
    assert_same([losses], [plain])
    assert_same(gradients(losses, head, hidden), gradients(plain, head, hidden))


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("kind", HEADS)
def test_several_positives_ignored_examples_and_weights(kind):
    head, hidden, _ = make(kind)
    targets = torch.randint(50, (10, 3), generator=torch.Generator().manual_seed(2))
    targets[0] = torch.tensor([7, 7, 8])
    targets[1, 1:] = targets[2] = -100
    weights = torch.rand(10, dtype=torch.float64)
    present = targets != -100
    present[0, 1] = False  # class 7 again: listed twice, it counts once
    scores = head.scores(hidden)
    each = [plain_losses(kind, scores, column) for column in targets.clamp(min=0).T]
    plain = (torch.stack(each, dim=1) * present).sum(-1) / present.sum(-1).clamp(min=1) * weights
    losses = head(hidden, targets, weights=weights)
    assert losses[2].item() == 0
    assert_same([losses], [plain])
    assert_same(gradients(losses, head, hidden), gradients(plain, head, hidden))


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("kind", PROJECTIONS)
@pytest.mark.parametrize("spread", [0.05, 1.0])
def test_log_prob_is_the_projection_with_its_gradient(kind, spread):
    head, hidden, _ = make(kind, spread=spread)
    project = PROJECTIONS[kind][1]
    prob = project(head.scores(hidden), dim=-1)
    log_prob = head.log_prob(hidden)
    assert_same([log_prob.exp()], [prob])
    assert torch.equal(log_prob == -torch.inf, prob == 0)
    ids = prob.argmax(-1, keepdim=True)
    ours = gradients(head.log_prob(hidden, ids)[:, 0], head, hidden)
    assert_same(ours, gradients(prob.gather(1, ids).log()[:, 0], head, hidden))


@pytest.mark.usefixtures("chunks")
def test_log_prob_of_the_top_k_softmax():
    head, hidden, _ = make("top-k")
    scores = head.scores(hidden)
    best = scores.topk(6)
    expected = torch.full_like(scores, -torch.inf)
    expected.scatter_(1, best.indices, best.values.log_softmax(-1))
    assert_same([head.log_prob(hidden)], [expected])
    with torch.no_grad():
        assert torch.equal(head.topk(hidden, 6).ids, best.indices)


@pytest.mark.usefixtures("chunks")
def test_the_top_k_of_all_classes_is_the_full_softmax():
    head, hidden, targets = make("top-k")
    whole, full = TopKSoftmaxHead(head.scorer, k=50), FullHead(head.scorer)
    losses, plain = whole(hidden, targets), full(hidden, targets)
    assert_same([losses, whole.log_prob(hidden)], [plain, full.log_prob(hidden)])
    assert_same(gradients(losses, whole, hidden), gradients(plain, full, hidden))


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("kind", PROJECTIONS)
def test_equal_scores_give_every_class_its_share(kind):
    """The support is the whole catalogue: nothing is sparse, all must be right."""
    head, hidden, targets = make(kind, num_classes=300)
    head.scorer.bias.data.zero_()
    losses = head(hidden * 0, targets)
    losses.sum().backward()
    assert_same([head.log_prob(hidden * 0).exp()], [torch.full((10, 300), 1 / 300).double()], 1e-9)
    label_shares = torch.bincount(targets, minlength=300)
    assert_same([head.scorer.bias.grad], [10 / 300 - label_shares.double()], 1e-9)


def test_losses_vanish_where_the_target_leads():
    scorer = TableScorer(3, 1)
    scorer.weight.data.copy_(torch.tensor([[3.0], [1.0], [0.0]]))
    hidden, targets = torch.ones(1, 1), torch.tensor([0])
    assert SparsemaxHead(scorer)(hidden, targets).item() == 0
    assert Entmax15Head(scorer)(hidden, targets).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", HEADS)
def test_half_precision_is_as_good_as_its_inputs(kind, dtype):
    head, hidden, targets = make(kind, dtype=dtype, num_classes=500)
    scores = hidden.double() @ head.scorer.weight.double().T + head.scorer.bias.double()
    losses = head(hidden, targets)
    plain = plain_losses(kind, scores, targets)
    torch.testing.assert_close(losses.double(), plain, rtol=1e-5, atol=1e-5)
    losses.sum().backward()
    assert head.scorer.weight.grad.dtype == dtype
    assert head.scorer.weight.grad.isfinite().all()
    sums = head.log_prob(hidden).exp().sum(-1)
    torch.testing.assert_close(sums.double(), torch.ones(10).double(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("scale", [1e4, -1e4])
@pytest.mark.parametrize("kind", HEADS)
def test_large_scores_do_not_overflow(kind, scale):
    head, hidden, targets = make(kind, num_classes=2000)
    expected = plain_losses(kind, head.scores(hidden * scale), targets)
    single = (hidden * scale).float().detach().requires_grad_()
    losses = head.float()(single, targets)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-4, atol=1.0)
    losses.sum().backward()
    assert single.grad.isfinite().all()
    sums = head.log_prob(single).exp().sum(-1)
    torch.testing.assert_close(sums, torch.ones(10), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", HEADS)
def test_never_holds_all_scores(kind, monkeypatch):
    """100,000 classes, 64 rows: chunks of 2 rows, and the largest tensor is of that size."""
    monkeypatch.setattr(sparse_loss, "_CHUNK_SCORES", 200_000)
    seen = []
    head = HEADS[kind](TableScorer(100_000, 4))
    support = head.support
    head.support = lambda scores: seen.append(scores.numel()) or support(scores)
    hidden = torch.randn(64, 4, requires_grad=True)
    losses = head(hidden, torch.randint(100_000, (64,)))
    kept = losses.grad_fn.saved_tensors[5:]
    losses.sum().backward()
    assert max(seen) == 200_000
    assert len(seen) == 32, "supports are kept: backward finds none again"
    assert sum(part.numel() for part in kept) < 64 * 2 * 600
    assert hidden.grad.isfinite().all()


@pytest.mark.parametrize("kind", HEADS)
def test_edges(kind):
    head, hidden, targets = make(kind)
    assert head(hidden[:0], targets[:0]).shape == (0,)
    assert head.log_prob(hidden[:0]).shape == (0, 50)
    assert head.log_prob(hidden, torch.tensor([3, 4])).shape == (10, 2)
    ignored = head(hidden, torch.full((10,), -100))
    ignored.sum().backward()
    assert ignored.tolist() == [0.0] * 10
    with pytest.raises(ValueError, match="NaN"):
        head(hidden * torch.nan, targets)
    with pytest.raises(ValueError, match=r"targets must lie .* \(num_classes 50\)"):
        head(hidden[:1], torch.tensor([[0, -10]]))
    with pytest.raises(ValueError, match="no log-normaliser"):
        head.log_normalizer(hidden)
    head.scorer.weight.requires_grad_(False)
    head(hidden, targets).sum().backward()
    assert head.scorer.weight.grad is None or not head.scorer.weight.grad.any()


@pytest.mark.parametrize(
    "make_head", [SparsemaxHead, Entmax15Head, lambda s: TopKSoftmaxHead(s, k=1)]
)
def test_one_class(make_head):
    head = make_head(TableScorer(1, 4))
    assert head(torch.randn(3, 4), torch.zeros(3, dtype=torch.int64)).tolist() == [0.0] * 3
    assert head.topk(torch.randn(3, 4), 1).ids.tolist() == [[0]] * 3


@pytest.mark.parametrize("k", [0, -1, 51, 10**9])
def test_senseless_k(k):
    with pytest.raises(ValueError, match="k must be between 1 and 50"):
        TopKSoftmaxHead(TableScorer(50, 4), k=k)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("kind", PROJECTIONS)
def test_wide_supports_are_those_of_a_sort(kind, spread, dtype):
    make_head, project, _ = PROJECTIONS[kind]
    head = make_head(TableScorer(3000, 2))
    scores = spread * torch.randn(9, 3000, generator=torch.Generator().manual_seed(0)).to(dtype)
    scores[1, 5] = -torch.inf
    values, ids = scores.topk(128)
    narrow = project(values, dim=-1)
    values, ids, prob = head._wide_support(scores, values[:, :1], narrow[:, 0])
    assert all(len(set(row)) == len(row) for row in ids.tolist())
    whole = torch.zeros_like(scores).scatter(1, ids, prob)
    atol = 1e-6 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(whole, project(scores, dim=-1), rtol=0, atol=atol)
    assert torch.equal(values, scores.gather(1, ids))
