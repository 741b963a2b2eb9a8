"""The k best classes: the kernel, plain torch and a sort of everything must be one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.heads.exact import linear
from widemax.heads.exact.topk import KernelKeeper, TorchKeeper, best_keeper
from widemax.kernels.heads import topk as kernel

KEEPERS = [KernelKeeper, TorchKeeper]
# Few different scores, so that there are many ties, and both infinities.
LEVELS = torch.tensor([-torch.inf, -2.0, -1.0, 0.0, 0.5, 1.0, torch.inf])


def keep(keeper_type, scores, k, tile, exclude=None):
    """Offer the scores in tiles of this many classes."""
    keeper = keeper_type(scores, k, exclude)
    for start in range(0, scores.shape[1], tile):
        # A tile is a matrix of its own, not a view of a wider one.
        part = scores[:, start : start + tile].contiguous()
        keeper.offer(slice(0, len(scores)), start, part)
    return keeper.result()


def assert_best(best, scores, k):
    ids, values = kernel.best_reference(scores.numpy(), k)
    assert best.ids.tolist() == ids.tolist()
    assert best.scores.tolist() == values.tolist()


@pytest.mark.parametrize("keeper_type", KEEPERS)
@settings(max_examples=150, deadline=None)
@given(
    num_classes=st.integers(1, 400),
    share=st.floats(0, 1),
    tile=st.integers(1, 400),
    levels=st.integers(1, 200),
    seed=st.integers(0, 2**31),
)
def test_the_best_are_those_of_the_sort(keeper_type, num_classes, share, tile, levels, seed):
    generator = torch.Generator().manual_seed(seed)
    k = max(1, round(share * num_classes))
    steps = torch.randint(levels, (3, num_classes), generator=generator)
    scores = LEVELS[steps] if levels <= len(LEVELS) else steps.double() / 8
    assert_best(keep(keeper_type, scores, k, tile), scores, k)


@pytest.mark.parametrize("keeper_type", KEEPERS)
@pytest.mark.parametrize("tile", [1, 70, 300])
def test_what_a_row_excludes_is_not_kept(keeper_type, tile):
    generator = torch.Generator().manual_seed(4)
    scores = LEVELS[torch.randint(len(LEVELS), (5, 300), generator=generator)]
    exclude = torch.randint(-1, 300, (5, 150), generator=generator)
    exclude[3] = -1
    left = scores.clone()
    for row, ids in enumerate(exclude.tolist()):
        left[row, [index for index in ids if index >= 0]] = -torch.inf
        if max(ids) >= 0:
            scores[row, max(ids)] = torch.nan  # what is excluded is not looked at
    for k in (1, 20, 300):
        assert_best(keep(keeper_type, scores, k, tile, exclude), left, k)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=90), st.data())
def test_a_newcomer_must_exceed_the_kth_best(values, data):
    k = data.draw(st.integers(1, len(values)))
    scores = np.array(values, np.float32)
    assert kernel.kth_best(scores, k) == sorted(values, reverse=True)[k - 1]
    assert scores.tolist() == values


@pytest.mark.parametrize("keeper_type", KEEPERS)
@pytest.mark.parametrize("order", ["rising", "falling", "equal"])
@pytest.mark.parametrize("k", [1, 7, 100, 999, 1000])
def test_scores_in_order(keeper_type, order, k):
    rising = torch.arange(1000.0)
    row = {"rising": rising, "falling": -rising, "equal": torch.ones(1000)}[order]
    assert_best(keep(keeper_type, row.expand(2, -1), k, 192), row.expand(2, -1), k)


@settings(max_examples=100, deadline=None)
@given(
    batch=st.integers(1, 9),
    num_classes=st.integers(1, 300),
    share=st.floats(0, 1),
    tile_scores=st.integers(1, 1500),
    tile_rows=st.integers(1, 10),
    seed=st.integers(0, 2**31),
)
def test_topk_does_not_depend_on_the_tiles(batch, num_classes, share, tile_scores, tile_rows, seed):
    generator = torch.Generator().manual_seed(seed)
    # Whole numbers: products are exact, so that ties are ties whatever the order of the sums.
    queries = torch.randint(-2, 3, (batch, 3), generator=generator).float()
    vectors = torch.randint(-2, 3, (num_classes, 3), generator=generator).float()
    biases = torch.randint(-1, 2, (num_classes,), generator=generator).float()
    biases[torch.rand(num_classes, generator=generator) < 0.2] = -torch.inf
    exclude = torch.randint(-1, num_classes, (batch, 7), generator=generator)
    scores = queries @ vectors.T + biases
    for row, ids in enumerate(exclude.tolist()):
        scores[row, [index for index in ids if index >= 0]] = -torch.inf
    k = max(1, round(share * num_classes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "_TILE_SCORES", tile_scores)
        patch.setattr(linear, "_TILE_ROWS", tile_rows)
        best = linear.linear_topk(queries, vectors, biases, k, exclude=exclude)
    assert_best(best, scores, k)


@pytest.mark.parametrize("keeper_type", KEEPERS)
@pytest.mark.parametrize("column", [0, 63, 64, 130, 149])
def test_one_nan_anywhere_is_named(keeper_type, column):
    scores = torch.full((4, 150), 5.0)
    scores[2, column] = torch.nan
    with pytest.raises(ValueError, match="scores hold NaN: check hidden and the class vectors"):
        keep(keeper_type, scores, 2, 150)
    with pytest.raises(ValueError, match="scores hold NaN"):
        keep(keeper_type, scores, 150, 64)


def test_nan_of_an_excluded_class_does_not_matter():
    vectors = torch.ones(200, 2)
    vectors[70] = torch.nan
    best = linear.linear_topk(torch.ones(1, 2), vectors, None, 3, exclude=torch.tensor([[70]]))
    assert best.ids.tolist() == [[0, 1, 2]]


def test_the_kernel_serves_the_cpu_and_torch_the_rest():
    for dtype in (torch.float32, torch.float64):
        assert isinstance(best_keeper(torch.empty(2, 3, dtype=dtype), 1), KernelKeeper)
    assert isinstance(best_keeper(torch.empty(2, 3, device="meta"), 1), TorchKeeper)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes_are_those_of_the_scores(dtype):
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(4, 8, generator=generator).to(dtype)
    vectors = torch.randn(500, 8, generator=generator).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    with torch.inference_mode():
        best = linear.linear_topk(queries, vectors, None, 20)
    assert best.scores.dtype == wide
    assert best.ids.dtype == torch.int64
    expected = (queries.to(wide) @ vectors.to(wide).T).topk(20)
    torch.testing.assert_close(best.scores, expected.values)
    assert torch.equal(best.ids, expected.indices)


def test_several_threads_may_search_at_once():
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(8, 32, 16, generator=generator)
    vectors = torch.randn(5000, 16, generator=generator)

    def search(batch):
        return linear.linear_topk(batch, vectors, None, 50).ids

    alone = [search(batch) for batch in queries]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(search, queries))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_what_a_row_keeps_has_a_bound():
    """However many classes go by, a row holds at most twice k, or k + 64."""
    for k, room in ((1, 65), (100, 200)):
        kept = kernel.nothing_kept(2, k, np.float32)
        assert kept.scores.shape == kept.ids.shape == (2, room)
