"""The kernel that ranks targets against its plain reference."""

import numpy as np
import pytest
import torch

from widemax.candidates import ClassBlock
from widemax.data import Sequences, Windows
from widemax.evaluation import prediction
from widemax.evaluation.prediction import evaluate_products, evaluate_ranking
from widemax.kernels.evaluation.ranks import TileRanks, target_ranks, target_ranks_reference


@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (3, 7), (40, 9001)])
@pytest.mark.parametrize("spread", [0.0, 1.0, 200.0])
def test_ranks_and_log_softmax_are_those_of_the_reference(rows, classes, spread):
    rng = np.random.default_rng(classes)
    # Rounded, so that some scores are equal.
    scores = np.round(rng.normal(size=(rows, classes)) * spread, 1).astype(np.float32)
    targets = rng.integers(0, classes, rows)
    if classes > 1:
        scores[0, (targets[0] + 1) % classes] = -np.inf
    found, expected = target_ranks(scores, targets), target_ranks_reference(scores, targets)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-6, atol=2e-6)


def test_a_score_that_is_nan_shows_in_the_loss():
    scores = np.array([[0.0, np.nan, 1.0]], np.float32)
    assert np.isnan(target_ranks(scores, np.array([0]))[2]).all()


def ranks_by_tiles(scores, targets, width):
    found = TileRanks(targets, np.take_along_axis(scores, targets[:, None], axis=1)[:, 0].copy())
    for first in range(0, scores.shape[1], width):
        found.add(np.ascontiguousarray(scores[:, first : first + width]), first)
    return found


@pytest.mark.parametrize("width", [1, 7, 4096])
@pytest.mark.parametrize("spread", [0.0, 1.0, 200.0])
def test_tile_by_tile_the_same_is_found(width, spread):
    rng = np.random.default_rng(width)
    scores = np.round(rng.normal(size=(9, 501)) * spread, 1).astype(np.float32)
    targets = rng.integers(0, 501, 9)
    scores[0, (targets[0] + 1) % 501], scores[1, :20] = -np.inf, -np.inf
    targets[1] = 30
    found, expected = (
        ranks_by_tiles(scores, targets, width),
        target_ranks_reference(scores, targets),
    )
    assert np.array_equal(found.better, expected[0])
    assert np.array_equal(found.alike, expected[1])
    np.testing.assert_allclose(found.log_prob(), expected[2], rtol=1e-6, atol=2e-6)


def test_a_target_stands_beside_itself_however_its_score_was_rounded():
    own = np.array([1, np.nextafter(np.float32(1), np.float32(2))], np.float32)
    found = TileRanks(np.array([1, 1]), own)
    found.add(np.array([[0, own[1]], [2, 1]], np.float32), 0)
    assert found.better.tolist() == [0, 1]
    assert found.alike.tolist() == [1, 1]


def test_a_score_that_is_nan_shows_in_the_loss_of_tiles():
    scores = np.array([[0.0, np.nan, 1.0]], np.float32)
    assert np.isnan(ranks_by_tiles(scores, np.array([0]), 2).log_prob()).all()


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("num_examples", [3, 700])
def test_products_are_ranked_like_their_scores(biased, num_examples):
    """Of classes with the same vector, each stands beside the others."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(2500, 12, generator=generator)
    vectors[1000:2000] = vectors[:1000]
    biases = torch.zeros(2500).normal_(generator=generator) if biased else None
    if biases is not None:
        biases[1000:2000] = biases[:1000]
    items = torch.randint(2500, (num_examples + 1,), generator=generator)
    windows = Windows(Sequences.from_lists([items.tolist()]), before=1, require_context=True)

    def blocks(batch):
        queries = vectors[batch.context[:, 0]]
        parts = slice(0, 1300), slice(1300, None)
        return [
            ClassBlock(queries, vectors[each], None if biases is None else biases[each])
            for each in parts
        ]

    def scores(batch):
        found = [
            each.queries.double() @ each.vectors.double().T
            + (0 if each.biases is None else each.biases)
            for each in blocks(batch)
        ]
        return torch.cat(found, dim=1)

    found = evaluate_products(blocks, windows, keep_per_example=True)
    expected = evaluate_ranking(scores, windows, keep_per_example=True, normalised=False)
    for name, values in expected.per_example.items():
        torch.testing.assert_close(found.per_example[name], values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_ranks_alike(threads, monkeypatch):
    """Rows are ranked by the same tiles, whichever thread has them; torch's number stays."""
    monkeypatch.setattr(prediction, "num_blocks", lambda *_, **__: threads)
    generator = torch.Generator().manual_seed(threads)
    vectors = torch.randn(1500, 8, generator=generator)
    items = torch.randint(1500, (1100,), generator=generator)
    windows = Windows(Sequences.from_lists([items.tolist()]), before=1, require_context=True)
    asked = []

    def blocks(batch):
        asked.append((torch.get_num_threads(), len(batch.targets)))
        return [ClassBlock(vectors[batch.context[:, 0]], vectors, None)]

    before = torch.get_num_threads()
    found = evaluate_products(blocks, windows, keep_per_example=True)
    scores = vectors.double() @ vectors.double().T
    expected = evaluate_ranking(
        lambda batch: scores[batch.context[:, 0]], windows, keep_per_example=True, normalised=False
    )
    for name, values in expected.per_example.items():
        torch.testing.assert_close(found.per_example[name], values, rtol=1e-4, atol=1e-4)
    assert {number for number, _ in asked} == {before} == {torch.get_num_threads()}
    assert sum(rows for _, rows in asked) == len(windows)
    assert max(rows for _, rows in asked) <= threads * prediction._TILE_ROWS
