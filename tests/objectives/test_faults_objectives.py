"""Bad input to the objectives: a typed error or the documented value, never NaN."""

import math
from functools import partial

import pytest
import torch

from tests.objectives import objective_cases as cases
from widemax.heads import SampledHead, hits_by_class
from widemax.objectives import (
    corrected_log_q,
    full_softmax,
    gbce,
    importance_sampling,
    info_nce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)
from widemax.sampling import InBatchSampler, UniformSampler, UnigramSampler
from widemax.scoring import TableScorer

CORRECTING_THE_TARGET = [sampled_softmax, sampled_logistic, nce]


def evaluate(objective, positive, negative, **keywords):
    """Return the losses and both gradients."""
    positive, negative = (part.clone().requires_grad_() for part in (positive, negative))
    keywords = {
        "target_log_expected_count": torch.full(positive.shape, -1.0),
        "log_expected_count": torch.full(negative.shape[1:], -0.5),
        "hits": None,
    } | keywords
    losses = objective(positive, negative, **keywords)
    return losses.detach(), *torch.autograd.grad(losses.sum(), [positive, negative])


def assert_finite(*tensors):
    for tensor in tensors:
        assert bool(tensor.isfinite().all()), tensor


@pytest.mark.parametrize("objective", CORRECTING_THE_TARGET)
def test_fault_07_a_target_of_probability_0_is_an_error(objective):
    with pytest.raises(ValueError, match=r"target_log_expected_count .* -inf.*probability 0"):
        evaluate(
            objective,
            torch.zeros(2),
            torch.zeros(2, 3),
            target_log_expected_count=torch.tensor([-1.0, -math.inf]),
        )


@pytest.mark.parametrize(
    "objective", [corrected_log_q, importance_sampling, info_nce, negative_sampling, full_softmax]
)
def test_fault_07_where_the_target_is_not_corrected_the_loss_is_finite(objective):
    never = torch.tensor([-1.0, -math.inf])
    found = evaluate(objective, torch.ones(2), torch.ones(2, 3), target_log_expected_count=never)
    assert_finite(*found)


def test_fault_07_an_absent_positive_may_have_any_log_count():
    for log_count in (-math.inf, math.inf, math.nan, 0.0):
        for objective in cases.EVERY_CASE.values():
            losses, *gradients = evaluate(
                objective,
                torch.ones(2, 2),
                torch.ones(2, 3),
                target_log_expected_count=torch.tensor([[-1.0, log_count]] * 2),
                target_mask=torch.tensor([[True, False]] * 2),
            )
            expected, *_ = evaluate(objective, torch.ones(2), torch.ones(2, 3))
            torch.testing.assert_close(losses, expected)
            assert_finite(*gradients)


@pytest.mark.parametrize(
    "objective", [*CORRECTING_THE_TARGET, corrected_log_q, importance_sampling]
)
def test_fault_07_a_candidate_of_probability_0_is_an_error_unless_removed(objective):
    log_count = torch.tensor([-0.5, -math.inf, -0.5])
    with pytest.raises(ValueError, match=r"log_expected_count .* -inf"):
        evaluate(objective, torch.zeros(2), torch.zeros(2, 3), log_expected_count=log_count)
    scores = torch.tensor([[0.0, -math.inf, 0.0]] * 2)
    found = evaluate(objective, torch.zeros(2), scores, log_expected_count=log_count)
    same = evaluate(objective, torch.zeros(2), scores)
    for left, right in zip(found, same, strict=True):
        torch.testing.assert_close(left, right)


def test_fault_07_a_reserved_id_as_target_of_a_head():
    sampler = UnigramSampler(4, [5, 5, 5, 5], num_reserved_ids=1)
    scorer = TableScorer(4, 3)
    targets = torch.tensor([2, 0])
    head = SampledHead(scorer, sampler, objective=sampled_softmax, num_samples=6)
    with pytest.raises(ValueError, match="reserved id"):
        head(torch.randn(2, 3), targets)
    head = SampledHead(scorer, sampler, objective=corrected_log_q, num_samples=6)
    assert_finite(head(torch.randn(2, 3), targets))


