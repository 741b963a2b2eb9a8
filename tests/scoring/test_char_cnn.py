"""Class vectors from spellings: against a plain loop, as a table, cached, and for unseen words."""

import copy
import time

import pytest
import torch

from widemax.contracts.head import check_head
from widemax.heads import FullHead, SampledHead
from widemax.sampling import UniformSampler
from widemax.scoring import TableScorer, char_cnn
from widemax.scoring.char_cnn import CharCNNScorer

D = 5
WORDS = ["", "a", "walk", "walked", "walking", "talked", "straße", "日本語", "a", "x" * 40]


def make(words=WORDS, dimension=D, **options):
    torch.manual_seed(0)
    settings = {
        "char_dimension": 3,
        "widths": (1, 3, 4),
        "filters": 6,
        "correction_dimension": 2,
        **options,
    }
    scorer = CharCNNScorer(words, dimension, **settings)
    if scorer.correction is not None:
        torch.nn.init.normal_(scorer.correction.weight)
    return scorer.double()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("correction_dimension", [0, 2])
def test_heads_keep_their_contract(bias, correction_dimension):
    scorer = make(bias=bias, correction_dimension=correction_dimension)
    check_head(FullHead(scorer), dimension=D)
    sampled = SampledHead(scorer, UniformSampler(len(WORDS), per_example=True), num_samples=4)
    check_head(sampled, dimension=D)


def by_hand(scorer, word):
    """One spelling at a time, padded only where it is shorter than the window."""
    marked = [256, *word.encode(), 257]
    pooled = []
    for width, convolution in zip(scorer.widths, scorer.convolutions, strict=True):
        ids = marked + [258] * (width - len(marked))
        vectors = scorer.character_vectors.weight[ids]
        windows = [vectors[i : i + width] for i in range(len(ids) - width + 1)]
        outputs = [
            torch.einsum("ocw,wc->o", convolution.weight, window) + convolution.bias
            for window in windows
        ]
        pooled.append(torch.stack(outputs).amax(0).clamp(min=0))
    return scorer.projection.weight @ torch.cat(pooled)


def test_vectors_equal_a_plain_loop():
    scorer = make()
    spelled = torch.stack([by_hand(scorer, word) for word in WORDS])
    torch.testing.assert_close(scorer.vectors_of(WORDS), spelled)
    corrections = scorer.correction.weight @ scorer.correction_projection.weight.T
    torch.testing.assert_close(scorer.class_vectors(), spelled + corrections)
    ids = torch.tensor([[3, 3, 8], [0, 9, 3]])
    torch.testing.assert_close(scorer.class_vectors(ids), (spelled + corrections)[ids])


def test_a_vector_does_not_depend_on_the_words_beside_it():
    scorer = make(correction_dimension=0)
    alone = torch.cat([scorer.vectors_of([word]) for word in WORDS])
    torch.testing.assert_close(alone, scorer.class_vectors())


def test_with_a_silent_cnn_and_a_full_correction_it_is_a_table():
    scorer = make(correction_dimension=D, bias=True)
    with torch.no_grad():
        scorer.projection.weight.zero_()
        scorer.correction_projection.weight.copy_(torch.eye(D))
    table = TableScorer(len(WORDS), D, bias=True).double()
    table.weight.data.copy_(scorer.correction.weight)
    hidden, targets = torch.randn(6, D, dtype=torch.float64), torch.arange(6)
    for ids in (None, torch.tensor([1, 1, 5]), torch.arange(6)[:, None].expand(6, 2)):
        torch.testing.assert_close(scorer(hidden, ids), table(hidden, ids))
    FullHead(scorer)(hidden, targets).sum().backward()
    FullHead(table)(hidden, targets).sum().backward()
    torch.testing.assert_close(scorer.correction.weight.grad, table.weight.grad)
    torch.testing.assert_close(scorer.bias.grad, table.bias.grad)


def test_gradients_of_all_parameters():
    scorer = make(WORDS[:6], bias=True)
    hidden = torch.randn(3, D, dtype=torch.float64)
    names, values = zip(*scorer.named_parameters(), strict=True)

    def scores(*values):
        arguments = (hidden, torch.tensor([0, 2, 2, 5]))
        return torch.func.functional_call(scorer, dict(zip(names, values, strict=True)), arguments)

    values = [value.detach().requires_grad_() for value in values]
    # The vector of the padding is held at 0, so that its gradient is not that of the formula.
    skipped = names.index("character_vectors.weight")
    frozen = values[skipped].detach()
    rest = [value for index, value in enumerate(values) if index != skipped]
    assert torch.autograd.gradcheck(
        lambda *rest: scores(*rest[:skipped], frozen, *rest[skipped:]), rest
    )


@pytest.mark.parametrize("ids", [None, torch.tensor([9, 0, 3, 3])])
def test_blocks_and_the_whole_give_the_same_values_and_gradients(ids, monkeypatch):
    results = []
    for numbers in (2**23, 1):
        monkeypatch.setattr(char_cnn, "BLOCK_VALUES", numbers)
        scorer = make()
        vectors = scorer.class_vectors(ids)
        vectors.square().sum().backward()
        results.append([vectors, *(parameter.grad for parameter in scorer.parameters())])
        results[-1].append(scorer.eval().class_vectors().detach())
        with torch.no_grad():
            torch.testing.assert_close(scorer.class_vectors(), results[-1][-1])
    for whole, blocks in zip(*results, strict=True):
        torch.testing.assert_close(whole, blocks)


def count_runs(scorer, monkeypatch):
    runs = []
    plain = scorer._convolved
    monkeypatch.setattr(scorer, "_convolved", lambda *block: runs.append(1) or plain(*block))
    return runs


