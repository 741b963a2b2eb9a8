"""ARPA files: a plain reader takes our probabilities from ours, and nothing breaks our own."""

import math
from itertools import product

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzzing import FUZZ
from tests.ngrams.test_ngrams import KINDS, every_context, fit, random_sentences
from widemax.contracts.distribution import check_distribution
from widemax.data import Sequences
from widemax.ngrams import NGramModel
from widemax.vocabulary import Vocabulary

WORDS = ["<eos>", "tea", "naïve", "東京", "a\u00a0b", '"']


def vocabulary(words=WORDS):
    return Vocabulary.from_counts(words, [9] * len(words))


class PlainReader:
    """Back-off as every ARPA reader does it, in dictionaries of words and powers of ten."""

    def __init__(self, text):
        self.probs, self.backoffs, self.stated = {}, {}, {}
        length = 0
        for line in text.split("\n"):
            if line.startswith("ngram "):
                n, count = line.removeprefix("ngram ").split("=")
                self.stated[int(n)] = int(count)
            elif line.endswith("-grams:"):
                length = int(line[1:].split("-")[0])
            elif "\t" in line:
                prob, words, *backoff = line.split("\t")
                gram = tuple(words.split(" "))
                assert len(gram) == length
                self.probs[gram] = 10 ** float(prob)
                self.backoffs[gram] = 10 ** float(backoff[0]) if backoff else 1.0

    def prob(self, context, word):
        if (*context, word) in self.probs:
            return self.probs[*context, word]
        return self.backoffs.get(context, 1.0) * self.prob(context[1:], word)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [1, 2, 4])