@pytest.mark.parametrize("objective", [sampled_softmax, sampled_logistic, corrected_log_q])
def test_fault_08_every_copy_of_the_target_is_removed(objective):
    """The target is drawn twice: the loss must be that of the other two draws."""
    ids, targets = torch.tensor([4, 1, 4, 2]), torch.tensor([4])
    scores = torch.tensor([[3.0, 0.5, 3.0, -0.5]])
    hits = hits_by_class(ids, targets)
    assert hits.tolist() == [[True, False, True, False]]
    losses, _, of_candidates = evaluate(objective, torch.tensor([3.0]), scores, hits=hits)
    assert of_candidates[0, [0, 2]].tolist() == [0.0, 0.0]
    assert bool((of_candidates[0, [1, 3]] > 0).all())
    once = evaluate(objective, torch.tensor([3.0]), scores, hits=hits & (hits.cumsum(1) == 1))[0]
    assert losses.item() < once.item() - 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", [name for name in cases.SOFT_LABELS if "smoothing" in name])
def test_fault_09_label_smoothing_with_hits_removed_is_finite(name, dtype):
    scores = torch.tensor([[3.0, 0.5, 3.0, -60000.0]], dtype=dtype)
    positive = torch.tensor([3.0], dtype=dtype)
    for hits in ([[True, False, True, False]], [[True, True, True, True]]):
        found = evaluate(cases.SOFT_LABELS[name], positive, scores, hits=torch.tensor(hits))
        assert_finite(*found)
        assert found[0].dtype == torch.float32
    # A removed candidate carries no part of the smoothing mass.
    kept = evaluate(
        cases.SOFT_LABELS[name],
        positive,
        scores[:, [1, 3]],
        hits=None,
    )
    hits = torch.tensor([[True, False, True, False]])
    found = evaluate(cases.SOFT_LABELS[name], positive, scores, hits=hits)
    torch.testing.assert_close(found[0], kept[0])


ALONE = {
    # softplus(−(0.7 + 1)): the positive of a corrected row has log-count −1.
    "nce": math.log1p(math.exp(-1.7)),
    "sampled-logistic": math.log1p(math.exp(-1.7)),
    "negative-sampling": math.log1p(math.exp(-0.7)),
    "full-logistic": math.log1p(math.exp(-0.7)),
    # β = 0.75·(3/11 − 1) + 1.
    "gbce": (0.75 * (3 / 11 - 1) + 1) * math.log1p(math.exp(-0.7)),
}


@pytest.mark.parametrize("name", cases.OBJECTIVES)
def test_fault_10_with_every_negative_removed_the_loss_is_defined(name):
    """A softmax over the target alone is 0; a logistic row keeps its positive."""
    removed = torch.full((2, 3), -math.inf)
    losses, *gradients = evaluate(cases.OBJECTIVES[name], torch.full((2,), 0.7), removed)
    assert losses.tolist() == pytest.approx([ALONE.get(name, 0.0)] * 2, abs=1e-6)
    assert_finite(*gradients)
    assert gradients[1].eq(0).all()


@pytest.mark.parametrize("name", cases.OBJECTIVES)
def test_fault_10_a_batch_of_identical_items(name):
    """In-batch candidates that are all the target, in a head with parameters."""
    head = SampledHead(
        TableScorer(12, 3),
        InBatchSampler(12, UniformSampler(12)),
        objective=cases.OBJECTIVES[name],
    )
    losses = head(torch.randn(4, 3), torch.full((4,), 5))
    losses.sum().backward()
    assert_finite(losses, head.scorer.weight.grad)


@pytest.mark.parametrize("magnitude", [1e4, 3e38])
@pytest.mark.parametrize("name", cases.EVERY_CASE)
def test_fault_12_extreme_scores(name, magnitude):
    """No NaN, and a finite gradient; the values are held to float64 in the precision tests."""
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4)
    scores = magnitude * signs
    losses, *gradients = evaluate(cases.EVERY_CASE[name], scores[:, 0], scores[:, 1:])
    assert not bool(losses.isnan().any())
    assert_finite(*gradients)
    if magnitude < 1e5:
        assert_finite(losses)


