"""The exact head against plain torch, in float64."""

import pytest
import torch
import torch.nn.functional as F

from widemax.heads import FullHead
from widemax.heads.exact import linear
from widemax.scoring import TableScorer


@pytest.fixture(params=["one tile", "many tiles"])
def tiles(request, monkeypatch):
    """Small tiles, so that rows and classes are both cut into several."""
    if request.param == "many tiles":
        monkeypatch.setattr(linear, "_TILE_SCORES", 21)
        monkeypatch.setattr(linear, "_TOPK_TILE_SCORES", 21)
        monkeypatch.setattr(linear, "_TILE_ROWS", 3)


def make(num_classes=50, dimension=8, batch=10, dtype=torch.float64, **options):
    generator = torch.Generator().manual_seed(0)
    scorer = TableScorer(num_classes, dimension, **options).to(dtype)
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype))
    hidden = torch.randn(batch, dimension, generator=generator, dtype=dtype, requires_grad=True)
    targets = torch.randint(num_classes, (batch,), generator=generator)
    return scorer, hidden, targets


def gradients(losses, scorer, hidden):
    grad = torch.linspace(-1, 2, len(losses), dtype=losses.dtype)
    return torch.autograd.grad(losses, [hidden, *scorer.parameters()], grad)


def assert_same(left, right, tolerance=1e-10):
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": True},
        {"similarity": "cosine", "temperature": 0.1},
        {"bias": True, "similarity": "cosine", "temperature": 0.5},
    ],
)
def test_equals_plain_cross_entropy(options, smoothing):
    scorer, hidden, targets = make(**options)
    head = FullHead(scorer, label_smoothing=smoothing)
    plain = F.cross_entropy(scorer(hidden), targets, reduction="none", label_smoothing=smoothing)
    losses = head(hidden, targets)
    assert_same([losses], [plain])
    assert_same(gradients(losses, scorer, hidden), gradients(plain, scorer, hidden))


@pytest.mark.usefixtures("tiles")
def test_several_positives_share_the_label_and_absent_ones_do_not_count():
    scorer, hidden, _ = make(bias=True)
    targets = torch.randint(50, (10, 3), generator=torch.Generator().manual_seed(2))
    targets[0, 1:] = -100
    targets[1] = -100
    labels = torch.zeros(10, 50, dtype=torch.float64)
    for row, ids in enumerate(targets.tolist()):
        present = {index for index in ids if index != -100}  # listed twice, it counts once
        for index in present:
            labels[row, index] += 1 / len(present)
    plain = -(labels * scorer(hidden).log_softmax(-1)).sum(-1)
    losses = FullHead(scorer)(hidden, targets)
    assert losses[1].item() == 0
    assert_same([losses], [plain])
    assert_same(gradients(losses, scorer, hidden), gradients(plain, scorer, hidden))


@pytest.mark.usefixtures("tiles")
def test_ignored_examples_and_weights():
    scorer, hidden, targets = make()
    targets[3] = -100
    weights = torch.rand(10, dtype=torch.float64)
    losses = FullHead(scorer)(hidden, targets, weights=weights)
    plain = F.cross_entropy(scorer(hidden), targets, reduction="none") * weights
    assert_same([losses], [plain])
    assert_same(gradients(losses, scorer, hidden), gradients(plain, scorer, hidden))


@pytest.mark.usefixtures("tiles")
def test_gradcheck_reaches_every_input():
    scorer, hidden, targets = make(num_classes=11, dimension=3, batch=4, bias=True)
    weights = torch.full((4, 1), 1.0, dtype=torch.float64)

    def loss(queries, vectors, biases):
        return linear.linear_cross_entropy(
            queries, vectors, biases, targets[:, None], weights, label_smoothing=0.2
        )

    assert torch.autograd.gradcheck(loss, (hidden, scorer.weight, scorer.bias))


