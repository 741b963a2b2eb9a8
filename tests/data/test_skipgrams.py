"""Skip-gram pairs: the loop of Keras by hand, and what is refused."""

import math

import pytest
import torch

import widemax as wm
from widemax.data import skipgrams, zipf_sampling_table

SENTENCE = [1, 2, 3, 4, 5, 1, 6, 7]
"""The wide road shimmered in the hot sun; 0 is padding."""


def pairs_by_hand(sequence, window, *, kept=lambda place: True):
    """The two loops of Keras' function, without its random parts."""
    found = []
    for place, word in enumerate(sequence):
        if word == 0 or not kept(place):
            continue
        for other in range(max(0, place - window), min(len(sequence), place + window + 1)):
            if other != place and sequence[other] != 0:
                found.append([word, sequence[other]])
    return found


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("window", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("sequence", [SENTENCE, [0, 3, 0, 0, 2, 2, 0], [5], [0, 0], []])
def test_pairs_equal_two_loops_by_hand(sequence, window):
    pairs, labels = skipgrams(sequence, 8, window=window, negatives=0, shuffle=False)
    assert pairs.tolist() == pairs_by_hand(sequence, window)
    assert labels.tolist() == [1] * len(pairs)


def test_the_sentence_of_the_tutorial_has_26_pairs():
    pairs, labels = skipgrams(SENTENCE, 8, window=2, negatives=0.0)
    assert len(pairs) == 26
    assert sorted(pairs.tolist()) == sorted(pairs_by_hand(SENTENCE, 2))
    assert pairs.dtype == labels.dtype == torch.int64


@pytest.mark.parametrize(("negatives", "count"), [(0, 0), (0.25, 6), (1.0, 26), (4, 104)])
def test_negatives_are_drawn_for_the_words_of_the_pairs(negatives, count):
    pairs, labels = skipgrams(
        SENTENCE, 8, window=2, negatives=negatives, shuffle=False, generator=seeded()
    )
    assert labels.tolist() == [1] * 26 + [0] * count
    assert pairs[:26].tolist() == pairs_by_hand(SENTENCE, 2)
    if negatives == 4:
        # Round and round over the words of the pairs: four times each.
        firsts = torch.bincount(pairs[26:, 0], minlength=8)
        assert torch.equal(firsts, 4 * torch.bincount(pairs[:26, 0], minlength=8))


def test_negatives_are_uniform_over_all_but_reserved_ids():
    _, labels = skipgrams(SENTENCE, 8, negatives=2000, shuffle=False, generator=seeded())
    pairs, _ = skipgrams(SENTENCE, 8, negatives=2000, shuffle=False, generator=seeded())
    drawn = torch.bincount(pairs[labels == 0, 1], minlength=8).double()
    assert drawn[0] == 0, "0 is padding"
    expected = drawn.sum() / 7
    statistic = float(((drawn[1:] - expected) ** 2 / expected).sum())
    assert statistic < 22.46, "chi-squared of 6 degrees, one in a thousand"


def test_shuffling_keeps_labels_with_their_pairs():
    plain = skipgrams(SENTENCE, 8, window=1, negatives=1, shuffle=False, generator=seeded())
    mixed = skipgrams(SENTENCE, 8, window=1, negatives=1, generator=seeded())
    rows = [sorted(torch.cat([p, y[:, None]], 1).tolist()) for p, y in (plain, mixed)]
    assert rows[0] == rows[1]
    assert plain[0].tolist() != mixed[0].tolist()


def test_the_same_seed_gives_the_same_pairs():
    first, again, other = (
        skipgrams(SENTENCE, 8, generator=seeded(seed))[0].tolist() for seed in (1, 1, 2)
    )
    assert first == again != other


def test_one_hot_labels_are_those_of_keras():
    _, labels = skipgrams([1, 2], 3, window=1, shuffle=False, one_hot=True, generator=seeded())
    assert labels.tolist() == [[0, 1], [0, 1], [1, 0], [1, 0]]


def test_the_sampling_table_thins_the_first_of_a_pair_only():
    table = [0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    pairs, _ = skipgrams(SENTENCE, 8, window=2, negatives=0, shuffle=False, sampling_table=table)
    assert pairs.tolist() == pairs_by_hand(SENTENCE, 2, kept=lambda place: SENTENCE[place] != 2)
    assert (pairs[:, 0] != 2).all()
    assert (pairs[:, 1] == 2).any()


def test_a_sampling_table_keeps_words_as_often_as_it_says():
    sequence = [1, 2] * 20_000
    pairs, _ = skipgrams(
        sequence, 3, window=1, negatives=0, sampling_table=[0.0, 0.3, 1.0], generator=seeded()
    )
    share = float((pairs[:, 0] == 1).sum()) / (2 * 20_000)
    assert abs(share - 0.3) < 0.02
    assert int((pairs[:, 0] == 2).sum()) == 2 * 20_000 - 1


def test_class_0_is_a_word_where_no_id_is_reserved():
    vocabulary = wm.Vocabulary.count(["the", "sea", "the"])
    ids = vocabulary.encode(["the", "sea"])
    assert skipgrams(ids, 2, negatives=0)[0].tolist() == []
    pairs, labels = skipgrams(ids, 2, negatives=200, num_reserved_ids=0, generator=seeded())
    assert sorted(pairs[labels == 1].tolist()) == [[0, 1], [1, 0]]
    assert set(pairs[labels == 0, 1].tolist()) == {0, 1}


def test_padding_of_the_house_is_left_out():
    pairs, _ = skipgrams(torch.tensor([3, -1, 2]), 4, window=2, negatives=0, shuffle=False)
    assert pairs.tolist() == [[3, 2], [2, 3]]


def test_the_zipf_table_is_that_of_keras():
    rank = [1, *range(1, 1000)]
    inverse = [r * (math.log(r) + 0.577) + 0.5 - 1.0 / (12.0 * r) for r in rank]
    wanted = [min(1.0, 1e-3 * f / math.sqrt(1e-3 * f)) for f in inverse]
    table = zipf_sampling_table(1000, threshold=1e-3)
    torch.testing.assert_close(table, torch.tensor(wanted, dtype=torch.float64))
    assert table[-1] == 1.0 > table[1] == table[0]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1, 8], 8), {}, "sequence must lie between 0 and 7"),
        (([1, -2], 8), {}, "sequence must lie"),
        (([[1], [2]], 8), {}, "sequence must have one dimension"),
        (([1.5], 8), {}, "sequence must hold whole numbers"),
        ((["a"], 8), {}, "sequence must hold whole numbers"),
        (([1], 0), {}, "num_classes must be between"),
        (([1], 8), {"window": 0}, "window must be between"),
        (([1], 8), {"window": 10**9}, "window must be between"),
        (([1] * 10**6, 8), {"window": 60_000}, r"len\(sequence\)"),
        (([1], 8), {"negatives": -1}, "negatives must be a finite"),
        (([1], 8), {"negatives": math.nan}, "negatives must be a finite"),
        (([1, 2], 8), {"negatives": 3590707793247644003}, "negatives · pairs"),
        (([1], 8), {"num_reserved_ids": 8}, "num_reserved_ids"),
        (([1], 3), {"sampling_table": [1.0, 1.0]}, "one probability a class, 3"),
        (([1], 2), {"sampling_table": [1.0, math.nan]}, "for class 1"),
        (([1], 2), {"sampling_table": [1.0, 1.5]}, "for class 1"),
    ],
)
def test_wrong_arguments_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        skipgrams(*arguments, **options)


@pytest.mark.parametrize(("size", "options"), [(0, {}), (2**60, {}), (3, {"threshold": 0})])
def test_a_wrong_zipf_table_is_refused(size, options):
    with pytest.raises(ValueError, match=r"num_classes|threshold"):
        zipf_sampling_table(size, **options)
