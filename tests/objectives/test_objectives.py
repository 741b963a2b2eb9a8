"""Every objective against its contract; the contract against broken ones; the known bugs."""

import math
from functools import partial
from itertools import pairwise

import pytest
import torch

from tests.objectives import objective_cases as cases
from widemax.contracts.objective import check_objective
from widemax.declarations import names
from widemax.objectives import (
    corrected_log_q,
    effective_sample_size,
    full_logistic,
    full_softmax,
    gbce,
    importance_sampling,
    info_nce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)
from widemax.scoring import TableScorer


@pytest.mark.parametrize("name", cases.EVERY_CASE)
def test_contract(name):
    check_objective(cases.EVERY_CASE[name], monotone=name not in cases.SOFT_LABELS)


def test_the_table_of_cases_is_complete():
    """Whatever is declared is held to the contract."""
    assert set(cases.OBJECTIVES) == set(names("objective"))


def only_the_first_hit(positive, negative, *, hits, **keywords):
    if hits is not None:
        hits = hits & (hits.cumsum(-1) == 1)
    return sampled_softmax(positive, negative, hits=hits, **keywords)


def mean_over_the_batch(*args, **keywords):
    losses = sampled_softmax(*args, **keywords)
    return losses.mean().expand(len(losses))


def first_candidate_only(positive, negative, *, hits, log_expected_count, **keywords):
    return negative_sampling(positive, negative[:, :1], **keywords)


def in_place(positive, negative, **keywords):
    with torch.no_grad():
        negative.sub_(1.0)
    return negative_sampling(positive, negative, **keywords)


def padding_counts(positive, negative, *, target_mask, **keywords):
    return negative_sampling(positive, negative, **keywords)


def plain_exponentials(positive, negative, *, target_mask=None, **keywords):
    if positive.dim() == 2:
        return full_softmax(positive, negative, target_mask=target_mask, **keywords)
    if positive.dtype in (torch.float16, torch.bfloat16):
        positive, negative = positive.float(), negative.float()
    return torch.log(positive.exp() + negative.exp().sum(-1)) - positive


def upside_down(positive, negative, **keywords):
    return negative_sampling(-positive, -negative.masked_fill(negative.isneginf(), torch.inf))


def kept_in_half(positive, negative, **keywords):
    return negative_sampling(positive, negative, **keywords).to(positive.dtype)


def noisy(positive, negative, **keywords):
    return negative_sampling(positive, negative, **keywords) * (1 + torch.rand(()))


def another_loss_from_factors(*args, **keywords):
    return sampled_softmax(*args, **keywords)


another_loss_from_factors.from_factors = lambda product, *, hits, **keywords: (
    sampled_softmax.from_factors(product, hits=None, **keywords)
)


BROKEN = {
    only_the_first_hit: "every hit must be removed",
    mean_over_the_batch: "other rows",
    first_candidate_only: "order of the candidates",
    in_place: "changed its argument candidate_scores",
    padding_counts: "absent positive|without a positive",
    plain_exponentials: "nan|inf",
    upside_down: "must never raise the loss|absent|positive",
    kept_in_half: "give float32",
    noisy: "same losses",
    another_loss_from_factors: "from_factors must give what the scores give",
}


@pytest.mark.parametrize("objective", BROKEN, ids=lambda objective: objective.__name__)
def test_the_contract_finds_what_is_broken(objective):
    with pytest.raises(AssertionError, match=BROKEN[objective]):
        check_objective(objective)


def test_temperature_divides_the_similarity_and_never_log_q():
    """Known bug: (F − log Q)/τ. The scorer divides, the objective subtracts log Q as it is."""
    torch.manual_seed(0)
    scorer = TableScorer(6, 4, similarity="cosine", temperature=0.05).double()
    hidden, ids = torch.randn(1, 4, dtype=torch.float64), torch.arange(1, 6)
    log_count = torch.tensor([-3.0, -1.0, 0.5, -2.0, -4.0], dtype=torch.float64)
    target_log_count = torch.tensor([-2.5], dtype=torch.float64)
    loss = sampled_softmax(
        scorer(hidden, torch.tensor([[0]])),
        scorer(hidden, ids),
        target_log_expected_count=target_log_count,
        log_expected_count=log_count,
        hits=None,
    )
    cosine = torch.cosine_similarity(hidden, scorer.weight)
    g = cosine / 0.05 - torch.cat([target_log_count, log_count])
    assert loss.item() == pytest.approx((g.logsumexp(-1) - g[0]).item(), abs=1e-12)


