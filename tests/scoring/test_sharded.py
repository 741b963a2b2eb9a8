"""Tables in shards: the rows, scores, gradients and updates of one table."""

import pytest
import torch
from torch.nn.functional import normalize

from tests.heads import head_cases_structured as cases
from widemax.contracts.head import check_head
from widemax.heads import SampledHead
from widemax.heads.conversion import as_table
from widemax.optim import RowAdagrad
from widemax.sampling import LogUniformSampler
from widemax.scoring import ShardedTableScorer, TableScorer, shard_classes, sharded_rows

LAYOUTS = [
    (classes, shards, shard_by)
    for classes, shards in [(1, 1), (7, 1), (7, 3), (12, 4), (13, 13), (100, 7), (101, 100)]
    for shard_by in ("mod", "div")
]


def shards_of(table, num_shards, shard_by):
    layout = shard_classes(len(table), num_shards, shard_by)
    return [table[list(classes)] for classes in layout]


def tensorflow_places(num_classes, num_shards, shard_by):
    """Which shard and row each id has, by the loop in TensorFlow's documentation."""
    if shard_by == "mod":
        return [(y % num_shards, y // num_shards) for y in range(num_classes)]
    size, longer = divmod(num_classes, num_shards)
    places = []
    for shard in range(num_shards):
        places += [(shard, row) for row in range(size + (shard < longer))]
    return places


@pytest.mark.parametrize("name", [name for name in cases.HEADS if "sharded" in name])
def test_contract(name):
    make_head, gradients = cases.HEADS[name]
    torch.manual_seed(0)
    check_head(make_head(), dimension=cases.DIMENSION, gradients=gradients)


@pytest.mark.parametrize(("num_classes", "num_shards", "shard_by"), LAYOUTS)
def test_every_row_is_where_tensorflow_puts_it(num_classes, num_shards, shard_by):
    layout = shard_classes(num_classes, num_shards, shard_by)
    for y, (shard, row) in enumerate(tensorflow_places(num_classes, num_shards, shard_by)):
        assert layout[shard][row] == y


@pytest.mark.parametrize(("num_classes", "num_shards", "shard_by"), LAYOUTS)
def test_rows_are_those_of_one_table(num_classes, num_shards, shard_by):
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(num_classes, 4, generator=generator)
    shards = shards_of(table, num_shards, shard_by)
    for shape in [(50,), (6, 5), (0,), (3, 0)]:
        ids = torch.randint(num_classes, shape, generator=generator)
        assert torch.equal(sharded_rows(shards, ids, shard_by=shard_by), table[ids])
    biases = shards_of(table[:, 0], num_shards, shard_by)
    ids = torch.randint(num_classes, (9,), generator=generator)
    assert torch.equal(sharded_rows(biases, ids, shard_by=shard_by), table[ids, 0])


def pair(shard_by, num_shards=7, **options):
    """One table, and the same in shards."""
    torch.manual_seed(0)
    one = TableScorer(40, 5, bias=True, **options)
    torch.nn.init.normal_(one.bias)
    weight, bias = one.weight.detach(), one.bias.detach()
    layout = {"num_shards": num_shards, "shard_by": shard_by, **options}
    return one, ShardedTableScorer.from_table(weight, bias, **layout)


@pytest.mark.parametrize("shard_by", ["mod", "div"])
@pytest.mark.parametrize("ids", [None, [3, 39, 0, 3], [[1, 2], [39, 1]]])
def test_scores_and_gradients_equal_those_of_one_table(shard_by, ids):
    one, sharded = pair(shard_by)
    ids = None if ids is None else torch.tensor(ids)
    hidden = torch.randn(2, 5)
    scores = one(hidden, ids), sharded(hidden, ids)
    assert torch.equal(*scores)
    for each in scores:
        (each * torch.arange(each.numel()).view_as(each)).sum().backward()
    grad = sharded_rows(
        [weight.grad for weight in sharded.weights], torch.arange(40), shard_by=shard_by
    )
    torch.testing.assert_close(grad, one.weight.grad)
    grad = sharded_rows([bias.grad for bias in sharded.biases], torch.arange(40), shard_by=shard_by)
    torch.testing.assert_close(grad, one.bias.grad)


def test_sparse_gradients_hold_the_rows_of_the_ids_in_their_shards():
    scorer = ShardedTableScorer(10, 3, num_shards=2, sparse=True)
    scorer(torch.randn(4, 3), torch.tensor([1, 7, 4])).sum().backward()
    assert [weight.grad.coalesce().indices().tolist() for weight in scorer.weights] == [
        [[2]],
        [[0, 3]],
    ]


@pytest.mark.parametrize("shard_by", ["mod", "div"])
def test_training_gives_the_rows_of_one_table(shard_by):
    """Sampled softmax, Adagrad on sparse rows, the same draws: the same vectors."""
    trained = []
    for scorer in pair(shard_by, sparse=True):
        head = SampledHead(scorer, LogUniformSampler(40, unique=True), num_samples=8)
        optimizer = RowAdagrad(head.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(1)
        for _ in range(30):
            hidden = normalize(torch.randn(16, 5, generator=generator), dim=-1)
            targets = torch.randint(40, (16,), generator=generator)
            optimizer.zero_grad()
            head(hidden, targets, generator=generator).mean().backward()
            optimizer.step()
        trained.append((scorer.class_vectors().detach(), scorer.class_biases().detach()))
    for one, sharded in zip(*trained, strict=True):
        torch.testing.assert_close(one, sharded)
    assert not torch.equal(trained[0][0], pair(shard_by)[0].weight)


def test_shards_become_one_table_again():
    one, sharded = pair("mod")
    table = as_table(sharded)
    assert torch.equal(table.weight, one.weight)
    assert torch.equal(table.bias, one.bias)


def test_a_table_in_half_precision_stays_so():
    weight = torch.randn(9, 4).bfloat16()
    scorer = ShardedTableScorer.from_table(weight, num_shards=4)
    assert {each.dtype for each in scorer.weights} == {torch.bfloat16}
    assert scorer.class_vectors(torch.arange(9)).dtype == torch.float32
    assert torch.equal(scorer.class_vectors(), weight)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ShardedTableScorer(3, 2, num_shards=4), "num_shards must be between 1 and 3"),
        (lambda: ShardedTableScorer(9999, 2, num_shards=2000), "num_shards must be between"),
        (lambda: ShardedTableScorer(3, 2, num_shards=0), "num_shards"),
        (lambda: ShardedTableScorer(3, 2, shard_by="rows"), "shard_by must be 'mod' or 'div'"),
        (lambda: ShardedTableScorer(2**40, 64), "num_classes|dimension"),
        (lambda: ShardedTableScorer.from_table(torch.ones(3)), "weight must be"),
        (lambda: ShardedTableScorer.from_table(torch.ones(3, 2).long()), "weight must be"),
        (lambda: ShardedTableScorer.from_table(torch.ones(3, 2), torch.ones(2)), "bias must be"),
        (lambda: sharded_rows([], torch.tensor([0])), "at least one table"),
        (
            lambda: sharded_rows([torch.ones(2, 3), torch.ones(4, 3)], torch.tensor([0])),
            "must have 3 rows at place 0, got 2",
        ),
        (
            lambda: sharded_rows([torch.ones(2, 3), torch.ones(2, 4)], torch.tensor([0])),
            "rows of one shape",
        ),
        (lambda: sharded_rows([torch.ones(2, 3)], torch.tensor([2])), "ids must lie between"),
        (lambda: sharded_rows([torch.ones(2, 3)], torch.tensor([-1])), "ids must lie between"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
