"""Every head against its contract, and what SampledHead adds to the objectives."""

import warnings

import pytest
import torch

from tests.heads import (
    head_cases,
    head_cases_hierarchical,
    head_cases_sampled,
    head_cases_structured,
)
from widemax.contracts.head import check_head
from widemax.declarations import declared
from widemax.declarations.table import load
from widemax.heads import (
    FullHead,
    InfrequentHead,
    SampledHead,
    SelfNormalisedHead,
    hits_by_class,
    hits_by_query,
)
from widemax.objectives import full_softmax, nce, sampled_softmax
from widemax.sampling import (
    AllClassesSampler,
    BatchHardNegativeSampler,
    InBatchSampler,
    MarketSampler,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import TableScorer, TowerScorer


@pytest.mark.parametrize("name", head_cases.HEADS)
def test_contract(name):
    make, gradients = head_cases.HEADS[name]
    torch.manual_seed(0)
    check_head(make(), dimension=head_cases.DIMENSION, gradients=gradients)


def parts_of(head):
    """The head's own class, and those of its scorer, its sampler and its objective."""
    objective = getattr(head, "objective", None)
    yield type(head)
    yield type(getattr(head, "scorer", None))
    yield type(getattr(head, "sampler", None))
    yield getattr(objective, "func", objective)


def test_the_tables_of_cases_are_complete():
    """Whatever is declared is held to the contract, here or in a file of its own."""
    cases = [head_cases, head_cases_hierarchical, head_cases_sampled, head_cases_structured]
    heads = [make() for module in cases for make, _ in module.HEADS.values()]
    held = {part for head in heads for part in parts_of(head)}
    held |= {SelfNormalisedHead, InfrequentHead}  # test_normalised.py
    held |= {BatchHardNegativeSampler}  # tests/sampling/test_batch_hard_negatives.py
    held |= {MarketSampler, TowerScorer}  # test_market_sampler.py, test_tower.py
    for kind in ("head", "scorer", "sampler", "objective"):
        missing = [name for name, each in declared(kind).items() if load(each) not in held]
        assert not missing, f"no case in tests/heads/head_cases*.py: {missing}"


class Broken(FullHead):
    """A head with one thing wrong, chosen by name."""

    def __init__(self, scorer, fault):
        super().__init__(scorer)
        self.fault = fault

    def forward(self, hidden, targets, *, weights=None, generator=None):
        losses = super().forward(hidden, targets, weights=weights, generator=generator)
        if self.fault == "reduced":
            return losses.mean()
        if self.fault == "weights ignored":
            return super().forward(hidden, targets, generator=generator)
        return losses.detach() if self.fault == "no gradient" else losses

    def log_prob(self, hidden, ids=None):
        log_prob = super().log_prob(hidden, ids)
        return log_prob + 0.01 if self.fault == "unnormalised" else log_prob

    def topk(self, hidden, k, *, exclude=None):
        return super().topk(hidden, k, exclude=None if self.fault == "not excluded" else exclude)


@pytest.mark.parametrize(
    "fault", ["reduced", "weights ignored", "no gradient", "unnormalised", "not excluded"]
)
def test_the_check_finds_a_broken_head(fault):
    head = Broken(TableScorer(20, 4), fault)
    with pytest.raises((AssertionError, RuntimeError)):
        check_head(head, dimension=4)
    check_head(Broken(TableScorer(20, 4), "none"), dimension=4)


@pytest.mark.parametrize("ignore_index", [-1, -7, -100])
@pytest.mark.parametrize("num_classes", [1, 5])
def test_the_check_takes_any_ignore_index_and_a_single_class(ignore_index, num_classes):
    check_head(FullHead(TableScorer(num_classes, 4), ignore_index=ignore_index), dimension=4)


def world(num_classes=30, dimension=6, batch=8):
    generator = torch.Generator().manual_seed(0)
    scorer = TableScorer(num_classes, dimension).double()
    hidden = torch.randn(batch, dimension, generator=generator, dtype=torch.float64)
    return scorer, hidden, torch.randint(num_classes, (batch,), generator=generator)


def test_all_classes_make_the_sampled_head_the_full_head():
    scorer, hidden, targets = world()
    full = FullHead(scorer)(hidden, targets)
    for objective in (sampled_softmax, full_softmax):
        sampled = SampledHead(scorer, AllClassesSampler(30), objective=objective)
        torch.testing.assert_close(sampled(hidden, targets), full, rtol=1e-6, atol=1e-6)


def test_in_batch_softmax_is_the_matrix_of_scores_minus_log_q_over_the_temperature():
    """The temperature divides the similarity, never log Q."""
    counts = torch.arange(30, 0, -1).double()
    scorer = TableScorer(30, 6, similarity="cosine", temperature=0.05).double()
    hidden = torch.randn(8, 6, dtype=torch.float64)
    targets = torch.tensor([0, 3, 5, 9, 3, 20, 29, 11])
    frequency = UnigramSampler(30, counts, distortion=1.0)
    head = SampledHead(scorer, InBatchSampler(30, frequency))
    vectors = torch.nn.functional.normalize(scorer.weight[targets], dim=-1)
    similarity = torch.nn.functional.normalize(hidden, dim=-1) @ vectors.T
    logits = similarity / 0.05 - (counts / counts.sum()).log()[targets]
    same = (targets[:, None] == targets[None, :]) & ~torch.eye(8, dtype=torch.bool)
    logits = logits.masked_fill(same, -torch.inf)
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(8), reduction="none")
    torch.testing.assert_close(head(hidden, targets), expected, rtol=1e-5, atol=1e-6)