def test_fault_12_a_temperature_of_1e_6():
    scores = torch.tensor([[3e38, 1.0, 1.0], [0.5, 0.5, 0.5], [1e4, -1e4, 1e4], [-3e38, 3e38, 0]])
    losses, *gradients = evaluate(
        partial(info_nce, temperature=1e-6),
        scores[:, 0],
        scores[:, 1:],
    )
    expected = [0.0, math.log(3), math.log(2), math.inf]
    assert losses.tolist() == pytest.approx(expected, abs=1e-6)
    assert_finite(*gradients)


@pytest.mark.parametrize("name", cases.OBJECTIVES)
def test_fault_12_a_nan_in_the_scores_is_not_hidden(name):
    """The training loop stops on it: a loss that looks healthy would let it pass."""
    scores = torch.zeros(2, 3)
    scores[1, 1] = math.nan
    losses, *_ = evaluate(cases.OBJECTIVES[name], torch.zeros(2), scores)
    assert math.isfinite(losses[0])
    assert math.isnan(losses[1])


@pytest.mark.parametrize("name", cases.EVERY_CASE)
@pytest.mark.parametrize(("rows", "samples"), [(0, 3), (1, 3), (1, 1), (1, 0), (0, 0)])
def test_fault_13_empty_batch_batch_of_one_no_candidate(name, rows, samples):
    found = evaluate(cases.EVERY_CASE[name], torch.ones(rows), torch.ones(rows, samples))
    assert found[0].shape == (rows,)
    assert_finite(*found)


@pytest.mark.parametrize("name", cases.OBJECTIVES)
def test_fault_13_one_class(name):
    """The only class is the target and every draw: nothing competes."""
    objective = partial(gbce, num_classes=1) if name == "gbce" else cases.OBJECTIVES[name]
    head = SampledHead(TableScorer(1, 3), UniformSampler(1), objective=objective, num_samples=4)
    losses = head(torch.randn(2, 3), torch.zeros(2, dtype=torch.int64))
    losses.sum().backward()
    assert_finite(losses, head.scorer.weight.grad)
    if name in ("sampled-softmax", "full-softmax", "info-nce", "corrected-log-q"):
        assert losses.tolist() == [0.0, 0.0]
    if name == "importance-sampling":
        assert losses.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)


NEEDING_LOG_Q = [sampled_softmax, sampled_logistic, nce, corrected_log_q, importance_sampling]


@pytest.mark.parametrize("shape", [(2,), (2, 1), (7,), (1, 2, 3), (3, 2)])
@pytest.mark.parametrize("objective", NEEDING_LOG_Q)
def test_log_counts_of_another_shape_are_an_error_and_never_broadcast(objective, shape):
    with pytest.raises(ValueError, match=r"log_expected_count must have shape \[S\] = \[3\] or"):
        evaluate(
            objective, torch.zeros(2), torch.zeros(2, 3), log_expected_count=torch.zeros(shape)
        )


@pytest.mark.parametrize("name", cases.OBJECTIVES)
def test_masks_and_scores_of_another_type_are_named(name):
    objective = cases.OBJECTIVES[name]
    with pytest.raises(ValueError, match=r"target_mask must be bool, got dtype torch\.int64"):
        evaluate(
            objective, torch.zeros(2, 2), torch.zeros(2, 3), target_mask=torch.tensor([[1, 0]] * 2)
        )
    whole = torch.zeros(2, 3, dtype=torch.int64)
    keywords = {"target_log_expected_count": torch.zeros(2), "log_expected_count": torch.zeros(3)}
    with pytest.raises(ValueError, match=r"candidate_scores must be floating .* torch\.int64"):
        objective(torch.zeros(2), whole, **keywords, hits=None)


def test_a_nan_log_count_of_a_target_does_not_travel():
    with pytest.raises(ValueError, match="target_log_expected_count must not be NaN"):
        evaluate(
            corrected_log_q,
            torch.zeros(2),
            torch.zeros(2, 3),
            target_log_expected_count=torch.tensor([0.0, math.nan]),
        )
