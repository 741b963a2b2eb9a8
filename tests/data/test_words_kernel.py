"""The numbering of words against a dictionary, whatever the size of its buffers."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.data.reading.tokens import LineError, WhiteSpace
from widemax.kernels.data.words import (
    KEYS,
    PLACE,
    WORDS,
    empty_slots,
    keep_classes,
    moved_slots,
    number_words,
)

# Equal beginnings, lengths around 8 bytes, and every kind of white space.
PIECES = st.sampled_from(
    [b"a", b"b", b"abcdefgh", b"abcdefgi", b"\xc3\xa9", b"\xff", b"\x01", b"\x1f"]
)
BLANKS = st.sampled_from([b" ", b"\t", b"\n", b"\r", b"\v", b"\f", b" \n"])
TEXTS = st.lists(PIECES | PIECES | BLANKS, max_size=60).map(b"".join)


def number_words_reference(data):
    """Return codes, lengths of ended lines, words since then, and the words, in plain Python."""
    codes, lengths, keys = [], [], {}
    *ended, rest = data.split(b"\n")
    for line in ended:
        lengths.append(len(line.split()))
    for word in data.split():
        codes.append(keys.setdefault(word, len(keys)))
    return codes, lengths, len(rest.split()), list(keys)


def numbered(data, bits, num_ends, num_letters, longest=10**6):
    slots, ends = empty_slots(bits), np.zeros(num_ends, np.int64)
    letters = np.empty(num_letters, np.uint8)
    codes, lengths = np.empty(len(data) // 2 + 1, np.int32), np.empty(data.count(b"\n"), np.int64)
    progress = np.zeros(6, np.int64)
    array = np.frombuffer(data, np.uint8)
    number_words(array, longest, slots, ends, letters, codes, lengths, progress)
    words = [
        letters[start : end - 1].tobytes() for start, end in pairwise(ends[: progress[KEYS] + 1])
    ]
    return codes[: progress[WORDS]].tolist(), lengths.tolist(), int(progress[3]), words, progress


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_codes_lines_and_words_are_those_of_a_dictionary(data):
    assert numbered(data, 8, 70, 2000)[:4] == number_words_reference(data)


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(1, 4), st.integers(1, 8), st.integers(0, 40), st.integers(1, 20))
def test_it_stops_at_the_first_word_that_does_not_fit(data, bits, num_ends, num_letters, longest):
    codes, _, _, words, progress = numbered(data, bits, num_ends, num_letters, longest)
    place = int(progress[PLACE])
    expected, _, _, keys = number_words_reference(data[:place])
    assert codes == expected
    assert words == keys
    if place == len(data):
        return
    word = data[place:].split()[0]
    assert data[place:].startswith(word)
    if len(word) <= longest:
        full = 2 * len(keys) >= 2**bits - 1 or len(keys) + 1 >= num_ends
        letters = sum(len(key) + 1 for key in [*keys, word])
        assert word not in keys
        assert full or letters > num_letters


def test_a_larger_table_finds_the_same_words():
    words = [f"{number:x}" * (number % 5 + 1) for number in range(100)]
    data = np.frombuffer(" ".join(words).encode(), np.uint8)
    slots, ends, letters = empty_slots(8), np.zeros(200, np.int64), np.empty(5000, np.uint8)
    codes, lengths = np.empty(100, np.int32), np.empty(0, np.int64)
    progress = np.zeros(6, np.int64)
    number_words(data, 99, slots, ends, letters, codes, lengths, progress)
    first = codes.copy()
    slots = moved_slots(slots, 11)
    progress[[PLACE, WORDS]] = 0
    number_words(data, 99, slots, ends, letters, codes, lengths, progress)
    assert codes.tolist() == first.tolist()
    assert progress[KEYS] == len(set(words))
    assert slots.shape == (2**11, 2)


def test_equal_hashes_do_not_make_equal_words():
    """Two long words whose keys in the table are made equal stay two words."""
    data = b"abcdefghij abcdefghik"
    slots, ends, letters = empty_slots(2), np.zeros(8, np.int64), np.empty(99, np.uint8)
    codes, lengths = np.empty(9, np.int32), np.empty(0, np.int64)
    first, second = (np.frombuffer(word, np.uint8) for word in data.split())
    progress = np.zeros(6, np.int64)
    number_words(second, 99, slots, ends, letters, codes, lengths, progress)
    letters[: len(first)] = first  # the entry now has the hash of one and the letters of the other
    progress[[PLACE, WORDS]] = 0
    number_words(second, 99, slots, ends, letters, codes, lengths, progress)
    assert codes[0] == 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=8), st.integers(1, 4), st.data())
def test_classes_without_gaps(sequences, least, data):
    class_of = data.draw(st.lists(st.integers(-1, 9), min_size=6, max_size=6))
    left = [[class_of[code] for code in codes if class_of[code] >= 0] for codes in sequences]
    values, kept = keep_classes(
        np.array([code for codes in sequences for code in codes], np.int32),
        np.array([len(codes) for codes in sequences], np.int64),
        np.array(class_of),
        least,
    )
    assert kept.tolist() == [len(row) if len(row) >= least else -1 for row in left]
    assert values.tolist() == [value for row in left if len(row) >= least for value in row]


def test_the_encoder_grows_with_its_words():
    rng = np.random.default_rng(0)
    words = [f"{number:x}" * 3 for number in rng.integers(0, 10**6, 200_000)]
    encoder = WhiteSpace(longest=100)
    codes = []
    for start in range(0, len(words), 50_000):
        block = " ".join(words[start : start + 50_000]).encode()
        codes += encoder.encode(block)[0].tolist()
    known = {}
    assert codes == [known.setdefault(word, len(known)) for word in words]
    assert encoder.keys.to_list() == list(known)
    assert len(known) > 2**17  # so that it grew more than once


def test_an_encoder_without_words_has_no_keys():
    encoder = WhiteSpace(longest=5)
    assert encoder.encode(b" \n")[0].tolist() == []
    assert encoder.keys.to_list() == []
    with pytest.raises(LineError, match="more than 5 bytes") as caught:
        encoder.encode(b"rum\n\ncoffee\n")
    assert caught.value.line == 2
