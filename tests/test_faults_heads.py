"""Faults that show only where sampler, objective and scorer meet."""

import pytest
import torch

from widemax import (
    FullHead,
    NonFiniteError,
    SampledHead,
    TableScorer,
    UniformSampler,
    UnigramSampler,
    check_finite,
    nce,
    sampled_softmax,
)


def sampled(num_classes=10, dimension=4, **options):
    scorer = TableScorer(num_classes, dimension)
    return SampledHead(scorer, UniformSampler(num_classes), num_samples=5, **options)


@pytest.mark.parametrize("targets", [[[0x100000, 1]], [[0, -10]], [[0, -1]], [[10, 0]]])
@pytest.mark.parametrize("make", [sampled, lambda: FullHead(TableScorer(10, 4))])
def test_fault_01_targets_out_of_range(targets, make):
    with pytest.raises(ValueError, match=r"targets must lie .* \(num_classes 10\)"):
        make()(torch.randn(1, 4), torch.tensor(targets))


@pytest.mark.parametrize("num_classes", [0, -1, 2**62])
def test_fault_02_senseless_num_classes(num_classes):
    with pytest.raises(ValueError, match="num_classes"):
        TableScorer(num_classes, 4)


def test_fault_03_absurd_num_true_with_an_empty_batch():
    targets = torch.empty((0, 3590707793247644003), dtype=torch.int64)
    for head in (sampled(), FullHead(TableScorer(10, 4))):
        with pytest.raises(ValueError, match="positives per row"):
            head(torch.randn(0, 4), targets)


def test_fault_07_reserved_target_is_named_before_it_becomes_nan():
    sampler = UnigramSampler(10, torch.ones(10), num_reserved_ids=2)
    for objective in (sampled_softmax, nce):
        head = SampledHead(TableScorer(10, 4), sampler, objective=objective, num_samples=5)
        with pytest.raises(ValueError, match="probability 0"):
            head(torch.randn(1, 4), torch.tensor([1]))


def test_fault_10_batch_of_identical_items():
    """Ten classes, all draws are the target: nothing is left to compete."""
    sampler = UnigramSampler(10, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    head = SampledHead(TableScorer(10, 4), sampler, num_samples=5)
    hidden = torch.randn(6, 4, requires_grad=True)
    losses = head(hidden, torch.full((6,), 3))
    losses.sum().backward()
    assert losses.tolist() == [0.0] * 6
    assert hidden.grad.isfinite().all()


def train(model, steps, poison_at):
    """A loop as users write it; the weights of one class overflow at one step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpoint = None
    for step in range(steps):
        if step == poison_at:
            model.scorer.weight.data[3] = float("inf")
        optimizer.zero_grad()
        losses = model(torch.randn(8, 4), torch.randint(10, (8,)))
        losses.mean().backward()
        try:
            check_finite(model, losses, step=step)
        except NonFiniteError as error:
            return checkpoint, error
        optimizer.step()
        checkpoint = {name: value.clone() for name, value in model.state_dict().items()}
    return checkpoint, None


def test_fault_12_inf_in_the_model_stops_training_and_names_step_and_tensor():
    checkpoint, error = train(FullHead(TableScorer(10, 4)), steps=9, poison_at=6)
    assert error.step == 6
    assert str(error).startswith("step 6: scorer.weight holds inf")
    assert checkpoint["scorer.weight"].isfinite().all()
    _, error = train(FullHead(TableScorer(10, 4)), steps=9, poison_at=None)
    assert error is None


def test_fault_12_a_bad_gradient_alone_is_found_too():
    model = FullHead(TableScorer(10, 4))
    losses = model(torch.randn(8, 4), torch.randint(10, (8,)))
    losses.mean().backward()
    check_finite(model, losses, step=0)
    model.scorer.weight.grad[5, 1] = float("nan")
    with pytest.raises(NonFiniteError, match=r"the gradient of scorer\.weight holds nan"):
        check_finite(model, losses, step=0)


def test_fault_12_large_but_finite_numbers_are_no_fault():
    """3e38 twice overflows a sum in float32, but both are numbers."""
    model = FullHead(TableScorer(10, 4))
    model.scorer.weight.grad = torch.full((10, 4), 3e38)
    check_finite(model, torch.tensor([3e38, 3e38]), step=0)


@pytest.mark.parametrize("make", [lambda: sampled(1), lambda: FullHead(TableScorer(1, 4))])
def test_fault_13_one_class(make):
    head = make()
    losses = head(torch.randn(3, 4), torch.zeros(3, dtype=torch.int64))
    assert losses.tolist() == pytest.approx([0.0] * 3, abs=1e-6)
    assert head.topk(torch.randn(3, 4), 1).ids.tolist() == [[0], [0], [0]]


def test_fault_13_empty_batch_and_batch_of_one():
    for head in (sampled(), FullHead(TableScorer(10, 4))):
        assert head(torch.randn(0, 4), torch.empty(0, dtype=torch.int64)).shape == (0,)
        assert head.topk(torch.randn(0, 4), 3).ids.shape == (0, 3)
        assert head.log_prob(torch.randn(0, 4)).shape == (0, 10)
        assert head(torch.randn(1, 4), torch.tensor([2])).isfinite().all()
