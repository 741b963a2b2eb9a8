"""The hierarchical head against its contract, brute force, and a walk through the tree."""

import math

import pytest
import torch

from tests.heads.head_cases_hierarchical import DIMENSION, HEADS, NUM_CLASSES, TREES, make_head
from widemax.contracts.head import check_head
from widemax.heads import HierarchicalHead, Tree
from widemax.heads.tree.pair_product import pair_product
from widemax.kernels.heads.tree import best_first


@pytest.mark.parametrize("name", HEADS)
def test_contract(name):
    make, gradients = HEADS[name]
    check_head(make(), dimension=DIMENSION, gradients=gradients)


def hidden_of(batch, dimension=DIMENSION, dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, dimension, generator=generator, dtype=dtype)


def walk(head, query):
    """Every class's probability by walking the tree in plain Python, one query."""
    probability = [0.0] * head.num_classes

    def visit(entry, mass):
        if entry < 0:
            probability[-1 - entry] = mass
            return
        logit = sum(a * b for a, b in zip(query, head.weight[entry].tolist(), strict=True))
        if head.bias is not None:
            logit += head.bias[entry].item()
        right = 1 / (1 + math.exp(-logit))
        left_child, right_child = head.tree.children[entry].tolist()
        visit(left_child, mass * (1 - right))
        visit(right_child, mass * right)

    visit(0, 1.0)
    return probability


@pytest.mark.parametrize("name", TREES)
def test_probabilities_are_those_of_a_walk_through_the_tree(name):
    head = make_head(TREES[name](), bias=True).double()
    hidden = hidden_of(4)
    expected = torch.tensor([walk(head, row) for row in hidden.tolist()], dtype=torch.float64)
    torch.testing.assert_close(head.log_prob(hidden).exp(), expected)
    targets = torch.tensor([0, 7, 23, NUM_CLASSES - 1])
    losses = head(hidden, targets)
    torch.testing.assert_close(losses, -expected[range(4), targets].log())


@pytest.mark.parametrize("name", TREES)
def test_gradients_of_all_parameters(name):
    head = make_head(TREES[name](), bias=True).double()
    hidden = hidden_of(3).requires_grad_()
    targets = torch.tensor([[0, 5], [39, -100], [17, 17]])

    def losses(hidden, weight, bias):
        parameters = {"weight": weight, "bias": bias}
        return torch.func.functional_call(head, parameters, (hidden, targets))

    assert torch.autograd.gradcheck(losses, (hidden, head.weight, head.bias))


