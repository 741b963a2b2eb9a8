"""Items come into an index and leave it without a rebuild: exact search says what is right."""

import pytest
import torch

import widemax as wm
from tests.index.test_index import DIMENSION, clustered_head, dtype_of, some_hidden
from widemax.index import (
    ExactIndex,
    HNSWIndex,
    IVF8Index,
    IVFIndex,
    build_index,
    load_index,
    save_index,
)
from widemax.index.building import kind_for
from widemax.index.recall import ExactAnswer, recall_of

OLD, NEW = 3000, 400
KINDS = {
    "exact": ExactIndex,
    "hnsw": lambda head: HNSWIndex(head, search_breadth=256),
    "ivf": lambda head: IVFIndex(head, lists=32, probes=16),
    "ivf8": lambda head: IVF8Index(head, lists=32, probes=16),
}
SCORERS = {"dot": {}, "all": {"similarity": "cosine", "bias": True, "temperature": 0.2}}


def parts(scoring):
    """Return a head of the first classes, the rest to be added, and a head of all of them."""
    whole = clustered_head(num_classes=OLD + NEW, **SCORERS[scoring])
    scorer = wm.TableScorer(OLD, DIMENSION, **SCORERS[scoring])
    scorer.weight.data.copy_(whole.scorer.weight[:OLD])
    biases = None
    if scorer.bias is not None:
        scorer.bias.data.copy_(whole.scorer.bias[:OLD])
        biases = whole.scorer.bias[OLD:]
    return wm.FullHead(scorer).requires_grad_(False), whole.scorer.weight[OLD:], biases, whole


@pytest.mark.parametrize("scoring", SCORERS)
@pytest.mark.parametrize("kind", KINDS)
def test_changed_indexes_find_what_exact_search_does(kind, scoring, tmp_path):
    head, vectors, biases, whole = parts(scoring)
    index, hidden = KINDS[kind](head), some_hidden(100, dtype=dtype_of(head))
    half = NEW // 2
    cut = (None, None) if biases is None else (biases[:half], biases[half:])
    assert index.add(vectors[:half], cut[0]).tolist() == list(range(OLD, OLD + half))
    assert index.add(vectors[half:], cut[1]).tolist() == list(range(OLD + half, OLD + NEW))
    found = index.search(hidden, 10)
    assert recall_of(found, whole.topk(hidden, 10)) >= (1 if kind == "exact" else 0.9)
    assert (found.ids >= OLD).any()
    torch.testing.assert_close(found.scores, whole.scores(hidden, found.ids), rtol=1e-5, atol=1e-4)

    # The best of all queries go, old ones and new ones.
    gone = whole.topk(hidden, 5).ids.unique()
    index.remove(gone)
    index.remove(gone[:3])
    assert torch.equal(index.removed, gone)
    exclude = gone.expand(len(hidden), -1)
    expected = whole.topk(hidden, 10, exclude=exclude)
    save_index(tmp_path, index)
    for each in (index, load_index(tmp_path, head)):
        found = each.search(hidden, 10)
        assert not torch.isin(found.ids, gone).any()
        assert (found.ids >= 0).all()
        assert recall_of(found, expected) >= (1 if kind == "exact" else 0.9)
    loaded = load_index(tmp_path, head)
    assert torch.equal(loaded.search(hidden, 10).ids, index.search(hidden, 10).ids)
    loaded.restore(gone)
    assert recall_of(loaded.search(hidden, 10), whole.topk(hidden, 10)) >= 0.9
    assert loaded.add(vectors[:1], None if biases is None else biases[:1]).item() == OLD + NEW


@pytest.mark.parametrize("kind", KINDS)
def test_longer_vectors_than_any_before_are_found(kind):
    head = clustered_head()
    index, hidden = KINDS[kind](head), some_hidden(20)
    longest = head.scorer.weight.norm(dim=1).max()
    new = torch.nn.functional.normalize(hidden, dim=1) * longest * 10
    ids = index.add(new)
    assert torch.equal(index.search(hidden, 1).ids[:, 0], ids)


@pytest.mark.parametrize("kind", KINDS)
def test_all_but_a_few_removed(kind):
    head, hidden = clustered_head(), some_hidden(5)
    index = KINDS[kind](head)
    index.remove(torch.arange(OLD - 4))
    found = index.search(hidden, 6)
    assert torch.equal(found.ids[:, 4:], torch.full((5, 2), -1))
    assert sorted(found.ids[0, :4].tolist()) == list(range(OLD - 4, OLD))


def test_what_cannot_be_added_or_removed():
    index = ExactIndex(clustered_head(bias=True))
    row, bias = torch.zeros(1, DIMENSION), torch.zeros(1)
    with pytest.raises(ValueError, match="biases must be given"):
        index.add(row)
    with pytest.raises(ValueError, match=r"vectors must be floating point \[N, 12\]"):
        index.add(torch.zeros(1, DIMENSION + 1), bias)
    with pytest.raises(ValueError, match=r"biases must be floating point \[N\]"):
        index.add(row, torch.zeros(2))
    with pytest.raises(ValueError, match="vectors must be finite, got nan"):
        index.add(row / 0, bias)
    with pytest.raises(ValueError, match="biases are not of the head"):
        ExactIndex(clustered_head()).add(row, bias)
    for wrong in (-1, OLD):
        with pytest.raises(ValueError, match=f"ids must lie between 0 and 2,999, got {wrong:,}"):
            index.remove(torch.tensor([wrong]))
    with pytest.raises(ValueError, match="ids must be whole numbers"):
        index.remove(torch.tensor([1.0]))
    assert index.num_classes == OLD
    assert not len(index.removed)


def test_a_changed_file_of_changes_is_refused(tmp_path):
    head = clustered_head()
    index = ExactIndex(head)
    index.remove(torch.tensor([3]))
    save_index(tmp_path, index)
    (path,) = tmp_path.glob("index-*.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="build the index again"):
        load_index(tmp_path, head)
    save_index(tmp_path, ExactIndex(head))
    assert not list(tmp_path.glob("index-*.safetensors"))


def test_the_kind_goes_by_size_and_memory():
    assert kind_for(49_999, 64, 2**40) == "exact"
    needed = 10**6 * (66 * 4 + 8)
    assert kind_for(10**6, 64, needed) == "ivf"
    assert kind_for(10**6, 64, needed - 1) == "ivf8"
    assert kind_for(10**6, 64, 10**6 * 74 - 1) == "exact"


def test_the_breadth_is_no_larger_than_it_must_be():
    head, hidden = clustered_head(), some_hidden(200)
    index, report = build_index("ivf", head, hidden, recall=0.95, lists=100, probes=1)
    assert report.recall >= 0.95
    assert index.breadth > 1
    doubled = 1
    while doubled < index.breadth:
        doubled *= 2
    assert index.breadth <= doubled
    index.breadth = max(1, index.breadth // 2)
    again = build_index("exact", head, hidden)[0].search(hidden, 10)
    assert recall_of(index.search(hidden, 10), again) < 0.95


def test_a_breadth_that_begins_too_large_shrinks():
    head, hidden = clustered_head(), some_hidden(200)
    index, report = build_index("ivf", head, hidden, recall=0.5, lists=100, probes=64)
    assert report.recall >= 0.5
    assert index.breadth < 64
    assert report.recall == ExactAnswer(ExactIndex(head), hidden, 10).compare(index).recall
