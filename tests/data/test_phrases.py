"""Phrases against a plain word2phrase, and against gensim where the definitions agree."""

from collections import Counter
from itertools import pairwise

import pytest
from gensim.models.phrases import Phrases
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.data.phrases import join_phrases
from widemax.data.reading.text import encode_text
from widemax.data.sample_corpus import python_reference
from widemax.data.sequences import Sequences
from widemax.vocabulary import Vocabulary

SENTENCES = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "d", "a_b", "?"]), max_size=12),
    min_size=1,
    max_size=8,
).filter(any)


def join_phrases_reference(sentences, threshold, delta, passes, alone=()):
    """Return the sentences with phrases joined, word by word."""
    for _ in range(passes):
        words = Counter(word for sentence in sentences for word in sentence)
        pairs = Counter(pair for sentence in sentences for pair in pairwise(sentence))
        total = words.total()

        def is_phrase(a, b, words=words, pairs=pairs, total=total):
            if {a, b} & set(alone):
                return False
            return (pairs[a, b] - delta) / words[a] / words[b] * total > threshold

        joined = []
        for sentence in sentences:
            place, left = 0, []
            while place < len(sentence):
                pair = sentence[place : place + 2]
                long = len(pair) == 2 and is_phrase(*pair)
                left.append("_".join(pair) if long else sentence[place])
                place += 2 if long else 1
            joined.append(left)
        sentences = joined
    return sentences


def encoded(sentences, unknown=None):
    keys = [word for sentence in sentences for word in sentence]
    vocabulary = Vocabulary.count(keys, unknown=unknown)
    lists = [vocabulary.encode(sentence).tolist() for sentence in sentences]
    return Sequences.from_lists(lists), vocabulary


def decoded(sequences, vocabulary):
    return [vocabulary.decode(sequences.sequence(index)) for index in range(len(sequences))]


@settings(max_examples=150, deadline=None)
@given(
    SENTENCES,
    st.sampled_from([0.1, 0.5, 1.0, 2.0]),
    st.sampled_from([0, 0.5, 1, 2]),
    st.integers(1, 3),
    st.sampled_from([None, "?"]),
    st.booleans(),
)
def test_joined_as_word_by_word(sentences, threshold, delta, passes, unknown, apart):
    there = {word for sentence in sentences for word in sentence}
    alone = ["c"] if apart and "c" in there else []
    sequences, vocabulary = join_phrases(
        *encoded(sentences, unknown),
        threshold=threshold, delta=delta, passes=passes, apart=alone,
    )  # fmt: skip
    not_joined = alone + ([unknown] if unknown else [])
    expected = join_phrases_reference(sentences, threshold, delta, passes, not_joined)
    assert decoded(sequences, vocabulary) == expected
    counts = Counter(word for sentence in expected for word in sentence)
    if unknown:
        counts.setdefault(unknown, 0)
    assert dict(vocabulary.table.iter_rows()) == dict(counts)
    assert vocabulary.unknown == unknown
    assert vocabulary.ordered


@pytest.mark.parametrize("threshold", [1.0, 10.0])
def test_gensim_finds_the_same_phrases(threshold):
    corpus = encode_text(python_reference()[:600_000])
    sentences = decoded(*corpus)
    total = sum(map(len, sentences))
    # Theirs counts a word "a_b" and the pair a, b as one: this mark is in no word.
    peer = Phrases(sentences, min_count=5, threshold=threshold, scoring="default", delimiter="␣")
    # Theirs scales with the different words and pairs, ours, as word2phrase, with all words.
    own_threshold = threshold * total / len(peer.vocab)
    sequences, vocabulary = join_phrases(*corpus, threshold=own_threshold, delta=5, separator="␣")
    expected = [peer[sentence] for sentence in sentences]
    assert decoded(sequences, vocabulary) == expected
    assert len(sequences.values) < total - 100


def test_names_of_sequences_stay():
    sequences, vocabulary = encoded([["a", "b"], [], ["a", "b"]])
    named = Sequences(sequences.values, sequences.offsets, Vocabulary.count(["x", "y", "z"]).keys)
    joined, vocabulary = join_phrases(named, vocabulary, threshold=0.1, delta=0, separator=" ")
    assert joined.names.to_list() == ["x", "y", "z"]
    assert decoded(joined, vocabulary) == [["a b"], [], ["a b"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.0}, "threshold must be a finite number above 0"),
        ({"threshold": float("nan")}, "threshold must be a finite number above 0"),
        ({"delta": -1.0}, "delta must be a finite number of at least 0"),
        ({"passes": 0}, "passes must be between 1 and 16"),
        ({"separator": ""}, "separator must be a string of at least one letter"),
        ({"apart": ["x"]}, "apart must list keys of the vocabulary, got .*x"),
        ({"apart": "a"}, "apart must list keys"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        join_phrases(*encoded([["a", "b"]]), **options)


def test_sequences_that_have_no_words():
    sequences, vocabulary = encoded([["a", "b"]])
    with pytest.raises(ValueError, match="vocabulary must hold words, got whole numbers"):
        join_phrases(sequences, Vocabulary.count([1, 2]))
    with pytest.raises(ValueError, match="sequences must lie between 0 and 0"):
        join_phrases(sequences, Vocabulary.count(["a"]))
    with pytest.raises(ValueError, match="sequences must hold at least one word"):
        join_phrases(Sequences.from_lists([[]]), vocabulary)