@torch.no_grad()
def test_vectors_are_computed_once_in_eval_mode(monkeypatch):
    scorer = make().eval()
    runs = count_runs(scorer, monkeypatch)
    hidden = torch.randn(2, D, dtype=torch.float64)
    first = scorer(hidden)
    torch.testing.assert_close(scorer(hidden, torch.tensor([4, 4, 0])), first[:, [4, 4, 0]])
    assert len(runs) == 1
    assert scorer.class_vectors() is scorer.class_vectors()
    with torch.enable_grad():
        assert scorer.class_vectors().requires_grad
    assert len(runs) == 2, "gradients need the CNN itself"


@torch.no_grad()
def test_kept_vectors_are_dropped_when_anything_changes(monkeypatch):
    scorer = make().eval()
    stale = scorer.class_vectors().clone()

    def fresh():
        vectors = scorer.class_vectors()
        torch.testing.assert_close(vectors, copy.deepcopy(scorer).train().class_vectors())
        return vectors

    for name, parameter in scorer.named_parameters():
        parameter.add_(0.1)
        assert not torch.equal(fresh(), stale), name
        stale = scorer.class_vectors().clone()
    other = CharCNNScorer(
        WORDS, D, char_dimension=3, widths=(1, 3, 4), filters=6, correction_dimension=2
    )
    scorer.load_state_dict(other.state_dict())
    assert not torch.equal(fresh(), stale)
    optimiser = torch.optim.SGD(scorer.parameters(), lr=0.1)
    stale = scorer.class_vectors().clone()
    with torch.enable_grad():
        scorer(torch.ones(1, D, dtype=torch.float64)).sum().backward()
    optimiser.step()
    assert not torch.equal(fresh(), stale)
    assert scorer.float().class_vectors().dtype == torch.float32
    runs = count_runs(scorer, monkeypatch)
    scorer.train()
    scorer.eval()
    scorer.class_vectors()
    assert len(runs) == 1


def test_state_round_trip_carries_the_spellings():
    scorer = make(bias=True)
    fresh = make([word[::-1] for word in WORDS], bias=True)
    fresh.load_state_dict(scorer.state_dict())
    torch.testing.assert_close(fresh.class_vectors(), scorer.class_vectors())
    with pytest.raises(RuntimeError, match="characters"):
        make(["short"] * len(WORDS)).load_state_dict(make().state_dict())


def test_an_unseen_word_is_scored_from_its_spelling():
    """Two senses: past tense or not. Words never seen must fall on their side."""
    stems = ["walk", "talk", "jump", "play", "look", "turn", "help", "open", "wait", "call"]
    words = [*stems, *(stem + "ed" for stem in stems)]
    torch.manual_seed(0)
    scorer = CharCNNScorer(words, 2, widths=(2, 3), filters=16, correction_dimension=0)
    head = FullHead(scorer)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.01)
    hidden = torch.eye(2).repeat_interleave(10, 0)
    for _ in range(60):
        optimiser.zero_grad()
        head(hidden, torch.arange(20)).mean().backward()
        optimiser.step()
    with torch.no_grad():
        unseen = scorer.vectors_of(["start", "cook", "started", "cooked"])
    past = unseen[:, 1] - unseen[:, 0]
    assert past[:2].max() < past[2:].min()
    assert past[2:].min() > 0


def test_only_the_classes_asked_for_are_computed(monkeypatch):
    scorer = make()
    sizes = []
    plain = scorer._convolved
    monkeypatch.setattr(
        scorer, "_convolved", lambda *block: sizes.append(len(block[0])) or plain(*block)
    )
    scorer.class_vectors(torch.tensor([[3, 3, 4], [4, 3, 3]]))
    assert sizes == [2]
    assert scorer.class_vectors(torch.empty(0, dtype=torch.int64)).shape == (0, D)
    assert scorer.class_vectors(torch.empty((4, 0), dtype=torch.int64)).shape == (4, 0, D)


def test_half_precision_and_one_class():
    scorer = make(["only"]).bfloat16()
    losses = FullHead(scorer)(torch.randn(3, D).bfloat16(), torch.zeros(3).long())
    assert losses.tolist() == pytest.approx([0.0] * 3, abs=1e-2)


@pytest.mark.parametrize(
    ("words", "options", "named"),
    [
        ("walk", {}, "sequence of strings"),
        ([], {}, "num_classes"),
        (["a", 5], {}, r"spellings\[1\]"),
        (["a", "\ud800"], {}, r"spellings\[1\] is not valid Unicode"),
        (["a", "b" * 65], {}, r"spellings\[1\] must have at most max_length = 64"),
        (["ß" * 33], {}, "got 66"),
        (["a"], {"dimension": 0}, "dimension"),
        (["a"], {"char_dimension": 0}, "char_dimension"),
        (["a"], {"widths": ()}, "widths"),
        (["a"], {"widths": (3, 0)}, r"widths\[1\]"),
        (["a"], {"widths": (2**40,)}, r"widths\[0\]"),
        (["a"], {"filters": 0}, "filters"),
        (["a"], {"filters": 2.5}, "filters"),
        (["a"], {"correction_dimension": -1}, "correction_dimension"),
        (["a"], {"max_length": 2**62}, "max_length"),
    ],
)
def test_invalid_arguments(words, options, named):
    with pytest.raises(ValueError, match=named):
        make(words, **options)


def test_a_very_long_spelling_is_refused_before_it_is_padded():
    start = time.perf_counter()
    with pytest.raises(ValueError, match="max_length"):
        make(["a"] * 10_000 + ["b" * 10_000_000])
    with pytest.raises(ValueError, match="max_length"):
        make().vectors_of(["b" * 10_000_000])
    assert time.perf_counter() - start < 5