def test_a_plain_reader_takes_the_same_probabilities(kind, order, tmp_path):
    model = fit(kind, random_sentences(order, 6, 60), 6, order)
    path = tmp_path / "model.arpa"
    model.save_arpa(path, vocabulary(), end="<eos>", begin="<BEGIN>")
    reader = PlainReader(path.read_text())
    names = ["</s>", *WORDS[1:], "<BEGIN>"]
    assert list(reader.stated.values()) == model.num_ngrams
    assert len(reader.probs) == sum(model.num_ngrams)
    rows = every_context(6, order - 1)
    contexts = torch.tensor(rows, dtype=torch.int64).view(len(rows), order - 1)
    found = model.log_probs(contexts).exp()
    read = [[reader.prob(tuple(names[y] for y in row), word) for word in names[:6]] for row in rows]
    torch.testing.assert_close(found, torch.tensor(read).double(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_reader_returns_the_model(kind, tmp_path):
    model = fit(kind, random_sentences(1, 6, 60), 6, 4)
    model.save_arpa(tmp_path / "a", vocabulary(), end="<eos>", unknown="tea")
    again, words = NGramModel.load_arpa(tmp_path / "a")
    assert words.keys.to_list() == ["</s>", "<unk>", *WORDS[2:]]
    assert words.unknown == "<unk>"
    assert torch.equal(again.trie.keys, model.trie.keys)
    test = Sequences.from_lists(random_sentences(2, 6, 30))
    torch.testing.assert_close(
        again.token_log_prob(test), model.token_log_prob(test), rtol=1e-8, atol=1e-8
    )
    again.save_arpa(tmp_path / "b", words)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_interpolated_model_can_still_be_drawn_from(tmp_path):
    model = fit("modified_kneser_ney", random_sentences(1, 6, 60), 6, 3)
    model.save_arpa(tmp_path / "a", vocabulary())
    again, _ = NGramModel.load_arpa(tmp_path / "a")
    drawn, same = (
        m.generate(200, 5, generator=torch.Generator().manual_seed(3)) for m in (model, again)
    )
    assert torch.equal(drawn.values, same.values)


# Katz's back-off: "a b c" has no suffix "b c" here, and p(b | a) is less than back-off would give.
KATZ = """
\\data\\
ngram 1=5
ngram 2=4
ngram 3=2

\\1-grams:
-99 <s> -0.30103
-0.39794 a -0.1
-0.39794\tb\t0.2
-0.69897 c
-99 </s>

\\2-grams:
-0.2 <s> a -0.5
-1.0 a b -0.7
-0.4 b b
-0.3 c a 0.1

\\3-grams:
-0.05 a b c
-0.6 <s> a b

\\end\\
"""


def katz(tmp_path, text=KATZ):
    path = tmp_path / "katz.arpa"
    path.write_text(text)
    return NGramModel.load_arpa(path)


def test_a_file_of_another_program(tmp_path):
    model, words = katz(tmp_path)
    assert (model.order, words.keys.to_list(), words.unknown) == (3, ["a", "b", "c", "</s>"], None)
    for context, word, log10 in [
        ("a b", "c", -0.05),
        ("a b", "b", -0.7 - 0.4),
        ("b b", "c", 0.2 - 0.69897),
        ("a b", "a", -0.7 + 0.2 - 0.39794),
        ("-1 a", "b", -0.6),
        ("-1 a", "c", -0.5 - 0.1 - 0.69897),
        ("-1 -1", "a", -0.2),
        ("-1 -1", "c", -0.30103 - 0.69897),
        ("c c", "c", -0.69897),
        ("a b", "</s>", -math.inf),
    ]:
        ids = [-1 if w == "-1" else words.id_of(w) for w in context.split()]
        found = model.log_prob(torch.tensor([ids]), torch.tensor([words.id_of(word)]))
        assert found.item() / math.log(10) == pytest.approx(log10, abs=1e-9), (context, word)


def test_a_model_that_is_not_interpolated_is_drawn_from_its_whole_distribution(tmp_path):
    model, words = katz(tmp_path)
    context = words.encode(["a", "b"])
    probs = model.log_probs(context[None]).exp()[0]
    drawn = model.generate(
        30_000, 1, context=context, generator=torch.Generator().manual_seed(0)
    ).values
    check_distribution(torch.bincount(drawn, minlength=4), probs / probs.sum())


def test_a_model_without_anything_to_draw(tmp_path):
    model, _ = katz(tmp_path, "\\data\\\nngram 1=1\n\\1-grams:\n-99 a\n\\end\\\n")
    with pytest.raises(ValueError, match="no class has a probability above 0"):
        model.generate(1, 1)


def test_the_largest_backoffs_of_every_length_overflow_nothing(tmp_path):
    counts = [f"ngram {n}={2 if n == 1 else 1}\n" for n in range(1, 17)]
    words = [f"\\{n}-grams:\n-1 {'a ' * n}{'99' * (n < 16)}\n" for n in range(1, 17)]
    words[0] += "-1 b 99\n"
    model, _ = katz(tmp_path, "\\data\\\n" + "".join(counts + words) + "\\end\\\n")
    context = torch.zeros(1, 15, dtype=torch.int64)
    expected = [-1, -1 + 15 * 99]
    assert (model.log_probs(context) / math.log(10)).tolist() == [pytest.approx(expected)]
    drawn = model.generate(5, 1, context=context[0], generator=torch.Generator().manual_seed(0))
    assert drawn.values.tolist() == [1] * 5


def test_a_file_without_a_begin_marker_or_with_windows_line_ends(tmp_path):
    text = "\ufeff\\data\\\nngram 1=2\nngram 2=1\n\\1-grams:\n-0.3 a -0.5\n-0.3 b\n"
    text += "\\2-grams:\n-0.1 a b\n\\end\\\n"
    model, words = katz(tmp_path, text.replace("\n", "\r\n"))
    assert words.keys.to_list() == ["a", "b"]
    found = model.log_prob(torch.tensor([[0], [-1]]), torch.tensor([1, 1])) / math.log(10)
    assert found.tolist() == pytest.approx([-0.1, -0.3])


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("\\data\\\n", "\\date\\\n", 2, r"must be \\data\\, got '\\\\date"),
        ("ngram 2=4", "ngram 3=4", 4, "'ngram 2='"),
        ("ngram 2=4", "ngram 2=x", 4, "'ngram 2='"),
        ("ngram 2=4", "ngram 2=3", 18, r"must be \\3-grams:, got '-0.3 c a 0.1'"),
        ("ngram 2=4", "ngram 2=5", 19, "log10 p, 2 words and perhaps"),
        ("ngram 3=2", "ngram 3=9", 24, "the file ends within a section"),
        ("ngram 1=5", "ngram 1=0", 7, "ngram 1 must be between 1"),
        ("ngram 1=5\nngram 2=4\nngram 3=2\n", "", 4, "ngram 1 must be"),
        ("\\2-grams:", "\\4-grams:", 14, r"must be \\2-grams:"),
        ("-0.69897 c", "-0.69897", 11, "log10 p, 1 word and perhaps"),
        ("-0.69897 c", "-0.69897 c 1 2", 11, "log10 p, 1 word and perhaps"),
        ("-0.69897 c", "0.69897 c", 11, "log10 p of at most 0, got '0.69897 c'"),
        ("-0.69897 c", "nan c", 11, "log10 p of at most 0"),
        ("-0.69897 c", "-inf c", 11, "log10 p of at most 0"),
        ("-0.69897 c", "-0,5 c", 11, "log10 p of at most 0"),
        ("-0.69897 c", "-0.69897 c inf", 11, "back-off of at most 99"),
        ("-0.69897 c", "-0.69897 c 100", 11, "back-off of at most 99"),
        ("-0.69897 c", "-0.69897 c x", 11, "back-off of at most 99"),
        ("-0.69897 c", "-0.69897 a", 11, "the word 'a' appears twice"),
        ("-0.3 c a 0.1", "-0.3 a b", 18, "appears twice"),
        ("-0.3 c a 0.1", "-0.3 c d", 18, "the word 'd' is not among"),
        ("-0.3 c a 0.1", "-0.3 c <s>", 18, "'<s>' must not be predicted"),
        ("-0.6 <s> a b", "-0.6 c b b", 22, "first 2 words are not listed"),
        ("-0.6 <s> a b", "-0.6 <s> a b -1", 22, "nothing else"),
        ("b\n\n\\end\\\n", "b", 22, "the file ends within a section"),
        ("\\end\\\n", "", 24, "the file ends before"),
    ],
)
def test_malformed_files_name_the_line(old, new, line, message, tmp_path):
    assert KATZ.count(old) == 1
    with pytest.raises(ValueError, match=rf"katz\.arpa, line {line}: .*{message}"):
        katz(tmp_path, KATZ.replace(old, new))