@pytest.mark.usefixtures("tiles")
def test_log_prob_and_normalizer_are_exact_and_differentiable():
    scorer, hidden, _ = make(bias=True)
    head = FullHead(scorer)
    plain = scorer(hidden).log_softmax(-1)
    assert_same([head.log_prob(hidden)], [plain])
    with torch.no_grad():
        assert_same([head.log_prob(hidden)], [plain])
    assert_same([head.log_normalizer(hidden)], [scorer(hidden).logsumexp(-1)])
    ids = torch.tensor([[1, 2]]).expand(10, 2)
    assert_same(
        gradients(head.log_prob(hidden, ids)[:, 1], scorer, hidden),
        gradients(plain[:, 2], scorer, hidden),
    )


@pytest.mark.usefixtures("tiles")
def test_topk_is_the_sort_with_exclusions():
    scorer, hidden, _ = make()
    exclude = torch.randint(-1, 50, (10, 20), generator=torch.Generator().manual_seed(3))
    scores = scorer(hidden).detach().clone()
    for row, ids in enumerate(exclude.tolist()):
        scores[row, [index for index in ids if index >= 0]] = -torch.inf
    best = FullHead(scorer).topk(hidden, 30, exclude=exclude)
    expected = scores.topk(30)
    assert_same([best.scores], [expected.values])
    assert torch.equal(best.ids[expected.values > -torch.inf],
                       expected.indices[expected.values > -torch.inf])  # fmt: skip
    all_but_two = torch.arange(48).expand(10, -1)
    few = FullHead(scorer).topk(hidden, 5, exclude=all_but_two)
    assert set(few.ids[0, :2].tolist()) == {48, 49}
    assert few.ids[0, 2:].tolist() == [-1, -1, -1]
    assert torch.isneginf(few.scores[:, 2:]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_good_as_its_inputs(dtype):
    scorer, hidden, targets = make(dtype=dtype, bias=True, num_classes=500)
    losses = FullHead(scorer)(hidden, targets)
    exact_scores = (hidden.double() @ scorer.weight.double().T) + scorer.bias.double()
    plain = F.cross_entropy(exact_scores, targets, reduction="none")
    # The sums run in float32: the only error left is that of float32, not that of the inputs.
    torch.testing.assert_close(losses.double(), plain, rtol=1e-5, atol=1e-5)
    losses.sum().backward()
    assert scorer.weight.grad.dtype == dtype
    assert scorer.weight.grad.isfinite().all()


def test_large_scores_do_not_overflow():
    scorer, hidden, targets = make(dtype=torch.float32)
    hidden = (hidden * 1e4).detach().requires_grad_()
    losses = FullHead(scorer)(hidden, targets)
    plain = F.cross_entropy(hidden.double() @ scorer.weight.double().T, targets, reduction="none")
    torch.testing.assert_close(losses.double(), plain, rtol=1e-5, atol=1e-1)
    losses.sum().backward()
    assert hidden.grad.isfinite().all()


def test_nan_is_named_in_topk():
    scorer, hidden, _ = make()
    with pytest.raises(ValueError, match="NaN"):
        FullHead(scorer).topk(hidden * torch.nan, 3)


def test_a_frozen_table_gets_no_gradient():
    scorer, hidden, targets = make()
    scorer.weight.requires_grad_(False)
    FullHead(scorer)(hidden, targets).sum().backward()
    assert scorer.weight.grad is None
    assert hidden.grad is not None


@pytest.mark.parametrize("ignored", [True, False], ids=["all ignored", "no rows"])
def test_a_batch_without_examples_has_gradient_zero(ignored):
    """The gradient of the table starts as memory of whatever was there before."""
    scorer, hidden, targets = make(num_classes=400, bias=True)
    for shape in ((400, 8), (400,)):
        scratch = [torch.full(shape, 7e33, dtype=torch.float64) for _ in range(8)]
        del scratch
    if ignored:
        losses = FullHead(scorer)(hidden, torch.full_like(targets, -100))
    else:
        losses = FullHead(scorer)(hidden[:0], targets[:0])
    losses.sum().backward()
    assert scorer.weight.grad.eq(0).all()
    assert scorer.bias.grad.eq(0).all()


@pytest.mark.usefixtures("tiles")
def test_classes_ruled_out_by_their_bias_may_fill_a_tile():
    scorer, hidden, targets = make(bias=True)
    with torch.no_grad():
        scorer.bias[10:40] = -torch.inf
    targets = targets % 10
    head = FullHead(scorer)
    losses = head(hidden, targets)
    plain = F.cross_entropy(scorer(hidden), targets, reduction="none")
    assert_same(
        [losses, *gradients(losses, scorer, hidden)], [plain, *gradients(plain, scorer, hidden)]
    )
    assert head.log_prob(hidden)[:, 10:40].isneginf().all()


def test_autocast_leaves_the_sums_in_float32():
    """With log Z rounded to bfloat16 the gradients of all classes no longer cancel."""
    scorer, hidden, targets = make(dtype=torch.float32, bias=True, num_classes=2000)
    head = FullHead(scorer)
    plain = head(hidden, targets)
    with torch.autocast("cpu", torch.bfloat16):
        losses = head(hidden, targets)
        of_all, best = head.log_prob(hidden), head.topk(hidden, 5)
        found = gradients(losses, scorer, hidden)  # backward inside autocast too
    assert_same([losses, *found], [plain, *gradients(plain, scorer, hidden)], tolerance=1e-6)
    torch.testing.assert_close(of_all.exp().sum(-1), torch.ones(10))
    torch.testing.assert_close(best.scores, head.topk(hidden, 5).scores)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_log_prob_of_a_half_precision_model_sums_to_1(dtype):
    scorer, hidden, targets = make(dtype=dtype, bias=True, num_classes=2000)
    head = FullHead(scorer)
    with torch.no_grad():
        alone = head.log_prob(hidden)
    for log_prob in (alone, head.log_prob(hidden)):
        assert log_prob.dtype == torch.float32
        torch.testing.assert_close(log_prob.exp().sum(-1), torch.ones(10), rtol=1e-4, atol=1e-4)
    of_targets = head.log_prob(hidden, targets[:, None])[:, 0]
    torch.testing.assert_close(of_targets, -head(hidden, targets), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "scores",
    [
        [3e38, 3e38, -3e38, 0.0, 3e38, 1.0, -3e38],
        [-3e38, -3e38, -3e38, -3e38, -3e38, -3e38, -3e38],
        [2.0, 1.0, -3e38, 3.0, -3e38, 0.0, -1.0],
        [-3e38, -3e38, -3e38, -3.3e38, -3e38, -3e38, 3e38],
    ],
)
def test_scores_at_the_end_of_the_range_are_as_in_float64(scores, bias):
    """Nothing but what float32 cannot hold is infinite, and nothing is NaN."""
    results = []
    for dtype in (torch.float64, torch.float32):
        scorer = TableScorer(7, 1, bias=bias).to(dtype)
        values = torch.tensor(scores, dtype=torch.float32).to(dtype)
        scorer.weight.data = torch.zeros(7, 1, dtype=dtype) if bias else values[:, None]
        if bias:
            scorer.bias.data = values
        head, hidden = FullHead(scorer), torch.ones(7, 1, dtype=dtype, requires_grad=True)
        losses = head(hidden, torch.arange(7))
        found = [losses, head.log_prob(hidden), head.log_normalizer(hidden)]
        found += [head.log_prob(hidden, torch.tensor([[0, 6]] * 7))]
        found += torch.autograd.grad(losses.sum(), list(scorer.parameters()))
        results.append([each.detach().float() for each in found])
    for exact_result, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, exact_result, rtol=1e-6, atol=1e-5)


def test_interests_with_a_class_ruled_out_by_its_bias():
    """The mean score is −inf then, and without smoothing it has no part in the loss."""
    scorer, hidden, targets = make(bias=True)
    with torch.no_grad():
        scorer.bias[10] = -torch.inf
    targets = targets % 10
    losses = FullHead(scorer).interest_losses(hidden[:, None], hidden, targets)
    assert_same([losses], [F.cross_entropy(scorer(hidden), targets, reduction="none")])
