"""The adaptive softmax: against torch's own module and the full softmax, in float64."""

import pytest
import torch
import torch.nn.functional as F

from tests.heads import head_cases_structured as cases
from widemax.contracts.head import check_head
from widemax.heads import AdaptiveHead, FullHead
from widemax.heads.adaptive import clusters
from widemax.heads.exact import linear
from widemax.scoring import TableScorer


@pytest.fixture(params=["one tile", "many tiles"])
def tiles(request, monkeypatch):
    if request.param == "many tiles":
        monkeypatch.setattr(linear, "_TILE_SCORES", 21)
        monkeypatch.setattr(linear, "_TOPK_TILE_SCORES", 21)
        monkeypatch.setattr(linear, "_TILE_ROWS", 3)
        monkeypatch.setattr(clusters, "_KEPT_SCORES", 0)


def make(*, cutoffs=(10, 30), num_classes=60, dimension=16, bias=True, batch=20, spread=1.0):
    torch.manual_seed(0)
    head = AdaptiveHead(dimension, num_classes, cutoffs=list(cutoffs), bias=bias).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64) * spread)
    hidden = torch.randn(batch, dimension, dtype=torch.float64, requires_grad=True)
    return head, hidden, torch.randint(num_classes, (batch,))


def assert_same(left, right, tolerance=1e-10):
    for one, other in zip(left, right, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def brute_force(head, hidden):
    """P(y | x) from the definition, one class after the other."""
    columns = []
    entry = (hidden @ head.weight.T + (0 if head.bias is None else head.bias)).softmax(-1)
    for class_id in range(head.num_classes):
        cluster = sum(class_id >= cutoff for cutoff in head.cutoffs)
        if cluster == 0:
            columns.append(entry[:, class_id])
            continue
        tail = head.tails[cluster - 1]
        inside = (hidden @ tail.projection.T @ tail.vectors.T).softmax(-1)
        columns.append(entry[:, head.shortlist + cluster - 1] * inside[:, class_id - tail.start])
    return torch.stack(columns, dim=1).log()


@pytest.mark.parametrize("name", cases.ADAPTIVE)
def test_contract(name):
    make_head, gradients = cases.HEADS[name]
    torch.manual_seed(0)
    check_head(make_head(), dimension=cases.DIMENSION, gradients=gradients)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("cutoffs", [[10], [10, 30], [1, 2, 59]])
def test_equals_torch_with_its_gradients(cutoffs, bias):
    torch.manual_seed(1)
    module = torch.nn.AdaptiveLogSoftmaxWithLoss(
        64, 60, cutoffs, div_value=2.0, head_bias=bias, dtype=torch.float64
    )
    head = AdaptiveHead.from_torch(module)
    hidden = torch.randn(20, 64, dtype=torch.float64, requires_grad=True)
    targets = torch.cat([torch.randint(60, (17,)), torch.tensor([0, 1, 59])])
    losses, theirs = head(hidden, targets), -module(hidden, targets).output
    assert_same([losses], [theirs])
    assert_same([head.log_prob(hidden)], [module.log_prob(hidden)])
    grad = torch.linspace(-1, 2, 20, dtype=torch.float64)
    ours = torch.autograd.grad(losses, [hidden, *_in_torch_order(head)], grad)
    assert_same(ours, torch.autograd.grad(theirs, [hidden, *module.parameters()], grad))


def _in_torch_order(head):
    yield head.weight
    if head.bias is not None:
        yield head.bias
    for tail in head.tails:
        yield from (tail.projection, tail.vectors)


@pytest.mark.parametrize("bias", [False, True])
def test_goes_to_torch_and_back(bias):
    head, hidden, targets = make(bias=bias)
    module = head.to_torch()
    assert_same([head(hidden, targets)], [-module(hidden, targets).output])
    assert_same([head.log_prob(hidden)], [module.log_prob(hidden)])
    again = AdaptiveHead.from_torch(module)
    assert again.cutoffs == head.cutoffs
    assert {name: value.shape for name, value in again.state_dict().items()} == {
        name: value.shape for name, value in head.state_dict().items()
    }
    assert_same(again.state_dict().values(), head.state_dict().values(), 0)
    again.weight.data.zero_()
    assert head.weight.abs().sum() > 0, "weights are copied, not shared"


def test_small_dimensions_survive_the_way_to_torch():
    """Torch rounds 4 // 4**2 down to 0 dimensions; a head keeps 1."""
    head, hidden, targets = make(dimension=4)
    assert [len(tail.projection) for tail in head.tails] == [1, 1]
    assert_same([head(hidden, targets)], [-head.to_torch()(hidden, targets).output])
    with pytest.raises(ValueError, match="cutoffs must not be empty"):
        AdaptiveHead(4, 10, cutoffs=[]).to_torch()


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_torch_clusters_without_dimensions_are_taken_as_they_are():
    module = torch.nn.AdaptiveLogSoftmaxWithLoss(4, 60, [10, 30], dtype=torch.float64)
    assert module.tail[1][0].out_features == 0
    head, (_, hidden, targets) = AdaptiveHead.from_torch(module), make(dimension=4)
    assert_same([head(hidden, targets)], [-module(hidden, targets).output])
    assert_same([head.log_prob(hidden)], [module.log_prob(hidden)])


@pytest.mark.usefixtures("tiles")
def test_log_prob_equals_the_definition_also_of_few_classes():
    head, hidden, _ = make()
    expected = brute_force(head, hidden)
    assert_same([head.log_prob(hidden)], [expected])
    assert_same([head.scores(hidden)], [expected])
    shared = torch.tensor([59, 0, 12, 12, 30, 9])
    per_row = torch.randint(60, (20, 4))
    assert_same([head.log_prob(hidden, shared)], [expected[:, shared]])
    assert_same([head.log_prob(hidden, per_row)], [expected.gather(1, per_row)])
    for ids in (shared, per_row):
        value = head.log_prob(hidden, ids).sum()
        index = ids.expand(20, -1) if ids.dim() == 1 else ids
        parameters = [hidden, *head.parameters()]
        ours = torch.autograd.grad(value, parameters)
        plain = brute_force(head, hidden).gather(1, index).sum()
        assert_same(ours, torch.autograd.grad(plain, parameters))


@pytest.mark.usefixtures("tiles")
def test_several_positives_ignored_examples_and_weights():
    head, hidden, _ = make()
    targets = torch.randint(60, (20, 3), generator=torch.Generator().manual_seed(2))
    targets[0] = torch.tensor([3, 40, 40])
    targets[1, 1:] = -100
    targets[2] = -100
    weights = torch.rand(20, dtype=torch.float64)
    labels = torch.zeros(20, 60, dtype=torch.float64)
    for row, ids in enumerate(targets.tolist()):
        present = {index for index in ids if index != -100}  # listed twice, it counts once
        for index in present:
            labels[row, index] += 1 / len(present)
    losses = head(hidden, targets, weights=weights)
    plain = -(labels * brute_force(head, hidden)).sum(-1) * weights
    assert losses[2].item() == 0
    assert_same([losses], [plain])
    parameters = [hidden, *head.parameters()]
    ours = torch.autograd.grad(losses.sum(), parameters)
    assert_same(ours, torch.autograd.grad(plain.sum(), parameters))


def test_without_a_tail_it_is_the_full_softmax():
    head, hidden, targets = make(cutoffs=())
    scorer = TableScorer(60, 16, bias=True).double()
    scorer.load_state_dict({"weight": head.weight, "bias": head.bias})
    full = FullHead(scorer)
    assert_same([head(hidden, targets)], [full(hidden, targets)])
    assert_same([head.log_prob(hidden)], [full.log_prob(hidden)])
    assert torch.equal(head.topk(hidden, 9).ids, full.topk(hidden, 9).ids)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("k", [1, 7, 60])
@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_topk_is_the_sort_with_exclusions(k, spread):
    head, hidden, _ = make(spread=spread)
    exclude = torch.randint(-1, 60, (20, 25), generator=torch.Generator().manual_seed(3))
    log_prob = head.log_prob(hidden).detach().clone()
    assert_same([head.topk(hidden, k).scores], [log_prob.topk(k).values])
    for row, ids in enumerate(exclude.tolist()):
        log_prob[row, [index for index in ids if index >= 0]] = -torch.inf
    best, expected = head.topk(hidden, k, exclude=exclude), log_prob.topk(k)
    assert_same([best.scores], [expected.values])
    there = expected.values > -torch.inf
    assert torch.equal(best.ids[there], expected.indices[there])
    assert (best.ids[~there] == -1).all()


def test_topk_leaves_unlikely_clusters_shut(monkeypatch):
    head, hidden, _ = make()
    head.bias.data[head.shortlist :] = torch.tensor([-500.0, 500.0])
    opened = []
    plain = AdaptiveHead._open

    def watched(self, index, rows, entry):
        opened.append((index, len(rows)))
        return plain(self, index, rows, entry)

    monkeypatch.setattr(AdaptiveHead, "_open", watched)
    best = head.topk(hidden, 3)
    assert (best.ids >= 30).all()
    assert opened == [(0, 20), (2, 20)]
    opened.clear()
    head.bias.data[head.shortlist :] = -500.0
    assert (head.topk(hidden, 3).ids < 10).all()
    assert opened == [(0, 20)]


def test_unused_clusters_get_no_gradient_and_empty_batches_are_defined():
    head, hidden, _ = make()
    head(hidden, torch.zeros(20, dtype=torch.int64)).sum().backward()
    assert head.tails[0].vectors.grad is None
    assert head.weight.grad.isfinite().all()
    assert head(hidden[:0], torch.empty(0, dtype=torch.int64)).shape == (0,)
    assert head.topk(hidden[:0], 3).ids.shape == (0, 3)
    assert head.log_prob(hidden[:0]).shape == (0, 60)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_finite_and_near(dtype):
    head, hidden, targets = make(spread=0.3)
    exact_losses = head(hidden, targets)
    head, hidden = head.to(dtype), hidden.detach().to(dtype).requires_grad_()
    losses = head(hidden, targets)
    torch.testing.assert_close(losses.double(), exact_losses, rtol=0.05, atol=0.05)
    losses.sum().backward()
    assert hidden.grad.isfinite().all()
    assert head.weight.grad.dtype == dtype
    assert head.log_prob(hidden).isfinite().all()
    assert head.topk(hidden, 5).scores.isfinite().all()


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_large_scores_do_not_overflow(scale):
    head, hidden, targets = make()
    expected = -head.log_prob(hidden * scale).gather(1, targets[:, None])[:, 0]
    small, single = head.float(), (hidden * scale).float().detach().requires_grad_()
    losses = small(single, targets)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-4, atol=1.0)
    losses.sum().backward()
    assert single.grad.isfinite().all()