def test_history_and_query_leave_the_candidate_out_of_every_objective():
    scorer, hidden, _ = world()
    targets = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8])
    query_ids = torch.tensor([0, 1, 2, 3, 4, 5, 6, 0])
    history = torch.full((8, 6), -1)
    history[2, 4] = 1
    frequency = UnigramSampler(30, torch.ones(30), distortion=1.0)
    for objective in (sampled_softmax, nce):
        head = SampledHead(scorer, InBatchSampler(30, frequency), objective=objective)
        hidden = hidden.detach().requires_grad_()
        masked = head(hidden, targets, query_ids=query_ids, history=history)
        plain = head(hidden, targets)
        changed = (masked != plain).tolist()
        if objective is sampled_softmax:
            assert changed == [True, False, True, False, False, False, False, True]
        scorer.zero_grad()
        masked[2].backward()
        assert scorer.weight.grad[1].abs().sum() == 0, "history of row 2 holds class 1"
        assert scorer.weight.grad[2].abs().sum() > 0


def test_query_ids_need_candidates_from_the_batch():
    scorer, hidden, targets = world()
    head = SampledHead(scorer, UniformSampler(30), num_samples=5)
    with pytest.raises(ValueError, match="query_ids"):
        head(hidden, targets, query_ids=torch.arange(8))
    with pytest.raises(ValueError, match="history"):
        head(hidden, targets, history=torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="history"):
        head(hidden, targets, history=torch.full((8, 2), 30))


def test_scorer_and_sampler_must_agree():
    with pytest.raises(ValueError, match="num_classes"):
        SampledHead(TableScorer(10, 2), UniformSampler(11))


@pytest.mark.parametrize("width", [1, 3, 4, 5, 17])
@pytest.mark.parametrize("per_row", [False, True])
def test_hits_by_class_equals_a_loop(width, per_row):
    generator = torch.Generator().manual_seed(width)
    ids = torch.randint(12, (6, 9) if per_row else (9,), generator=generator)
    classes = torch.randint(-1, 12, (6, width), generator=generator)
    expected = [
        [int(candidate) in row for candidate in (ids[index] if per_row else ids)]
        for index, row in enumerate(classes.tolist())
    ]
    assert hits_by_class(ids, classes).tolist() == expected


def test_hits_by_query_per_row_candidates():
    rows = torch.tensor([[0, -1], [2, 0], [1, 2]])
    expected = [[True, False], [False, False], [False, True]]
    assert hits_by_query(rows, torch.tensor([5, 6, 7])).tolist() == expected


def test_ignored_examples_do_not_become_candidates():
    scorer, hidden, targets = world()
    targets[0] = -100
    frequency = UnigramSampler(30, torch.ones(30), distortion=1.0)
    head = SampledHead(scorer, InBatchSampler(30, frequency))
    losses = head(hidden, targets)
    assert losses[0].item() == 0
    torch.testing.assert_close(losses[1:], head(hidden[1:], targets[1:]))


def test_tied_scorer_learns_with_its_embedding():
    embedding = torch.nn.Embedding(12, 4)
    head = FullHead(TableScorer.tied(embedding, bias=True))
    head(embedding(torch.tensor([3])), torch.tensor([5])).sum().backward()
    assert embedding.weight.grad[5].abs().sum() > 0
    assert head.scorer.weight is embedding.weight
    with pytest.raises(ValueError, match="padding_idx"):
        TableScorer.tied(torch.nn.Embedding(12, 4, padding_idx=0))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"similarity": "l2"}, "similarity"),
    ],
)
def test_scorer_refuses_senseless_options(options, named):
    with pytest.raises(ValueError, match=named):
        TableScorer(10, 2, **options)


def test_head_moves_the_sampler_state_with_it():
    head = SampledHead(TableScorer(10, 2), head_cases.SAMPLERS["queue"]()[0].__class__(
        10, UniformSampler(10), capacity=4), num_samples=None)  # fmt: skip
    head(torch.randn(3, 2), torch.tensor([1, 2, 3]))
    fresh = SampledHead(
        TableScorer(10, 2), head.sampler.__class__(10, UniformSampler(10), capacity=4)
    )
    fresh.load_state_dict(head.state_dict())
    one = head.eval().sampler.sample(None, torch.tensor([7]))
    other = fresh.eval().sampler.sample(None, torch.tensor([7]))
    assert one.ids.tolist() == other.ids.tolist() == [7, 3, 2, 1]


