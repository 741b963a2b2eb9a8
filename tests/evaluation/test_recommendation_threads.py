"""The k best of each row, kept by several threads: the same as by one, and as by a sort."""

from __future__ import annotations

import numpy as np
import pytest

from widemax.kernels.heads import topk as kernel


def maxima(scores):
    whole = scores.shape[1] // kernel.BLOCK
    blocks = scores[:, : whole * kernel.BLOCK].reshape(len(scores), whole, kernel.BLOCK)
    return blocks.max(-1)


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
@pytest.mark.parametrize("levels", [3, 10**6])
def test_any_number_of_threads_keeps_the_best(threads, levels):
    generator = np.random.default_rng(threads)
    scores = generator.integers(levels, size=(7, 600)).astype(np.float32)
    kept = kernel.nothing_kept(7, 5, np.float32)
    for start in (0, 200, 400):
        tile = np.ascontiguousarray(scores[:, start : start + 200])
        assert kernel._offer_in_blocks(threads, tile, maxima(tile), start, 5, kept)
    kernel.finish(5, kept)
    order = np.argsort(-kept.scores[:, :5], axis=1, kind="stable")
    ids, best = kernel.best_reference(scores, 5)
    assert np.take_along_axis(kept.ids[:, :5], order, axis=1).tolist() == ids.tolist()
    assert np.take_along_axis(kept.scores[:, :5], order, axis=1).tolist() == best.tolist()


@pytest.mark.parametrize("row", [0, 3, 6])
def test_one_nan_is_seen_by_whichever_thread_meets_it(row):
    scores = np.zeros((7, 128), np.float32)
    scores[row, 70] = np.nan
    kept = kernel.nothing_kept(7, 5, np.float32)
    assert not kernel._offer_in_blocks(3, scores, maxima(scores), 0, 5, kept)