def test_one_class():
    head = AdaptiveHead(4, 1, counts=[5], cost_model=cases.MACHINE)
    assert head.cutoffs == []
    assert head(torch.randn(3, 4), torch.zeros(3, dtype=torch.int64)).tolist() == [0.0] * 3
    assert head.topk(torch.randn(3, 4), 1).ids.tolist() == [[0]] * 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"cutoffs": [0, 4]}, "cutoffs must lie between 1 and num_classes - 1 = 9, got 0"),
        ({"cutoffs": [4, 10]}, "got 10"),
        ({"cutoffs": [4, 4]}, "cutoffs must rise strictly, got 4 after 4"),
        ({"cutoffs": [5, 2]}, "cutoffs must rise strictly, got 2 after 5"),
        ({"cutoffs": [2.5]}, "cutoffs must hold whole numbers, got 2.5"),
        ({"cutoffs": "best"}, "cutoffs must be 'auto'"),
        ({}, "counts must be given"),
        ({"counts": [1] * 9}, r"counts must have shape \[num_classes\] = \[10\]"),
        ({"counts": [5, 6, *[1] * 8]}, "counts must fall .* got 6 for class 1 after 5"),
        ({"counts": [5, 6, *[1] * 8], "cutoffs": [3]}, "counts must fall"),
        ({"counts": [float("nan")] * 10}, "counts must be finite"),
        ({"cutoffs": [3], "reduction": 0.5}, "reduction must be at least 1, got 0.5"),
        ({"cutoffs": [3], "reduction": float("nan")}, "reduction"),
        ({"counts": [1] * 10, "batch_size": 0}, "batch_size"),
    ],
)
def test_faults_are_named(options, named):
    with pytest.raises(ValueError, match=named):
        AdaptiveHead(4, 10, **options)