def test_gradients_of_log_prob():
    head = make_head(Tree.huffman([9, 5, 3, 1, 1, 0]), bias=True).double()
    ids = torch.tensor([[0, 3], [5, 5]])

    class Everything(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = head

        def forward(self, hidden):
            every = [head.log_prob(hidden), head.log_prob(hidden, ids)]
            return torch.cat([*every, head.log_prob(hidden, ids[0])], dim=-1)

    def log_prob(hidden, weight, bias):
        parameters = {"head.weight": weight, "head.bias": bias}
        return torch.func.functional_call(Everything(), parameters, (hidden,))

    hidden = hidden_of(2).requires_grad_()
    assert torch.autograd.gradcheck(log_prob, (hidden, head.weight, head.bias))


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("k", [1, 7, NUM_CLASSES])
def test_best_first_search_is_the_sort_of_all_probabilities(name, k):
    head = make_head(TREES[name](), bias=True).double()
    hidden = hidden_of(20)
    exclude = torch.randint(
        -1, NUM_CLASSES, (20, 9), generator=torch.Generator().manual_seed(2)
    )  # fmt: skip
    for without in (torch.empty(20, 0, dtype=torch.int64), exclude):
        with torch.no_grad():
            expected = head._model.rank(hidden, k, without)
        found = head.topk(hidden, k, exclude=without)
        assert torch.equal(found.ids, expected.ids)
        torch.testing.assert_close(found.scores, expected.scores)
        log_prob = head.log_prob(hidden).detach()
        for row, left_out in enumerate(without.tolist()):
            log_prob[row, [y for y in left_out if y >= 0]] = -torch.inf
        best = log_prob.sort(descending=True).values[:, :k]
        torch.testing.assert_close(found.scores, best)


def test_search_opens_few_nodes_when_the_model_is_sure():
    tree = Tree.balanced(4096)
    head = make_head(tree, dimension=16)
    hidden = 4 * hidden_of(8, 16)
    nothing = torch.empty(8, 0, dtype=torch.int64).numpy()
    weight = head.weight.detach().numpy()
    _, _, opened = best_first(hidden.numpy(), weight, weight[0, :0], tree.children.numpy(), nothing, 10)  # fmt: skip  # noqa: E501
    assert opened / 8 < 400


def test_excluded_rows_do_not_leak_into_others():
    head = make_head(Tree.balanced(6))
    best = head.topk(hidden_of(1).float().expand(2, -1), 1).ids[0, 0].item()
    exclude = torch.tensor([[best], [-1]])
    found = head.topk(hidden_of(1).float().expand(2, -1), 1, exclude=exclude).ids[:, 0]
    assert found[0] != best
    assert found[1] == best


@pytest.mark.parametrize("name", ["huffman", "clustered", "given, categories"])
def test_samples_have_the_exact_probabilities(name):
    from scipy.stats import chisquare

    head = make_head(TREES[name](), bias=True).double()
    hidden = hidden_of(3) / 3
    draws = 100_000
    drawn = head.sample(hidden, draws, generator=torch.Generator().manual_seed(3))
    assert drawn.shape == (3, draws)
    for row, expected in zip(drawn, head.log_prob(hidden).exp().detach(), strict=True):
        seen = torch.bincount(row, minlength=NUM_CLASSES)
        common = expected * draws >= 5
        pooled_seen = [*seen[common].tolist(), seen[~common].sum().item()]
        pooled = [*(expected[common] * draws).tolist(), expected[~common].sum().item() * draws]
        if pooled[-1] < 5:
            pooled_seen, pooled = pooled_seen[:-1], pooled[:-1]
            pooled = [value * sum(pooled_seen) / sum(pooled) for value in pooled]
        assert chisquare(pooled_seen, pooled, sum_check=False).pvalue > 1e-4


def test_sampling_in_blocks_and_again_gives_the_same_kind_of_classes(monkeypatch):
    head = make_head(TREES["huffman"]())
    hidden = hidden_of(7).float()
    one = head.sample(hidden, 11, generator=torch.Generator().manual_seed(5))
    again = head.sample(hidden, 11, generator=torch.Generator().manual_seed(5))
    assert torch.equal(one, again)
    monkeypatch.setattr("widemax.heads.tree.model._CHUNK_VALUES", 100)
    blocks = head.sample(hidden, 11, generator=torch.Generator().manual_seed(5))
    assert blocks.shape == (7, 11)
    assert blocks.min() >= 0
    assert blocks.max() < NUM_CLASSES


@torch.no_grad()
def test_evaluation_in_chunks_of_rows_equals_evaluation_at_once(monkeypatch):
    head = make_head(TREES["huffman"](), bias=True)
    hidden = hidden_of(9).float()
    ids = torch.randint(NUM_CLASSES, (9, 4), generator=torch.Generator().manual_seed(6))
    calls = [
        lambda: head.log_prob(hidden),
        lambda: head.log_prob(hidden, ids),
        lambda: head.log_prob(hidden, ids[0]),
        lambda: head._model.rank(hidden, 5, ids).scores,
    ]
    whole = [call() for call in calls]
    monkeypatch.setattr("widemax.heads.tree.model._CHUNK_VALUES", 500)
    for call, expected in zip(calls, whole, strict=True):
        torch.testing.assert_close(call(), expected)


def test_several_positives_count_in_equal_parts():
    head = make_head(TREES["huffman"]()).double()
    hidden = hidden_of(2)
    several = torch.tensor([[3, 8, -100], [1, 2, 30]])
    single = -head.log_prob(hidden)
    expected = torch.stack([single[0, [3, 8]].mean(), single[1, [1, 2, 30]].mean()])
    torch.testing.assert_close(head(hidden, several), expected)


@pytest.mark.parametrize("name", TREES)
def test_a_sparse_gradient_holds_the_nodes_of_the_paths_and_equals_the_dense_one(name):
    tree = TREES[name]()
    dense, sparse = make_head(tree, bias=True), make_head(tree, bias=True, sparse=True)
    hidden, targets = hidden_of(3).float(), torch.tensor([[3, 3], [3, -100], [7, 39]])
    for head in (dense, sparse):
        head(hidden, targets).sum().backward()
    torch.testing.assert_close(sparse(hidden, targets), dense(hidden, targets))
    assert sparse.weight.grad.is_sparse
    gradient = sparse.weight.grad.coalesce()
    touched = {node for y in (3, 7, 39) for node in tree.paths(torch.tensor(y)).nodes.tolist()}
    assert set(gradient.indices()[0].tolist()) == touched
    torch.testing.assert_close(gradient.to_dense(), dense.weight.grad)
    torch.testing.assert_close(sparse.bias.grad, dense.bias.grad)
    torch.testing.assert_close(sparse.log_prob(hidden), dense.log_prob(hidden))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adagrad])