@pytest.mark.parametrize("objective", [sampled_softmax, sampled_logistic, corrected_log_q])
def test_every_copy_of_a_hit_is_removed(objective):
    """Known bug: a class drawn twice that is the target is masked once."""
    scores = torch.tensor([[9.0, 0.5, 9.0, -0.5, 9.0]])
    hits = torch.tensor([[True, False, True, False, True]])
    keywords = {"target_log_expected_count": torch.tensor([-1.0]), "hits": hits}
    loss = objective(torch.tensor([9.0]), scores, log_expected_count=torch.zeros(5), **keywords)
    scores = scores.masked_fill(hits, -torch.inf)
    keywords["hits"] = None
    removed = objective(torch.tensor([9.0]), scores, log_expected_count=torch.zeros(5), **keywords)
    assert loss.item() == removed.item()
    assert loss.item() < 2


def test_nce_is_no_cross_entropy():
    """Known bug: an "NCE" that is a softmax. NCE judges each draw on its own."""

    def loss(*scores):
        return nce(
            torch.tensor([0.3]),
            torch.tensor([scores]),
            target_log_expected_count=torch.zeros(1),
            log_expected_count=torch.zeros(len(scores)),
        ).item()

    assert loss(1.0, 2.0) == pytest.approx(loss(1.0) + loss(2.0) - loss(), abs=1e-6)
    assert loss() == pytest.approx(math.log1p(math.exp(-0.3)), abs=1e-6)


@pytest.mark.parametrize("objective", [sampled_softmax, sampled_logistic, nce])
def test_the_correction_of_rare_classes_has_no_floor(objective):
    """Known bug: p floored at 1e-6, so that all rare classes of a large catalogue look alike."""
    losses = []
    for power in (6, 9, 12, 30):
        log_count = torch.full((1,), -power * math.log(10))
        losses.append(
            objective(
                torch.zeros(1),
                torch.full((1, 1), 40.0),
                target_log_expected_count=torch.zeros(1),
                log_expected_count=log_count,
                hits=None,
            ).item()
        )
    steps = [after - before for before, after in pairwise(losses)]
    expected = [3 * math.log(10), 3 * math.log(10), 18 * math.log(10)]
    assert steps == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "objective", [negative_sampling, full_logistic, nce, partial(gbce, num_classes=2)]
)
def test_softplus_is_exact_far_out(objective):
    """torch's softplus turns linear above 20; float64 notices: softplus(21) − 21 = 7.6e-10."""
    counts = {"target_log_expected_count": torch.zeros(1), "log_expected_count": torch.zeros(1)}
    for positive, negative in ((-21.0, -800.0), (800.0, 21.0)):
        loss = objective(
            torch.tensor([positive], dtype=torch.float64),
            torch.tensor([[negative]], dtype=torch.float64),
            **counts,
        )
        assert loss.item() - 21 == pytest.approx(math.log1p(math.exp(-21)), rel=1e-5)


def random_arguments():
    return (torch.zeros(2), torch.zeros(2, 3)), {
        "target_log_expected_count": torch.zeros(2),
        "log_expected_count": torch.zeros(3),
        "hits": None,
    }


def ones(*shape):
    return torch.ones(shape, dtype=torch.bool)


