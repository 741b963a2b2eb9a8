"""Faults that show only where sampler, objective and scorer meet."""

import numpy as np
import pytest
import torch

from widemax import (
    FullHead,
    InBatchSampler,
    SampledHead,
    TableScorer,
    UniformSampler,
    UnigramSampler,
    nce,
    sampled_softmax,
)
from widemax.sampling import LearnedUnigramSampler, StreamingFrequency
from widemax.training import NonFiniteError, check_finite


def sampled(num_classes=10, dimension=4, **options):
    scorer = TableScorer(num_classes, dimension)
    return SampledHead(scorer, UniformSampler(num_classes), num_samples=5, **options)


@pytest.mark.parametrize("targets", [[[0x100000, 1]], [[0, -10]], [[0, -1]], [[10, 0]]])
@pytest.mark.parametrize("make", [sampled, lambda: FullHead(TableScorer(10, 4))])
def test_fault_01_targets_out_of_range(targets, make):
    with pytest.raises(ValueError, match=r"targets must lie .* \(num_classes 10\)"):
        make()(torch.randn(1, 4), torch.tensor(targets))


@pytest.mark.parametrize("num_classes", [0, -1, 2**40, 2**62])
def test_fault_02_senseless_num_classes(num_classes):
    with pytest.raises(ValueError, match="num_classes"):
        TableScorer(num_classes, 4)


@pytest.mark.parametrize("dimension", [0, -1, 2.5, True, "8", 2**31])
def test_fault_02_senseless_dimension(dimension):
    with pytest.raises(ValueError, match="dimension must be"):
        TableScorer(2**31 - 1, dimension)


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


HIDDEN, TARGETS = torch.zeros(3, 4), torch.tensor([0, 1, 2])
IDS = torch.tensor([[1, 2]] * 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda head: head(HIDDEN, TARGETS.tolist()), "targets must be a tensor, got list"),
        (lambda head: head(HIDDEN, TARGETS.numpy()), "targets must be a tensor, got ndarray"),
        (lambda head: head(HIDDEN.numpy(), TARGETS), "hidden must be a tensor, got ndarray"),
        (lambda head: head(HIDDEN, TARGETS, weights=[1.0] * 3), "weights must be a tensor"),
        (lambda head: head(HIDDEN, TARGETS, weights=torch.ones(3, 1)), r"weights .* \[3\], got"),
        (lambda head: head.scores(HIDDEN, [1, 2]), "ids must be a tensor, got list"),
        (lambda head: head.scores(HIDDEN, IDS[:2]), r"ids must have shape \[S\] or \[3, S\], got"),
        (lambda head: head.scores(HIDDEN, IDS[0, 0]), r"ids must have shape .* got \[\]"),
        (lambda head: head.log_prob(HIDDEN, IDS[:2]), "ids must have shape"),
        (lambda head: head.log_prob(HIDDEN, IDS[:, None]), r"ids must .* got \[3, 1, 2\]"),
        (lambda head: head.topk(HIDDEN, 2.0), "k must be a whole number, got 2.0"),
        (lambda head: head.topk(HIDDEN, "2"), "k must be a whole number, got '2'"),
        (lambda head: head.topk(HIDDEN, 11), "k must be between 1 and 10, got 11"),
        (lambda head: head.topk(HIDDEN, 2, exclude=[[1]] * 3), "exclude must be a tensor"),
        (lambda head: head.topk(HIDDEN[0, 0], 2, exclude=IDS), "hidden must have shape"),
    ],
)
@pytest.mark.parametrize("make", [sampled, lambda: FullHead(TableScorer(10, 4))])
def test_what_is_no_tensor_or_has_the_wrong_shape_is_named(make, call, message):
    with pytest.raises(ValueError, match=message):
        call(make())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"history": [[1]] * 3}, "history must be a tensor"),
        ({"history": torch.tensor(1)}, r"history must have shape \[3, H\], got \[\]"),
        ({"history": IDS[:, :, None]}, r"history must have shape \[3, H\], got \[3, 2, 1\]"),
        ({"history": IDS[:2]}, r"history must have shape \[3, H\], got \[2, 2\]"),
        ({"query_ids": [1, 2, 3]}, "query_ids must be a tensor"),
        ({"query_ids": TARGETS[:, None]}, r"query_ids must have shape \[3\], got \[3, 1\]"),
        ({"query_ids": TARGETS[:2]}, r"query_ids must have shape \[3\], got \[2\]"),
    ],
)
def test_masks_of_the_wrong_shape_are_named(arguments, message):
    head = SampledHead(TableScorer(10, 4), InBatchSampler(10, StreamingFrequency(10)))
    with pytest.raises(ValueError, match=message):
        head(HIDDEN, TARGETS, **arguments)


def test_a_refused_batch_teaches_the_sampler_nothing():
    sampler = LearnedUnigramSampler(10)
    head = SampledHead(TableScorer(10, 4), sampler, num_samples=5)
    before = sampler.tree.clone()
    for wrong in ({"weights": torch.ones(2)}, {"history": IDS[:2]}, {"query_ids": IDS}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            head(HIDDEN, TARGETS, **wrong)
    assert torch.equal(sampler.tree, before)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FullHead(torch.nn.Linear(4, 10)), "scorer must be a Scorer, got Linear"),
        (lambda: SampledHead(UniformSampler(10), TableScorer(10, 4)), "scorer must be a Scorer"),
        (lambda: SampledHead(TableScorer(10, 4), StreamingFrequency(10)), "sampler must be a"),
        (lambda: sampled(objective="nce"), "objective must be a function, got 'nce'"),
        (lambda: FullHead(TableScorer(10, 4), label_smoothing="x"), "label_smoothing must be"),
        (lambda: TableScorer(10, 4, temperature="hot"), "temperature must be a finite number"),
        (lambda: TableScorer.tied(torch.nn.Linear(4, 10)), "must be an nn.Embedding, got Linear"),
    ],
)
def test_parts_of_the_wrong_kind_are_refused_when_put_together(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_sizes_from_numpy_are_taken():
    head = sampled(num_classes=np.int64(10), dimension=np.int64(4))
    assert head.topk(HIDDEN, np.int64(2)).ids.shape == (3, 2)
    for dtype in (torch.uint8, torch.int32, torch.uint32):
        assert head(HIDDEN, TARGETS.to(dtype)).shape == (3,)