@pytest.mark.parametrize("name", head_cases.SAMPLERS)
def test_half_precision_weights_leave_log_q_alone(name):
    sampler, num_samples = head_cases.SAMPLERS[name]()
    head = SampledHead(head_cases.SCORERS["table"](), sampler, num_samples=num_samples)
    ids = torch.arange(head_cases.NUM_CLASSES)
    before = head.sampler.log_prob(ids)
    head.bfloat16()
    assert head.scorer.weight.dtype == torch.bfloat16
    assert torch.equal(head.sampler.log_prob(ids), before)
    losses = head(torch.randn(4, head_cases.DIMENSION).bfloat16(), torch.tensor([0, 1, 2, 39]))
    assert losses.isfinite().all()


def test_sampled_softmax_warns_where_a_target_would_be_drawn_several_times():
    """With replacement only one copy of the target competes: that is biased, and must be said."""
    scorer, hidden, targets = world()
    drawn = {"objective": sampled_softmax, "num_samples": 25}
    with pytest.warns(UserWarning, match="unique=True"):
        SampledHead(scorer, UnigramSampler(30, torch.arange(30, 0, -1)), **drawn)(
            hidden, torch.zeros_like(targets)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sampler in (
            UnigramSampler(30, torch.arange(30, 0, -1), unique=True),
            UniformSampler(30),
        ):
            SampledHead(scorer, sampler, **drawn)(hidden, torch.zeros_like(targets))


def test_a_sparse_gradient_holds_the_touched_rows_and_equals_the_dense_one():
    dense, sparse = TableScorer(30, 6), TableScorer(30, 6, sparse=True)
    sparse.load_state_dict(dense.state_dict())
    hidden, targets = torch.randn(4, 6), torch.tensor([3, 3, 7, 9])
    for scorer in (dense, sparse):
        head = SampledHead(scorer, UniformSampler(30), num_samples=5)
        head(hidden, targets, generator=torch.Generator().manual_seed(1)).sum().backward()
    assert sparse.weight.grad.is_sparse
    assert len(sparse.weight.grad.coalesce().indices()[0]) <= 8
    torch.testing.assert_close(sparse.weight.grad.to_dense(), dense.weight.grad)


@pytest.mark.parametrize("per_example", [False, True])
def test_a_compiled_head_draws_distinct_classes(per_example):
    """The tracing only, without a compiler: kernels and generators must be left out of it."""
    counts = torch.tensor([1e4] + [1.0] * 29)  # so concentrated that one round is not enough
    sampler = UnigramSampler(30, counts, distortion=1.0, unique=True, per_example=per_example)
    scorer, hidden, targets = world()
    head = SampledHead(scorer, sampler, num_samples=10)
    torch.compiler.reset()
    compiled = torch.compile(head, backend="eager")
    for rows in (8, 5):
        torch.manual_seed(0)
        losses = compiled(hidden[:rows], targets[:rows])
        torch.manual_seed(0)
        torch.testing.assert_close(losses, head(hidden[:rows], targets[:rows]))


@pytest.mark.parametrize("name", ["full", "sampled"])
def test_a_positive_listed_twice_counts_once(name):
    scorer, hidden, _ = world(batch=3)
    head = FullHead(scorer) if name == "full" else SampledHead(scorer, AllClassesSampler(30))
    once = torch.tensor([[3, 5, -100], [7, -100, -100], [1, 2, 4]])
    twice = torch.tensor([[3, 5, 3], [7, 7, 7], [1, 2, 4]])
    torch.testing.assert_close(head(hidden, twice), head(hidden, once))


def test_groups_of_a_batch_draw_classes_of_their_own():
    torch.manual_seed(0)
    scorer, sampler = TableScorer(50, 8), UniformSampler(50, unique=True)
    grouped = SampledHead(scorer, sampler, num_samples=10, num_groups=3)
    plain = SampledHead(scorer, sampler, num_samples=10)
    hidden, targets = torch.randn(8, 8), torch.randint(50, (8,))
    found = grouped(hidden, targets, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1)
    parts = [slice(0, 3), slice(3, 6), slice(6, 8)]
    wanted = [plain(hidden[part], targets[part], generator=generator) for part in parts]
    torch.testing.assert_close(found, torch.cat(wanted))
    alone = plain(hidden, targets, generator=torch.Generator().manual_seed(1))
    assert not torch.allclose(found, alone)
    # An ignored example is in no group, and more groups than examples are one each.
    targets[2] = -100
    assert grouped(hidden, targets)[2] == 0
    assert SampledHead(scorer, sampler, num_samples=10, num_groups=99)(hidden, targets).shape == (
        8,
    )