@pytest.mark.parametrize("targets", [[[0x100000, 1]], [[0, -10]], [[0, -1]], [[60, 0]]])
def test_targets_out_of_range(targets):
    head, hidden, _ = make()
    with pytest.raises(ValueError, match=r"targets must lie .* \(num_classes 60\)"):
        head(hidden[:1], torch.tensor(targets))


def test_wrong_questions_are_refused():
    head, hidden, _ = make()
    with pytest.raises(ValueError, match="ids must have shape"):
        head.log_prob(hidden, torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="ids must lie"):
        head.log_prob(hidden, torch.tensor([60]))
    with pytest.raises(ValueError, match="exclude must have shape"):
        head.topk(hidden, 2, exclude=torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="NaN"):
        head.topk(hidden * torch.nan, 3)
    with pytest.raises(ValueError, match="dimension"):
        AdaptiveHead(0, 10, cutoffs=[3])


def test_trains_to_the_distribution_of_its_targets():
    """Softmax over clusters is exact: with a constant input it learns the frequencies."""
    torch.manual_seed(0)
    counts = cases.zipf(30)
    head = AdaptiveHead(8, 30, cutoffs=[4, 12], reduction=1.0)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    hidden, targets = torch.ones(30, 8), torch.arange(30)
    weights = (counts / counts.sum()).float()
    for _ in range(300):
        optimizer.zero_grad()
        head(hidden, targets, weights=weights).sum().backward()
        optimizer.step()
    learned = head.log_prob(hidden[:1]).exp()[0]
    assert F.l1_loss(learned, weights, reduction="sum") < 0.01


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_probabilities_sum_to_one(dtype):
    head = AdaptiveHead(16, 300, cutoffs=[20, 100], bias=True).to(dtype)
    hidden = (3 * torch.randn(5, 16, generator=torch.Generator().manual_seed(0))).to(dtype)
    total = head.log_prob(hidden).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones(5), rtol=0, atol=1e-5)
    ids = torch.tensor([[0, 50, 299]]).expand(5, -1)
    torch.testing.assert_close(head.log_prob(hidden, ids), head.log_prob(hidden)[:, [0, 50, 299]])