def test_sparse_and_dense_steps_are_the_same(optimiser):
    heads = [make_head(TREES["huffman"](), sparse=sparse) for sparse in (False, True)]
    for head in heads:
        step = optimiser(head.parameters(), lr=0.1)
        for seed in range(3):
            step.zero_grad()
            head(hidden_of(4, seed=seed).float(), torch.tensor([0, 1, 20, 39])).sum().backward()
            step.step()
    torch.testing.assert_close(heads[0].weight, heads[1].weight)


@pytest.mark.parametrize("num_classes", [1, 2, 3])
def test_few_classes(num_classes):
    head = make_head(Tree.balanced(num_classes), bias=True)
    if num_classes > 1:  # the contract gives two positives
        check_head(head, dimension=DIMENSION)
    hidden = hidden_of(4).float()
    assert head.sample(hidden, 3).max() < num_classes
    total = head.log_prob(hidden).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones(4))
    if num_classes == 1:
        assert head(hidden, torch.zeros(4, dtype=torch.int64)).tolist() == [0.0] * 4
        assert head.topk(hidden, 1).ids.tolist() == [[0]] * 4


def test_empty_batches():
    head = make_head(TREES["huffman"]())
    nothing = torch.empty(0, DIMENSION)
    assert head(nothing, torch.empty(0, dtype=torch.int64)).shape == (0,)
    assert head.log_prob(nothing).shape == (0, NUM_CLASSES)
    assert head.log_prob(nothing, torch.tensor([1, 2])).shape == (0, 2)
    assert head.topk(nothing, 3).ids.shape == (0, 3)
    assert head.sample(nothing, 3).shape == (0, 3)


def test_all_ignored():
    head = make_head(TREES["huffman"]())
    losses = head(hidden_of(2).float(), torch.tensor([-100, -100]))
    assert losses.tolist() == [0, 0]
    losses.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_in_float32(dtype):
    head = make_head(TREES["huffman"](), bias=True).to(dtype)
    hidden = hidden_of(4).to(dtype)
    assert head.tree_children.dtype == torch.int64
    wide = make_head(TREES["huffman"](), bias=True)
    wide.load_state_dict({name: value.float() for name, value in head.state_dict().items()} | {
        "tree_children": head.tree_children})  # fmt: skip
    targets = torch.tensor([0, 1, 2, 39])
    assert head(hidden, targets).dtype == torch.float32
    torch.testing.assert_close(head(hidden, targets), wide(hidden.float(), targets))
    torch.testing.assert_close(head.log_prob(hidden), wide.log_prob(hidden.float()))
    assert torch.equal(head.topk(hidden, 5).ids, wide.topk(hidden.float(), 5).ids)
    head(hidden, targets).sum().backward()
    assert head.weight.grad.dtype == dtype
    assert head.sample(hidden, 2).shape == (4, 2)


def test_autocast_leaves_the_sums_in_float32():
    head = make_head(TREES["huffman"](), bias=True)
    hidden, ids = hidden_of(4).float(), torch.tensor([3, 39])
    calls = [
        lambda: head(hidden, torch.tensor([0, 1, 2, 39])),
        lambda: head.log_prob(hidden),
        lambda: head.log_prob(hidden, ids),
        lambda: head.log_prob(hidden, ids.expand(4, 2)),
        lambda: head.topk(hidden, 3).scores,
    ]
    for call in calls:
        expected = call()
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(call(), expected)


@pytest.mark.parametrize("pairs", [0, 1, 50])
def test_products_of_pairs(pairs, monkeypatch):
    monkeypatch.setattr("widemax.heads.tree.pair_product._BLOCK_VALUES", 40)
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn(rows, 3, generator=generator, dtype=torch.float64, requires_grad=True)
        for rows in (7, 5)
    )
    rows = torch.randint(7, (pairs,), generator=generator).sort().values
    columns = torch.randint(5, (pairs,), generator=generator)
    expected = (left[rows] * right[columns]).sum(-1)
    torch.testing.assert_close(pair_product(left, right, rows, columns), expected)
    assert torch.autograd.gradcheck(
        lambda *tables: pair_product(*tables, rows, columns), (left, right)
    )


