"""Indexes find what the head ranks first, and score it as the head does."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import widemax as wm
from widemax.index import (
    ExactIndex,
    FaissIndex,
    HNSWIndex,
    IndexReport,
    IVFIndex,
    build_index,
    measure_recall,
)
from widemax.index.recall import recall_of

CLASSES, DIMENSION = 3000, 12
SCORERS = {
    "dot": {},
    "cosine": {"similarity": "cosine"},
    "bias": {"bias": True},
    "temperature": {"temperature": 0.07},
    "all": {"similarity": "cosine", "bias": True, "temperature": 0.2},
    "half": {"dtype": torch.bfloat16, "bias": True},
    "double": {"dtype": torch.float64},
}
KINDS = {
    "exact": ExactIndex,
    "hnsw": lambda head: HNSWIndex(head, search_breadth=256),
    "ivf": lambda head: IVFIndex(head, lists=32, probes=8),
}


def clustered_head(seed=0, num_classes=CLASSES, **options):
    """Return a head whose vectors lie in clusters and have lengths from 0.1 to 10."""
    generator = torch.Generator().manual_seed(seed)
    scorer = wm.TableScorer(num_classes, DIMENSION, **options)
    centres = torch.randn(40, DIMENSION, generator=generator)
    place = torch.randint(40, (num_classes,), generator=generator)
    vectors = centres[place] + 0.5 * torch.randn(num_classes, DIMENSION, generator=generator)
    lengths = 10 ** (2 * torch.rand(num_classes, 1, generator=generator) - 1)
    scorer.weight.data.copy_(vectors * lengths)
    if scorer.bias is not None:
        scorer.bias.data.copy_(3 * torch.randn(num_classes, generator=generator))
    return wm.FullHead(scorer).requires_grad_(False)


def some_hidden(rows, seed=1, dtype=torch.float32):
    return torch.randn(rows, DIMENSION, generator=torch.Generator().manual_seed(seed)).to(dtype)


def dtype_of(head):
    return torch.float64 if head.scorer.weight.dtype == torch.float64 else torch.float32


@pytest.mark.parametrize("scoring", SCORERS)
def test_exact_equals_brute_force_in_float64(scoring):
    head = clustered_head(**SCORERS[scoring])
    hidden = some_hidden(50, dtype=dtype_of(head))
    queries = head.scorer.queries(hidden).double()
    scores = queries @ head.scorer.class_vectors().double().T
    if head.scorer.bias is not None:
        scores += head.scorer.bias.double()
    expected = scores.topk(20)
    found = ExactIndex(head).search(hidden, 20)
    torch.testing.assert_close(found.scores.double(), expected.values, rtol=1e-5, atol=1e-4)
    assert (found.ids == expected.indices).double().mean() > 0.99


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scoring", SCORERS)
def test_scores_are_those_of_the_head(kind, scoring):
    head = clustered_head(**SCORERS[scoring])
    hidden = some_hidden(40, dtype=dtype_of(head))
    found = KINDS[kind](head).search(hidden, 10)
    assert found.scores.dtype == dtype_of(head)
    torch.testing.assert_close(found.scores, head.scores(hidden, found.ids), rtol=1e-5, atol=1e-5)
    assert (found.scores.diff(dim=1) <= 0).all()
    assert all(len(set(row)) == 10 for row in found.ids.tolist())


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
@pytest.mark.parametrize("scoring", SCORERS)
def test_recall_on_vectors_of_all_lengths(kind, scoring):
    head = clustered_head(**SCORERS[scoring])
    hidden = some_hidden(200, dtype=dtype_of(head))
    report = measure_recall(KINDS[kind](head), ExactIndex(head), hidden)
    assert (report.k, report.num_queries) == (10, 200)
    assert report.recall > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_is_a_snapshot(kind):
    head = clustered_head()
    index, hidden = KINDS[kind](head), some_hidden(5)
    before = index.search(hidden, 3)
    head.scorer.weight.data.neg_()
    assert torch.equal(index.search(hidden, 3).ids, before.ids)


@pytest.mark.parametrize("kind", KINDS)
def test_of_several_interests_a_class_counts_once_at_its_best(kind):
    head = clustered_head(bias=True)
    hidden = some_hidden(60).view(20, 3, DIMENSION)
    hidden[:, 2] = hidden[:, 0] * 1.01  # nearly the same interest twice: the same classes twice
    index = KINDS[kind](head)
    if isinstance(index, FaissIndex):
        index.breadth = index.largest_breadth
    found = index.search(hidden, 15)
    scores = torch.stack([head.scores(each) for each in hidden.unbind(1)]).amax(0)
    expected = scores.topk(15)
    torch.testing.assert_close(found.scores, expected.values, rtol=1e-5, atol=1e-5)
    assert all(len(set(row)) == 15 for row in found.ids.tolist())
    one = index.search(hidden[:, :1], 15)
    torch.testing.assert_close(one.scores, index.search(hidden[:, 0], 15).scores)


INDEXES = {}


def index_of(kind, num_classes):
    """Return one index for all examples of a property: it never changes."""
    if (kind, num_classes) not in INDEXES:
        head = clustered_head(num_classes=num_classes, bias=True)
        INDEXES[kind, num_classes] = head, KINDS[kind](head)
    return INDEXES[kind, num_classes]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(
    num_classes=st.sampled_from([40, 3000]),
    k=st.integers(1, 50),
    rows=st.integers(0, 3),
    width=st.integers(0, 45),
    near=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_excluded_classes_never_come(kind, num_classes, k, rows, width, near, seed):
    head, index = index_of(kind, num_classes)
    k = min(k, num_classes)
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, DIMENSION, generator=generator)
    exclude = torch.randint(-1, num_classes, (rows, width), generator=generator)
    if near:  # exactly those that would have been found
        best = head.topk(hidden, min(max(width, 1), num_classes)).ids
        exclude = torch.cat([best, torch.full((rows, 2), -1)], dim=1)
    found = index.search(hidden, k, exclude=exclude)
    assert found.ids.shape == found.scores.shape == (rows, k)
    for ids, scores, gone in zip(found.ids, found.scores, exclude, strict=True):
        real = ids[ids >= 0]
        assert len(real) == min(k, num_classes - len(set(gone.tolist()) - {-1}))
        assert len(set(real.tolist())) == len(real)
        assert not set(real.tolist()) & set(gone.tolist())
        assert (ids[len(real) :] == -1).all()
        assert (scores[len(real) :] == -torch.inf).all()
    if kind == "exact":
        assert torch.equal(found.ids, head.topk(hidden, k, exclude=exclude).ids)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_excluded_is_still_found(kind):
    head, index = index_of(kind, 3000)
    hidden = some_hidden(200)
    exclude = head.topk(hidden, 10).ids
    expected = head.topk(hidden, 10, exclude=exclude)
    assert recall_of(index.search(hidden, 10, exclude=exclude), expected) > 0.8


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
@pytest.mark.parametrize("scoring", SCORERS)
def test_one_row_is_answered_to_the_digit_as_many_are(kind, scoring, monkeypatch):
    head = clustered_head(**SCORERS[scoring])
    index, hidden = KINDS[kind](head), some_hidden(20, dtype=dtype_of(head))
    index.remove(torch.arange(0, CLASSES, 7))
    exclude = torch.cat([head.topk(hidden, 5).ids, torch.full((20, 1), -1)], dim=1)
    rows = [(hidden[[row]], exclude[[row]]) for row in range(20)]
    quick = [index.search(query, 10, exclude=without) for query, without in rows]
    monkeypatch.setattr(FaissIndex, "_best_of_few", lambda *_: None)
    for found, (query, without) in zip(quick, rows, strict=True):
        expected = index.search(query, 10, exclude=without)
        assert torch.equal(found.ids, expected.ids)
        assert torch.equal(found.scores, expected.scores)
        assert found.scores.dtype == expected.scores.dtype


def test_a_row_that_faiss_leaves_short_is_searched_whole():
    """One list of some ten classes is looked at, and 50 are wanted."""
    head, hidden = clustered_head(), some_hidden(4)
    index = IVFIndex(head, lists=300, probes=1)
    assert (index._nearest(hidden, 50) == -1).any(1).all()
    found = index.search(hidden, 50)
    assert torch.equal(found.ids, head.topk(hidden, 50).ids)
    exclude = head.topk(hidden, 40).ids
    found = index.search(hidden, 20, exclude=exclude)
    assert torch.equal(found.ids, head.topk(hidden, 20, exclude=exclude).ids)
    alone = index.search(hidden[:1], 50)
    assert torch.equal(alone.ids, head.topk(hidden[:1], 50).ids)


@pytest.mark.parametrize("kind", KINDS)
def test_fault_23_k(kind):
    index = KINDS[kind](clustered_head())
    hidden = some_hidden(2)
    for k in (0, -1, 10**9, CLASSES + 1):
        with pytest.raises(ValueError, match=r"k must be between 1 and 3,000, got"):
            index.search(hidden, k)
    found = index.search(hidden, CLASSES)
    assert sorted(found.ids[0].tolist()) == list(range(CLASSES))
    everything = torch.arange(CLASSES).expand(2, -1)
    found = index.search(hidden, 3, exclude=everything)
    assert (found.ids == -1).all()
    assert (found.scores == -torch.inf).all()
    with pytest.raises(ValueError, match="exclude must lie between 0 and 2,999"):
        index.search(hidden, 3, exclude=torch.tensor([[-2], [0]]))
    with pytest.raises(ValueError, match=r"exclude must have shape \[2, E\]"):
        index.search(hidden, 3, exclude=torch.tensor([1, 2]))


@pytest.mark.parametrize("kind", KINDS)
def test_fault_24_queries(kind):
    head = clustered_head()
    index = KINDS[kind](head)
    for bad in (torch.nan, torch.inf, -torch.inf):
        hidden = some_hidden(3)
        hidden[1, 4] = bad
        with pytest.raises(ValueError, match=f"queries must be finite, row 1 holds {bad}"):
            index.search(hidden, 3)
    for shape in ([DIMENSION], [2, DIMENSION + 1], [2, 0, DIMENSION], [1, 1, 1, DIMENSION]):
        with pytest.raises(ValueError, match="queries must have shape"):
            index.search(torch.zeros(shape), 3)
    with pytest.raises(ValueError, match="queries must be floating point"):
        index.search(torch.zeros(2, DIMENSION, dtype=torch.int64), 3)
    with pytest.raises(ValueError, match="queries must be a tensor"):
        index.search([[0.0] * DIMENSION], 3)
    assert index.search(torch.zeros(0, DIMENSION), 3).ids.shape == (0, 3)
    assert index.search(torch.zeros(0, 2, DIMENSION), 3).ids.shape == (0, 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scoring", ["dot", "cosine", "all"])
def test_a_query_of_zeros_scores_biases(kind, scoring):
    head = clustered_head(**SCORERS[scoring])
    found = KINDS[kind](head).search(torch.zeros(1, DIMENSION), 5)
    assert (found.ids >= 0).all()
    torch.testing.assert_close(found.scores, head.scores(torch.zeros(1, DIMENSION), found.ids))
    if head.scorer.bias is not None:
        torch.testing.assert_close(found.scores[0], head.scorer.bias.topk(5).values)


@pytest.mark.parametrize("kind", KINDS)
def test_the_length_of_a_query_does_not_change_the_order(kind):
    index, hidden = KINDS[kind](clustered_head()), some_hidden(20)
    usual = index.search(hidden, 5)
    for length in (1e-30, 1e30):
        assert torch.equal(index.search(hidden * length, 5).ids, usual.ids)


def test_computed_class_vectors_are_computed_once():
    scorer = wm.scoring.CharCNNScorer([f"word{n}" for n in range(600)], DIMENSION, filters=4)
    head, hidden = wm.FullHead(scorer).eval(), some_hidden(3)
    found = HNSWIndex(head).search(hidden, 5)
    with torch.no_grad():
        torch.testing.assert_close(found.scores, head.scores(hidden, found.ids))


def test_a_class_ruled_out_by_its_bias_is_for_the_exact_index():
    head = clustered_head(bias=True)
    head.scorer.bias.data[7] = -torch.inf
    found = ExactIndex(head).search(some_hidden(1), CLASSES)
    assert found.ids[0, -1] == -1
    assert 7 not in found.ids
    with pytest.raises(ValueError, match="the biases of the head must be finite"):
        HNSWIndex(head)
    head.scorer.weight.data[3, 3] = torch.nan
    with pytest.raises(ValueError, match="the class vectors of the head must be finite"):
        IVFIndex(head)


def test_vectors_of_zeros():
    head = clustered_head()
    head.scorer.weight.data.zero_()
    for kind in KINDS.values():
        found = kind(head).search(some_hidden(2), 4)
        assert (found.scores == 0).all()
        assert (found.ids >= 0).all()


def test_a_tree_has_no_vectors_to_index():
    head = wm.HierarchicalHead(DIMENSION, wm.Tree.huffman(torch.ones(10)))
    with pytest.raises(ValueError, match="head must be one whose classes have vectors"):
        ExactIndex(head)


def test_options_are_checked_before_anything_is_built():
    head = clustered_head()
    with pytest.raises(ValueError, match="links must be between 2 and 512, got 1"):
        HNSWIndex(head, links=1)
    with pytest.raises(ValueError, match="build_breadth must be"):
        HNSWIndex(head, build_breadth=0)
    with pytest.raises(ValueError, match="lists must be between 1 and 3,000, got 3,001"):
        IVFIndex(head, lists=3001)
    with pytest.raises(ValueError, match="probes must be"):
        IVFIndex(head, probes=0)
    with pytest.raises(ValueError, match="breadth must be between 1 and 32"):
        IVFIndex(head, lists=32).breadth = 33


def test_without_faiss_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    head = clustered_head()
    assert ExactIndex(head).search(some_hidden(1), 1).ids.shape == (1, 1)
    with pytest.raises(ValueError, match=r"pip install 'widemax\[faiss\]'"):
        IVFIndex(head)


def test_build_index_chooses_by_size_and_broadens_until_the_recall_is_there():
    head, hidden = clustered_head(), some_hidden(100)
    index, report = build_index("auto", head, hidden)
    assert index.kind == "exact"
    assert report.recall == 1
    narrow = IVFIndex(head, lists=50, probes=1)
    assert measure_recall(narrow, ExactIndex(head), hidden).recall < 0.9
    index, report = build_index("ivf", head, hidden, recall=0.97, lists=50, probes=1)
    assert index.breadth > 1
    assert report.recall >= 0.97
    index, report = build_index("hnsw", head, hidden, recall=1.0, links=2, search_breadth=1)
    assert isinstance(report, IndexReport)
    large = wm.FullHead(wm.TableScorer(50_000, 2)).requires_grad_(False)
    assert build_index("auto", large, torch.randn(5, 2), lists=16)[0].kind == "ivf"


def test_build_index_refuses():
    head, hidden = clustered_head(), some_hidden(3)
    with pytest.raises(ValueError, match="must be one of auto, exact, hnsw, ivf, ivf8, got 'lsh'"):
        build_index("lsh", head, hidden)
    with pytest.raises(ValueError, match="recall must be at most 1, got 95"):
        build_index("ivf", head, hidden, recall=95)
    with pytest.raises(ValueError, match="an exact index takes no options, got lists"):
        build_index("auto", head, hidden, lists=5)
    with pytest.raises(ValueError, match="queries must hold at least one row"):
        build_index("exact", head, hidden[:0])


def test_recall_counts_equal_scores_as_found():
    expected = wm.TopK(ids=torch.tensor([[1, 2]]), scores=torch.tensor([[2.0, 1.0]]))
    same = wm.TopK(ids=torch.tensor([[1, 9]]), scores=torch.tensor([[2.0, 1.0]]))
    half = wm.TopK(ids=torch.tensor([[1, 9]]), scores=torch.tensor([[2.0, 0.5]]))
    none = wm.TopK(ids=torch.tensor([[-1, -1]]), scores=torch.full((1, 2), -torch.inf))
    assert [recall_of(found, expected) for found in (same, half, none)] == [1, 0.5, 0]
