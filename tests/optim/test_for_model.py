"""One optimiser for tables and the rest, and tables that are sparse by their size."""

import copy
import gc
import warnings

import pytest
import torch
from torch import nn

import widemax as wm
from tests.heads.declared_heads import NAMES, make_batch, make_head
from widemax.optim import RowAdam, RowwiseAdagrad, optimizer_for, sparse_parameters
from widemax.scoring import DifferentiatedScorer, ShardedTableScorer, TableScorer, table

V, D = 64, 4


@pytest.fixture
def small_tables_are_sparse(monkeypatch):
    monkeypatch.setattr(table, "SPARSE_ENTRIES", V * D)


def step(scorer, optimizer, ids):
    optimizer.zero_grad()
    scorer(torch.ones(2, D, dtype=scorer.weight.dtype), torch.tensor(ids)).square().sum().backward()
    optimizer.step()


def twins():
    dense = TableScorer(V, D, bias=True, sparse=False)
    sparse = TableScorer(V, D, bias=True)
    sparse.load_state_dict(dense.state_dict())
    return dense, sparse


def test_the_limit_is_where_the_documentation_says():
    assert TableScorer(2**16, 64).sparse
    assert not TableScorer(2**16 - 1, 64).sparse
    assert not TableScorer(2**16, 64, sparse=False).sparse
    assert TableScorer(10, 4, sparse=True).sparse


@pytest.mark.parametrize("sparse", [False, True])
def test_a_tied_table_is_as_sparse_as_its_embedding(sparse):
    embedding = nn.Embedding(V, D, sparse=sparse)
    assert TableScorer.tied(embedding).sparse is sparse
    assert TableScorer.tied(embedding, sparse=not sparse).sparse is not sparse


TORCH = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD with decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
    "Adagrad with decay": lambda p: torch.optim.Adagrad(p, lr=0.1, weight_decay=0.1),
}


@pytest.mark.parametrize("name", TORCH)
def test_optimisers_that_move_all_rows_do_so_and_it_is_said_once(name, small_tables_are_sparse):
    dense, sparse = twins()
    for scorer in (dense, sparse):
        optimizer = TORCH[name](scorer.parameters())
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for ids in ([1, 2, 2], [5, 1]):
                step(scorer, optimizer, ids)
        said = [str(each.message) for each in said if "rows of a table" in str(each.message)]
        assert len(said) == (scorer is sparse)
        assert all("all 64 rows" in each and "wm.optimizer_for" in each for each in said)
    torch.testing.assert_close(sparse.state_dict(), dense.state_dict())


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad, RowAdam])
def test_optimisers_of_rows_keep_them(kind, small_tables_are_sparse):
    _, sparse = twins()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*rows of a table")
        step(sparse, kind(sparse.parameters(), lr=0.1), [1, 2])
    assert sparse.weight.grad.is_sparse


def test_who_asks_for_sparse_gradients_gets_no_others():
    scorer = TableScorer(V, D, sparse=True)
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        step(scorer, torch.optim.AdamW(scorer.parameters()), [1])


def test_a_copy_is_watched_too_and_none_is_kept_alive(small_tables_are_sparse):
    from widemax.scoring import made_dense

    scorer = copy.deepcopy(TableScorer(V, D))
    with pytest.warns(UserWarning, match="rows of a table"):
        step(scorer, torch.optim.AdamW(scorer.parameters()), [1])
    gc.collect()
    before = len(made_dense._tables)
    del scorer
    gc.collect()
    assert len(made_dense._tables) == before - 1


def model_and_batch():
    torch.manual_seed(0)
    encoder = nn.Linear(3, D)
    scorer = TableScorer(V, D, bias=True, sparse=True)
    head = wm.SampledHead(scorer, wm.UniformSampler(V, unique=True), num_samples=8)
    return encoder, head, (torch.randn(5, 3), torch.arange(5))


def train(encoder, head, batch, optimizers, steps):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for each in optimizers:
            each.zero_grad()
        head(encoder(batch[0]), batch[1], generator=generator).mean().backward()
        for each in optimizers:
            each.step()


def test_each_parameter_goes_by_its_rule():
    states = []
    for joint in (True, False):
        encoder, head, batch = model_and_batch()
        optimizers = [optimizer_for(encoder, head, lr=0.02)]
        if not joint:
            rest = torch.optim.AdamW(encoder.parameters(), lr=0.02)
            optimizers = [RowAdam(head.parameters(), lr=0.02), rest]
        train(encoder, head, batch, optimizers, 4)
        states.append([each.detach() for each in (*encoder.parameters(), *head.parameters())])
    for one, other in zip(*states, strict=True):
        assert torch.equal(one, other)


