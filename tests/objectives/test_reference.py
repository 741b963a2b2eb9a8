"""Each objective against the plain reference, against finite differences and against the truth."""

from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.objectives import objective_cases as cases
from widemax.heads import hits_by_class
from widemax.objectives import (
    corrected_log_q,
    full_logistic,
    full_softmax,
    importance_sampling,
    sampled_logistic,
    sampled_softmax,
)

V = cases.NUM_CLASSES
ROWS = 5


class Case:
    """Random examples over V classes, with duplicates among the draws and hits among them."""

    def __init__(self, seed, *, num_targets=1, mask=False, per_row=False, num_samples=9):
        generator = torch.Generator().manual_seed(seed)
        draw = partial(torch.randint, V, generator=generator)
        self.scores = 3 * torch.randn(ROWS, V, generator=generator, dtype=torch.float64)
        count = 2 * torch.rand(ROWS, V, generator=generator, dtype=torch.float64) + 0.01
        self.count = count if per_row else count[:1].expand(ROWS, V)
        self.ids = draw((ROWS, num_samples) if per_row else (num_samples,))
        order = torch.rand(ROWS, V, generator=generator).argsort(-1)
        self.targets = order[:, :num_targets]
        # The target is drawn twice: both copies are hits.
        self.ids[..., 0] = self.ids[..., 4] = self.targets[:, 0] if per_row else self.targets[0, 0]
        present = torch.rand(ROWS, num_targets, generator=generator) < 0.6
        present[:, 0] = True
        self.mask = present if mask else None
        self.flat = num_targets == 1

    def arguments(self):
        """Return what the objective is called with: positional and keyword arguments."""
        scores = self.scores.clone()
        target_scores, target_count = (
            values.gather(1, self.targets) for values in (scores, self.count)
        )
        rows = self.ids.expand(ROWS, -1)
        count = self.count.gather(1, rows) if self.ids.dim() == 2 else self.count[0][self.ids]
        targets = self.targets if self.mask is None else self.targets.masked_fill(~self.mask, -1)
        keywords = {
            "target_log_expected_count": target_count.log(),
            "log_expected_count": count.log(),
            "hits": hits_by_class(self.ids, targets),
            "target_mask": self.mask,
        }
        if self.flat:
            target_scores = target_scores[:, 0]
            keywords["target_log_expected_count"] = target_count[:, 0].log()
        return (target_scores, scores.gather(1, rows)), keywords

    def examples(self):
        """Yield each example as the plain reference takes it."""
        for row in range(ROWS):
            targets = self.targets[row].tolist()
            if self.mask is not None:
                targets = [t for t, there in zip(targets, self.mask[row], strict=True) if there]
            ids = self.ids[row] if self.ids.dim() == 2 else self.ids
            yield self.scores[row].tolist(), targets, ids.tolist(), self.count[row].tolist()


