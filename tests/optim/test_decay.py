"""Weight decay by part against updates written out in float64; what has nothing to decay."""

import copy

import pytest
import torch
from torch import nn

from widemax.heads import AdaptiveHead
from widemax.optim import OPTIMIZERS, RowAdam, decay_groups, optimizer_for, table_parameters
from widemax.scoring import DifferentiatedScorer, ShardedTableScorer, TableScorer

V, D, LR = 11, 3, 0.05
BATCHES = [[1, 4, 4], [0, 4], [7, 1]]


class Tower(nn.Module):
    """A table, a layer with a norm, and vectors of classes with biases."""

    def __init__(self, *, sparse):
        super().__init__()
        self.items = nn.Embedding(V, D, sparse=sparse)
        self.layer, self.norm = nn.Linear(D, D), nn.LayerNorm(D)
        self.scorer = TableScorer(V, D, bias=True, sparse=sparse)

    def forward(self, ids):
        return self.scorer(self.norm(self.layer(self.items(ids))), ids).sin().sum()


def tower(*, sparse):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Tower(sparse=sparse).double()


def move_of(name, state, gradient):
    """Return what the rule of an optimiser makes of a gradient of one row, without its decay."""
    if name == "sgd":
        return gradient
    if name == "adagrad":
        state["sum"] = state.get("sum", 0.0) + gradient**2
        return gradient / (state["sum"].sqrt() + 1e-10)
    if name == "rowwise-adagrad":
        square = gradient**2 if state["dense"] else (gradient**2).mean()
        state["sum"] = state.get("sum", 0.0) + square
        return gradient / (state["sum"].sqrt() + 1e-10)
    state["t"] = state.get("t", 0) + 1
    state["mean"] = 0.9 * state.get("mean", 0.0) + 0.1 * gradient
    state["square"] = 0.999 * state.get("square", 0.0) + 0.001 * gradient**2
    deviation = (state["square"] / (1 - 0.999 ** state["t"])).sqrt() + 1e-8
    return state["mean"] / (1 - 0.9 ** state["t"]) / deviation


def by_hand(name, *, sparse, decays):
    """Train row by row: each that a step uses shrinks by its part's decay, then moves."""
    model, states = tower(sparse=sparse), {}
    for batch in BATCHES:
        model.zero_grad()
        model(torch.tensor(batch)).backward()
        for path, parameter in model.named_parameters():
            by_rows = parameter.grad.is_sparse and name != "dense-adam"
            gradient = parameter.grad.to_dense()
            for y in range(len(parameter)):
                if by_rows and y not in batch:
                    continue
                state = states.setdefault((path, y), {"dense": not by_rows})
                with torch.no_grad():
                    parameter[y] -= LR * decays.get(path, 0.0) * parameter[y]
                    parameter[y] -= LR * move_of(name, state, gradient[y])
    return model.state_dict()


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_part_shrinks_by_its_own_decay(name, sparse):
    model = tower(sparse=sparse)
    groups = decay_groups(model, weight_decay=0.5, table_weight_decay=0.2)
    optimizer = OPTIMIZERS[name](groups, lr=LR)
    for batch in BATCHES:
        optimizer.zero_grad()
        model(torch.tensor(batch)).backward()
        optimizer.step()
    decays = {"items.weight": 0.2, "scorer.weight": 0.2, "layer.weight": 0.5}
    expected = by_hand(name, sparse=sparse, decays=decays)
    for path, found in model.state_dict().items():
        torch.testing.assert_close(found, expected[path], rtol=0, atol=1e-12)
    without = by_hand(name, sparse=sparse, decays={})
    moved = {path for path in without if not torch.equal(without[path], expected[path])}
    assert decays.keys() <= moved


def test_the_same_as_adamw_where_gradients_are_dense():
    model = tower(sparse=False)
    other = copy.deepcopy(model)
    optimizer = RowAdam(decay_groups(model, weight_decay=0.5, table_weight_decay=0.2), lr=LR)
    tables = [other.items.weight, other.scorer.weight]
    rest = [other.layer.bias, *other.norm.parameters(), other.scorer.bias]
    groups = [(tables, 0.2), ([other.layer.weight], 0.5), (rest, 0.0)]
    torchs = torch.optim.AdamW([{"params": p, "weight_decay": d} for p, d in groups], lr=LR)
    for batch in BATCHES:
        for each, rule in ((model, optimizer), (other, torchs)):
            rule.zero_grad()
            each(torch.tensor(batch)).backward()
            rule.step()
    for found, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_without_decay_the_parameters_are_one_group_in_their_order():
    model = tower(sparse=True)
    (group,) = decay_groups(model)
    assert all(a is b for a, b in zip(group["params"], model.parameters(), strict=True))
    assert group.keys() == {"params"}


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (AdaptiveHead(4, 40, cutoffs=[10, 20], bias=True), ["weight", "tails.0.vectors",
                                                            "tails.1.vectors"]),
        (ShardedTableScorer(V, D, num_shards=2, bias=True), ["weights.0", "weights.1"]),
        (DifferentiatedScorer(V, [(4, 2), (7, 2)], bias=True), ["weights.0", "weights.1"]),
    ],
)  # fmt: skip
def test_the_tables_of_heads_and_scorers_are_found(module, names):
    assert list(table_parameters(module)) == names


def test_what_has_nothing_to_decay_is_refused():
    table = nn.Sequential(nn.Embedding(V, D))
    with pytest.raises(ValueError, match=r"weight_decay = 0\.1 has no effect: Sequential has no"):
        decay_groups(table, weight_decay=0.1)
    with pytest.raises(ValueError, match=r"table_weight_decay = 0\.1 has no effect: Linear has no"):
        decay_groups(nn.Linear(2, 2), table_weight_decay=0.1)
    with pytest.raises(ValueError, match="table_weight_decay has no effect: modules have no"):
        optimizer_for(nn.Linear(2, 2), table_weight_decay=0.1)
    with pytest.raises(ValueError, match="table_weight_decay must be a finite number of at least"):
        decay_groups(table, table_weight_decay=-1.0)
    with pytest.raises(ValueError, match="decoupled_weight_decay must be True or False, got 1"):
        RowAdam(table.parameters(), decoupled_weight_decay=1)


def test_one_optimiser_for_a_model_decays_rows_and_not_their_biases():
    model = tower(sparse=True)
    start = copy.deepcopy(model.state_dict())
    options = {"lr": LR, "weight_decay": 0.0}
    optimizer = optimizer_for(model, table_weight_decay=0.2, **options)
    model(torch.tensor([1, 4])).backward()
    optimizer.step()
    other = tower(sparse=True)
    plain = optimizer_for(other, **options)
    other(torch.tensor([1, 4])).backward()
    plain.step()
    for path, found in model.state_dict().items():
        shrunk = torch.zeros_like(found)
        if path in ("items.weight", "scorer.weight"):
            shrunk[[1, 4]] = LR * 0.2 * start[path][[1, 4]]
        torch.testing.assert_close(other.state_dict()[path] - found, shrunk, rtol=0, atol=1e-12)


def test_a_state_of_before_decay_could_be_decoupled_is_loaded():
    parameter = nn.Parameter(torch.ones(V, D))
    optimizer = RowAdam([parameter], lr=LR, weight_decay=0.3)
    state = optimizer.state_dict()
    del state["param_groups"][0]["decoupled_weight_decay"]
    optimizer.load_state_dict(state)
    parameter.grad = torch.ones(V, D)
    optimizer.step()
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is False