def test_far_logits_give_finite_losses_and_gradients():
    head = make_head(TREES["huffman"]()).double()
    hidden = (1e4 * hidden_of(4)).requires_grad_()
    losses = head(hidden, torch.tensor([0, 1, 2, 39]))
    losses.sum().backward()
    assert losses.isfinite().all()
    assert hidden.grad.isfinite().all()
    assert head.topk(hidden, 5).scores.isfinite().all()


def test_the_state_carries_the_tree():
    saved = make_head(TREES["clustered"](), seed=1)
    other = TREES["huffman"]()
    before = other.children.clone()
    loaded = make_head(other, seed=2)
    loaded.load_state_dict(saved.state_dict())
    hidden = hidden_of(3).float()
    torch.testing.assert_close(loaded.log_prob(hidden), saved.log_prob(hidden))
    assert torch.equal(loaded.topk(hidden, 4).ids, saved.topk(hidden, 4).ids)
    assert torch.equal(other.children, before), "a tree never changes"
    with pytest.raises(RuntimeError, match="size mismatch"):
        make_head(Tree.balanced(7)).load_state_dict(saved.state_dict())


def test_a_state_with_a_broken_tree_is_refused():
    head = make_head(Tree.balanced(3))
    state = head.state_dict() | {"tree_children": torch.tensor([[-1, -2], [1, -3]])}
    with pytest.raises(ValueError, match="breadth first"):
        head.load_state_dict(state)


def test_at_first_the_loss_is_the_path_length():
    tree = Tree.huffman([8, 4, 2, 1, 1])
    losses = HierarchicalHead(4, tree)(torch.randn(5, 4), torch.arange(5))
    torch.testing.assert_close(losses / math.log(2), tree.depths.float())


def test_learns_conditional_probabilities():
    """With one-hot states and enough steps, P(y | x) is the share of y among the examples of x."""
    torch.manual_seed(0)
    joint = torch.rand(3, 8) ** 3
    truth = joint / joint.sum(-1, keepdim=True)
    head = HierarchicalHead(3, Tree.huffman(joint.sum(0)), bias=True)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=200)
    states = torch.eye(3).repeat_interleave(8, 0)
    targets, weights = torch.arange(8).repeat(3), truth.flatten()

    def closure():
        optimiser.zero_grad()
        loss = head(states, targets, weights=weights).sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    torch.testing.assert_close(head.log_prob(torch.eye(3)).exp(), truth, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda head, x: head(x, torch.tensor([0, 40])), "targets"),
        (lambda head, x: head(x, torch.tensor([0, -10])), "targets"),
        (lambda head, x: head(x[:1], torch.tensor([0, 1])), "rows"),
        (lambda head, x: head(x[:, :2], torch.tensor([0, 1])), "hidden"),
        (lambda head, x: head(x, torch.tensor([0, 1]), weights=torch.ones(3)), "weights"),
        (lambda head, x: head.log_prob(x, torch.tensor([40])), "ids"),
        (lambda head, x: head.log_prob(x, torch.zeros(3, 1, dtype=torch.int64)), "ids"),
        (lambda head, x: head.topk(x, 41), "k must"),
        (lambda head, x: head.topk(x, 2, exclude=torch.tensor([1])), "exclude"),
        (lambda head, x: head.topk(x, 2, exclude=torch.tensor([[40], [0]])), "exclude"),
        (lambda head, x: head.topk(x * torch.nan, 2), "NaN"),
        (lambda head, x: head.sample(x * torch.nan, 2), "NaN"),
        (lambda head, x: head.sample(x, 0), "num_samples"),
        (lambda head, x: head.sample(x, 3590707793247644003), "num_samples"),
        (lambda head, x: head.topk(x, 2.0), "k must"),
        (lambda head, x: HierarchicalHead(0, head.tree), "dimension"),
        (lambda head, x: HierarchicalHead(4, [0, 1]), "tree"),
    ],
)
def test_faults(call, named):
    head = make_head(TREES["huffman"]())
    with pytest.raises(ValueError, match=named):
        call(head, hidden_of(2).float())