def test_bytes_that_are_not_text_and_files_that_are_not_there(tmp_path):
    path = tmp_path / "katz.arpa"
    path.write_bytes(KATZ.encode().replace(b"-0.4 b b", b"-0.4 b \xff"))
    with pytest.raises(ValueError, match="line 17: not UTF-8"):
        NGramModel.load_arpa(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="line 1: the file ends"):
        NGramModel.load_arpa(path)
    for unreadable in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError, match="cannot be read"):
            NGramModel.load_arpa(unreadable)


@given(st.binary(max_size=200))
@example(b"\\data\\\nngram 1=999999999999999\n\\1-grams:\n")
@FUZZ
def test_no_bytes_do_more_than_raise_a_value_error(tmp_path, data):
    path = tmp_path / "fuzz.arpa"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="fuzz"):
        NGramModel.load_arpa(path)


PIECES = ["\n", " ", "\t", "-", "9", "99999999999", "a", "<s>", "e", ".", "\\", "\0", "é", "=", ""]


@given(
    st.lists(
        st.tuples(st.integers(0, len(KATZ)), st.integers(0, 9), st.sampled_from(PIECES)),
        min_size=1,
        max_size=4,
    )
)
@FUZZ
def test_a_damaged_file_is_refused_or_still_a_model(tmp_path, changes):
    text = KATZ
    for place, cut, piece in changes:
        text = text[:place] + piece + text[place + cut :]
    try:
        model, words = katz(tmp_path, text)
    except ValueError:
        return
    assert len(words) == model.num_classes
    contexts = torch.tensor(list(product(range(-1, len(words)), repeat=2)))
    assert not model.log_probs(contexts).isnan().any()
    if bool(model.log_probs(contexts).isfinite().any(1).all()):
        assert model.generate(3, 2).values.max() < len(words)


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (WORDS[:5], {}, "vocabulary must have 6 keys"),
        ([*WORDS[:5], "two words"], {}, "white space in an ARPA file, got 'two words'"),
        ([*WORDS[:5], ""], {}, "must not be empty"),
        ([*WORDS[:5], "a\0"], {}, "white space"),
        ([*WORDS[:5], "<s>"], {}, "both be written as '<s>'"),
        (WORDS, {"begin": "tea"}, "both be written as 'tea'"),
        (WORDS, {"begin": " "}, "white space"),
        (WORDS, {"end": "rum"}, "key of </s> must be in the vocabulary, got 'rum'"),
        (WORDS, {"unknown": "rum"}, "key of <unk> must be in the vocabulary"),
        ([*WORDS[:5], "</s>"], {"end": "<eos>"}, "both be written as '</s>'"),
    ],
)
def test_what_cannot_be_written_is_refused(words, options, message, tmp_path):
    model = fit("kneser_ney", random_sentences(1, 6, 60), 6, 2)
    path = tmp_path / "model.arpa"
    path.write_text("old")
    with pytest.raises(ValueError, match=message):
        model.save_arpa(path, vocabulary(words), **options)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_keys_that_are_numbers(tmp_path):
    model = fit("kneser_ney", [[0, 1], [1, 1]], 2, 2)
    model.save_arpa(tmp_path / "a", Vocabulary.from_counts([70, 5], [2, 1]), end=5)
    assert NGramModel.load_arpa(tmp_path / "a")[1].keys.to_list() == ["70", "</s>"]