@pytest.mark.parametrize(
    ("objective", "change", "named"),
    [
        (sampled_softmax, {"hits": ones(2, 4)}, "hits"),
        (sampled_softmax, {"hits": torch.ones(2, 3)}, "hits"),
        (sampled_softmax, {"target_mask": ones(2, 2)}, "target_mask"),
        (sampled_softmax, {"target_log_expected_count": torch.zeros(3)}, "target_log_expected"),
        (corrected_log_q, {"target_log_expected_count": torch.zeros(())}, "target_log_expected"),
        (sampled_softmax, {"log_expected_count": None}, "log_expected_count"),
        (nce, {"target_log_expected_count": None}, "target_log_expected_count"),
        (corrected_log_q, {"log_expected_count": None}, "log_expected_count"),
        (importance_sampling, {"log_expected_count": None}, "log_expected_count"),
        (sampled_softmax, {"log_expected_count": torch.tensor([0, math.nan, 0])}, "nan"),
        (partial(sampled_softmax, label_smoothing=1.0), {}, "label_smoothing"),
        (partial(sampled_softmax, label_smoothing=-0.1), {}, "label_smoothing"),
        (partial(info_nce, temperature=0.0), {}, "temperature"),
        (partial(info_nce, temperature=math.inf), {}, "temperature"),
        (partial(info_nce, temperature=math.nan), {}, "temperature"),
        (partial(gbce, num_classes=5, calibration=1.5), {}, "calibration"),
        (partial(gbce, num_classes=0), {}, "num_classes"),
    ],
)
def test_bad_arguments_are_named(objective, change, named):
    scores, keywords = random_arguments()
    with pytest.raises(ValueError, match=named):
        objective(*scores, **(keywords | change))


@pytest.mark.parametrize(
    ("positive", "negative", "named"),
    [
        (torch.zeros(2, 1, 1), torch.zeros(2, 3), "target_scores"),
        (torch.zeros(2, 0), torch.zeros(2, 3), "target_scores"),
        (torch.zeros(()), torch.zeros(2, 3), "target_scores"),
        (torch.zeros(2), torch.zeros(3), "candidate_scores"),
        (torch.zeros(2), torch.zeros(1, 3), "candidate_scores"),
    ],
)
def test_bad_scores_are_named(positive, negative, named):
    _, keywords = random_arguments()
    for objective in cases.OBJECTIVES.values():
        with pytest.raises(ValueError, match=named):
            objective(positive, negative, **keywords)


def test_effective_sample_size():
    def size(scores, log_count):
        scores = torch.tensor([scores], dtype=torch.float64)
        return effective_sample_size(scores, torch.tensor(log_count, dtype=torch.float64)).item()

    assert size([0.0, 1.0, 2.0], [0.0, 1.0, 2.0]) == pytest.approx(3, abs=1e-12)
    # Ratios 1 and 2: (1 + 2)² / (1 + 4).
    assert size([0.0, math.log(2)], [0.0, 0.0]) == pytest.approx(9 / 5, abs=1e-12)
    assert size([0.0, 0.0], [0.0, -math.log(2)]) == pytest.approx(9 / 5, abs=1e-12)
    assert size([1e4, 1e4 + math.log(2)], [0.0, 0.0]) == pytest.approx(9 / 5, abs=1e-9)
    assert size([3e38, -3e38], [0.0, 0.0]) == 1
    assert size([5.0, -math.inf], [0.0, 0.0]) == 1
    assert size([-math.inf, -math.inf], [0.0, 0.0]) == 0
    assert effective_sample_size(torch.empty(2, 0), torch.empty(0)).tolist() == [0, 0]


@pytest.mark.parametrize("name", cases.EVERY_CASE)
def test_second_derivatives_are_finite_where_some_or_none_of_the_candidates_compete(name):
    scores = torch.tensor([[0.3, -0.2, 1.0]] * 3, dtype=torch.float64, requires_grad=True)
    competes = torch.tensor([[True] * 3, [True, False, True], [False] * 3])
    losses = cases.EVERY_CASE[name](
        scores[:, 0],
        scores.masked_fill(~competes, -torch.inf),
        target_log_expected_count=torch.full((3,), -0.5, dtype=torch.float64),
        log_expected_count=torch.full((3,), -0.5, dtype=torch.float64),
        hits=torch.tensor([[True, False, False]] * 3),
    )
    (slope,) = torch.autograd.grad(losses.sum(), scores, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.square().sum(), scores)
    assert slope.isfinite().all()
    assert curvature.isfinite().all()