def test_a_scheduler_reaches_both_rules():
    encoder, head, batch = model_and_batch()
    optimizer = optimizer_for(encoder, head, lr=0.5, table_rule=RowwiseAdagrad, table_lr=2.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    train(encoder, head, batch, [optimizer], 1)
    scheduler.step()
    assert [group["lr"] for part in optimizer.parts for group in part.param_groups] == [1.0, 0.25]


def test_training_goes_on_exactly_from_a_state(tmp_path):
    encoder, head, batch = model_and_batch()
    head.scorer.to(torch.bfloat16)  # whose sums torch's own loading would round
    optimizer = optimizer_for(encoder, head, lr=0.02)
    train(encoder, head, batch, [optimizer], 3)
    torch.save([encoder.state_dict(), head.state_dict(), optimizer.state_dict()], tmp_path / "all")
    train(encoder, head, batch, [optimizer], 2)
    other_encoder, other_head, _ = model_and_batch()
    other_head.scorer.to(torch.bfloat16)
    other = optimizer_for(other_encoder, other_head, lr=0.7)
    stored = torch.load(tmp_path / "all")
    for each, state in zip((other_encoder, other_head, other), stored, strict=True):
        each.load_state_dict(state)
    train(other_encoder, other_head, batch, [other], 2)
    for one, again in zip(head.parameters(), other_head.parameters(), strict=True):
        assert torch.equal(one, again)
    assert torch.equal(encoder.weight, other_encoder.weight)
    with pytest.raises(ValueError, match="2 groups of parameters, got 1"):
        other.load_state_dict(torch.optim.SGD(encoder.parameters(), lr=1.0).state_dict())


def test_a_closure_runs_once_and_later_parameters_go_by_adamw():
    encoder, head, _ = model_and_batch()
    optimizer, late = optimizer_for(encoder, head), nn.Linear(2, 1)
    calls = []
    assert optimizer.step(lambda: calls.append(1) or 2.5) == 2.5
    assert calls == [1]
    optimizer.add_param_group({"params": list(late.parameters()), "lr": 0.5})
    before = late.weight.detach().clone()
    late(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(late.weight.detach(), before * (1 - 0.5 * 0.01) - 0.5)
    assert len(optimizer.state_dict()["param_groups"]) == 3


def test_arguments():
    with pytest.raises(ValueError, match="lr must be a finite number above 0"):
        optimizer_for(nn.Linear(1, 1), lr=0)
    with pytest.raises(ValueError, match=r"modules must be nn\.Modules, got list"):
        optimizer_for([nn.Linear(1, 1)])
    with pytest.raises(ValueError, match="modules must have parameters"):
        optimizer_for(nn.ReLU())


SCORERS = {
    "table": lambda: TableScorer(V, D, bias=True, sparse=True),
    "sharded": lambda: ShardedTableScorer(V, D, num_shards=3, bias=True, sparse=True),
    "differentiated": lambda: DifferentiatedScorer(V, [(4, 2), (60, 2)], bias=True, sparse=True),
}


@pytest.mark.parametrize("name", SCORERS)
def test_every_parameter_with_a_sparse_gradient_is_found(name):
    scorer = SCORERS[name]()
    scorer(torch.randn(2, scorer.dimension), torch.tensor([1, 5, 60])).sum().backward()
    sparse = {n for n, p in scorer.named_parameters() if p.grad is not None and p.grad.is_sparse}
    assert sparse
    assert sparse <= set(sparse_parameters(scorer))
    assert not sparse_parameters(nn.ModuleList([nn.Linear(2, 2), TableScorer(V, D)]))


@pytest.mark.parametrize("name", NAMES)
def test_every_head_trains(name):
    head = make_head(name)
    hidden, targets = make_batch()
    optimizer = optimizer_for(head, lr=0.01)
    before = head(hidden, targets, generator=torch.Generator().manual_seed(0)).sum()
    for _ in range(5):
        optimizer.zero_grad()
        head(hidden, targets, generator=torch.Generator().manual_seed(0)).sum().backward()
        optimizer.step()
    assert head(hidden, targets, generator=torch.Generator().manual_seed(0)).sum() < before
