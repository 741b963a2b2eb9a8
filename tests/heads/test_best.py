"""The best scores over interests: the kernel against torch's maximum in float64."""

import pytest
import torch

from widemax.heads import FullHead, SampledHead
from widemax.heads.exact.best import best_products, distinct
from widemax.heads.interests import best_over_all, best_scores
from widemax.sampling import UniformSampler
from widemax.scoring import TableScorer

ROWS, INTERESTS, DIMENSION, CLASSES = 7, 4, 5, 23


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def some_interests(dimension=DIMENSION):
    """Of the rows one has copies of the first only, another one some."""
    interests = torch.randn(ROWS, INTERESTS, dimension)
    interests[0] = interests[0, :1]
    interests[3, 2:] = interests[3, 0]
    return interests


def gradients(function, *inputs):
    inputs = [each.clone().requires_grad_() for each in inputs]
    result = function(*inputs)
    ways = torch.linspace(-1, 1, result.numel(), dtype=torch.float64).view_as(result)
    return result.detach(), *torch.autograd.grad((result * ways.to(result.dtype)).sum(), inputs)


def best(interests, vectors):
    states, starts = distinct(interests)
    return best_products(states, vectors, starts)


# Rows of no whole register, of some, and of more than four; classes and examples of many tiles.
@pytest.mark.parametrize(
    ("tile", "dimension", "classes"),
    [(1, 5, CLASSES), (50, 5, CLASSES), (2**18, 5, CLASSES), (50, 48, CLASSES), (2**18, 80, 300)],
)
def test_the_kernel_gives_the_maximum_and_its_gradient(tile, dimension, classes, monkeypatch):
    monkeypatch.setattr("widemax.heads.exact.best._TILE_SCORES", tile)
    interests = some_interests(dimension) / dimension**0.5
    vectors = torch.randn(classes, dimension)
    found = gradients(best, interests, vectors)
    expected = gradients(lambda x, v: (x @ v.T).amax(1), interests.double(), vectors.double())
    # Copies share their gradient in torch, where the kernel gives all of it to the first.
    by_states = expected[1].clone()
    for row, copies in ((0, 1), (3, 2)):
        by_states[row, 0] = expected[1][row, [0, *range(copies, INTERESTS)]].sum(0)
        by_states[row, copies:] = 0
    for one, other in zip(found, (expected[0], by_states, expected[2]), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=2e-5)


def test_the_gradient_of_many_examples_is_that_of_each():
    interests, vectors = torch.randn(70, INTERESTS, 16), torch.randn(CLASSES, 16)
    found = gradients(best, interests, vectors)
    expected = gradients(lambda x, v: (x @ v.T).amax(1), interests.double(), vectors.double())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-4)


def test_copies_are_not_multiplied():
    states, starts = distinct(some_interests())
    assert len(states) == ROWS * INTERESTS - 3 - 2
    assert starts.diff().tolist() == [1, 4, 4, 2, 4, 4, 4]


def test_nan_is_the_best_wherever_it_stands():
    for place in range(INTERESTS):
        interests = torch.randn(1, INTERESTS, DIMENSION)
        interests[0, place] = torch.nan
        assert bool(best(interests, torch.randn(3, DIMENSION)).isnan().all())


def test_the_gradient_can_be_differentiated_again():
    interests, vectors = some_interests(), torch.randn(CLASSES, DIMENSION)

    def slopes(x, v):
        result = best(x, v) if x.dtype == torch.float32 else (x @ v.T).amax(1)
        return torch.autograd.grad(result.square().sum(), v, create_graph=True)[0]

    found = gradients(slopes, interests, vectors)
    expected = gradients(slopes, interests.double(), vectors.double())
    torch.testing.assert_close(found[0].double(), expected[0], rtol=0, atol=1e-4)
    torch.testing.assert_close(found[2].double(), expected[2], rtol=0, atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_best_scores_are_those_of_the_scorer(bias, similarity):
    scorer = TableScorer(CLASSES, DIMENSION, bias=bias, similarity=similarity)
    if bias:
        torch.nn.init.normal_(scorer.bias)
    interests, ids = some_interests(), torch.tensor([3, 3, 22, 0])
    expected = torch.stack([scorer(each, ids) for each in interests.unbind(1)]).amax(0)
    torch.testing.assert_close(best_scores(scorer, interests, ids), expected)
    hooked = TableScorer(CLASSES, DIMENSION)
    hooked.register_forward_hook(lambda module, inputs, scores: scores + 7)
    torch.testing.assert_close(
        best_scores(hooked, interests, ids), 7 + (interests @ hooked.weight[ids].T).amax(1)
    )


def test_the_exact_loss_of_interests_is_the_same_in_both_precisions():
    scorer, interests = TableScorer(CLASSES, DIMENSION, bias=True), some_interests()
    torch.nn.init.normal_(scorer.bias)
    targets, scores = torch.arange(ROWS), torch.randn(ROWS)
    found = best_over_all(scorer, interests, targets, scores)
    expected = best_over_all(scorer.double(), interests.double(), targets, scores.double())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["sampled", "full"])
def test_a_batch_of_nobody_has_no_loss(kind):
    scorer = TableScorer(CLASSES, DIMENSION)
    head = FullHead(scorer)
    if kind == "sampled":
        head = SampledHead(scorer, UniformSampler(CLASSES), num_samples=4)
    nobody = torch.zeros(0, INTERESTS, DIMENSION, requires_grad=True)
    losses = head.interest_losses(nobody, nobody[:, 0], torch.zeros(0, dtype=torch.int64))
    losses.sum().backward()
    assert losses.shape == (0,)


def test_autocast_reaches_the_products():
    scorer, interests = TableScorer(CLASSES, DIMENSION), some_interests()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = best_scores(scorer, interests, torch.arange(CLASSES))
    expected = best_scores(scorer, interests, torch.arange(CLASSES))
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.05)