SHAPES = {
    "one target": {},
    "one target, counts [B, S]": {"per_row": True},
    "three targets": {"num_targets": 3},
    "three targets, some absent": {"num_targets": 3, "mask": True},
    "three targets, some absent, counts [B, S]": {"num_targets": 3, "mask": True, "per_row": True},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", cases.EVERY_CASE)
def test_equals_the_plain_reference(name, shape):
    for seed in range(8):
        case = Case(seed, **SHAPES[shape])
        scores, keywords = case.arguments()
        losses = cases.EVERY_CASE[name](*scores, **keywords)
        plain = [cases.reference_of(name)(*example) for example in case.examples()]
        expected = torch.tensor(plain, dtype=torch.float64)
        torch.testing.assert_close(losses, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [name for name in cases.EVERY_CASE if name != "corrected-log-q"])
def test_gradient_is_that_of_finite_differences(name, shape):
    case = Case(3, **SHAPES[shape])
    scores, keywords = case.arguments()
    objective = partial(cases.EVERY_CASE[name], **keywords)
    assert torch.autograd.gradcheck(objective, [part.requires_grad_() for part in scores])


@pytest.mark.parametrize("shape", SHAPES)
def test_corrected_log_q_has_the_derived_gradient(shape):
    """It stops gradients, so finite differences of its value say nothing."""
    for seed in range(8):
        case = Case(seed, **SHAPES[shape])
        scores, keywords = case.arguments()
        of_targets, of_candidates = gradients(corrected_log_q, scores, keywords)
        of_targets = of_targets.view(ROWS, -1)
        for row, example in enumerate(case.examples()):
            there = slice(None) if case.mask is None else case.mask[row]
            pull, push = cases.corrected_log_q_gradient(*example)
            assert of_targets[row, there].tolist() == pytest.approx(pull, abs=1e-12)
            assert of_candidates[row].tolist() == pytest.approx(push, abs=1e-12)


def gradients(objective, scores, keywords):
    scores = [part.detach().clone().requires_grad_() for part in scores]
    return torch.autograd.grad(objective(*scores, **keywords).sum(), scores)


def every_class_once(seed=0, num_targets=1):
    """Every class a candidate at log-count 0: nothing is left to estimate."""
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(ROWS, V, generator=generator, dtype=torch.float64)
    targets = torch.rand(ROWS, V, generator=generator).argsort(-1)[:, :num_targets]
    keywords = {
        "target_log_expected_count": torch.zeros(ROWS, num_targets),
        "log_expected_count": torch.zeros(V),
        "hits": hits_by_class(torch.arange(V), targets),
    }
    return scores, targets, keywords


def class_gradient(objective, scores, targets, keywords, ids=None):
    """Return the gradient for the scores of all classes, [B, V]."""
    scores = scores.clone().requires_grad_()
    candidates = scores if ids is None else scores[:, ids]
    losses = objective(scores.gather(1, targets), candidates, **keywords)
    return torch.autograd.grad(losses.sum(), scores)[0]


def exact_gradient(scores, targets):
    label = torch.zeros_like(scores).scatter(1, targets, 1 / targets.shape[1])
    return scores.softmax(-1) - label


@pytest.mark.parametrize("num_targets", [1, 3])
@pytest.mark.parametrize(
    ("objective", "exact"),
    [
        (sampled_softmax, full_softmax),
        (importance_sampling, full_softmax),
        (sampled_logistic, full_logistic),
    ],
)
def test_with_every_class_once_the_sample_is_the_truth(objective, exact, num_targets):
    scores, targets, keywords = every_class_once(num_targets=num_targets)
    positive = scores.gather(1, targets)
    losses = objective(positive, scores, **keywords)
    torch.testing.assert_close(losses, exact(positive, scores, **keywords), rtol=0, atol=1e-12)
    left, right = (class_gradient(each, scores, targets, keywords) for each in (objective, exact))
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_targets", [1, 3])
@pytest.mark.parametrize("objective", [full_softmax, sampled_softmax, corrected_log_q])
def test_with_every_class_once_the_gradient_is_exact(objective, num_targets):
    scores, targets, keywords = every_class_once(num_targets=num_targets)
    gradient = class_gradient(objective, scores, targets, keywords)
    torch.testing.assert_close(gradient, exact_gradient(scores, targets), rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_targets", [1, 3])
@pytest.mark.parametrize("objective", [corrected_log_q, importance_sampling])
def test_in_proportion_to_the_proposal_the_gradient_is_exact(objective, num_targets):
    """A list that holds each class as often as expected: the estimate is the sum itself."""
    scores, targets, _ = every_class_once(1, num_targets)
    copies = torch.arange(1, V + 1)
    ids = torch.arange(V).repeat_interleave(copies)
    keywords = {
        "target_log_expected_count": copies[targets].double().log(),
        "log_expected_count": copies[ids].double().log(),
        "hits": hits_by_class(ids, targets),
    }
    gradient = class_gradient(objective, scores, targets, keywords, ids)
    torch.testing.assert_close(gradient, exact_gradient(scores, targets), rtol=0, atol=1e-12)


@pytest.mark.parametrize("objective", [full_softmax, sampled_softmax])
def test_label_smoothing_is_that_of_torch(objective):
    scores, targets, keywords = every_class_once(2)
    smooth = partial(objective, label_smoothing=0.2)
    losses = smooth(scores.gather(1, targets), scores, **keywords)
    expected = cross_entropy(scores, targets[:, 0], label_smoothing=0.2, reduction="none")
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-12)
    left = class_gradient(smooth, scores, targets, keywords)
    right = scores.softmax(-1) - 0.2 / V
    right = right.scatter_add(1, targets, torch.full_like(scores[:, :1], -0.8))
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


def test_sampled_label_smoothing_puts_its_mass_uniformly_on_all_classes():
    """Whatever the proposal: a list in proportion to it must give each class the same label."""
    smoothing = 0.2
    copies = torch.arange(1, V + 1)
    ids = torch.arange(V).repeat_interleave(copies)
    targets = torch.tensor([[4]])
    scores = torch.randn(1, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    keywords = {
        "target_log_expected_count": copies[targets].double().log(),
        "log_expected_count": copies[ids].double().log(),
        "hits": hits_by_class(ids, targets),
    }
    plain, smooth = (
        class_gradient(
            partial(sampled_softmax, label_smoothing=value), scores, targets, keywords, ids
        )
        for value in (0.0, smoothing)
    )
    label = torch.full((1, V), smoothing / V, dtype=torch.float64)
    label[0, 4] -= smoothing
    torch.testing.assert_close(plain - smooth, label, rtol=0, atol=1e-12)
