"""Similarity and analogy: gensim's numbers, and a plain float64 reference."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from widemax.evaluation import evaluate_analogies, evaluate_similarity
from widemax.vectors import KeyedVectors

gensim_vectors = pytest.importorskip("gensim.models.keyedvectors")

DATA = Path(os.environ.get("WIDEMAX_DATA", Path(__file__).parents[3] / "shared" / "data"))
WORDS = [f"word{index}" for index in range(40)]


def random_vectors(keys, dimension=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return KeyedVectors(keys, torch.randn(len(keys), dimension, generator=generator))


def in_gensim(vectors, dtype=np.float64):
    """float64 by default, so that gensim does not round where we do not."""
    peer = gensim_vectors.KeyedVectors(vectors.dimension, dtype=dtype)
    peer.add_vectors(vectors.keys.to_list(), vectors.vectors.numpy().astype(dtype))
    return peer


def write(folder, text):
    path = folder / "test.txt"
    path.write_text(text)
    return path


def pair_lines(words, count=60, seed=1):
    """Pairs of two words with few distinct scores, so that there are ties."""
    draw = np.random.default_rng(seed)
    # A word and itself would tie at 1 but for rounding.
    rows = [draw.choice(len(words), 2, replace=False) for _ in range(count)]
    scores = draw.integers(0, 12, count) / 2
    return [
        f"{words[a]}\t{words[b]}\t{score:.2f}" for (a, b), score in zip(rows, scores, strict=True)
    ]


def question_lines(words, count=150, sections=3, seed=2):
    draw = np.random.default_rng(seed)
    lines = []
    for section in range(sections):
        lines.append(f": section {section}")
        for _ in range(count):
            lines.append(" ".join(words[row] for row in draw.choice(len(words), 4, replace=False)))
    return lines


def gensim_sections(sections):
    return [(part["section"], len(part["correct"]), len(part["incorrect"])) for part in sections]


def our_sections(report):
    parts = (*report.sections, report.total)
    return [(part.name, part.correct, part.questions - part.correct) for part in parts]


def mixed_case_keys():
    """Each word in two or three cases, the first not always the lower one."""
    return [*WORDS[:20], *(word.upper() for word in WORDS), *(word.title() for word in WORDS)]


# Similarity


@pytest.mark.parametrize("case_insensitive", [True, False])
@pytest.mark.parametrize("limit", [25, 300_000])
def test_similarity_equals_gensim(tmp_path, case_insensitive, limit):
    vectors = random_vectors(mixed_case_keys())
    lines = ["# comment", "word 1\tword 2\tscore", *pair_lines([*WORDS, "absent", "Word3"])]
    path = write(tmp_path, "\n".join(lines) + "\n")
    report = evaluate_similarity(
        vectors, path, restrict_vocabulary=limit, case_insensitive=case_insensitive
    )
    pearson, spearman, skipped = in_gensim(vectors).evaluate_word_pairs(
        str(path), restrict_vocab=limit, case_insensitive=case_insensitive
    )
    assert report.pearson == pytest.approx(pearson[0], abs=1e-9)
    assert report.spearman == pytest.approx(spearman[0], abs=1e-9)
    assert 100 * report.skipped / (report.pairs + report.skipped) == pytest.approx(skipped)
    assert report.skipped > 0
    assert report.pairs + report.skipped == 60


def test_ranks_of_ties_are_those_of_scipy():
    """Words that point the same way make ties in the cosines, repeated scores in the judgements."""
    vectors = KeyedVectors(["a", "b", "c", "d"], torch.tensor([[1.0, 0], [2, 0], [0, 1], [1, 1]]))
    pairs = [("a", "c", 1), ("b", "c", 3), ("a", "d", 3), ("b", "d", 2), ("c", "d", 9)]
    cosines = [0, 0, 0.5**0.5, 0.5**0.5, 0.5**0.5]
    report = evaluate_similarity(vectors, pairs)
    scores = [score for _, _, score in pairs]
    assert report.spearman == pytest.approx(stats.spearmanr(cosines, scores)[0], abs=1e-12)
    assert report.pearson == pytest.approx(stats.pearsonr(cosines, scores)[0], abs=1e-12)


def test_pairs_and_their_file_give_the_same(tmp_path):
    vectors = random_vectors(WORDS)
    lines = pair_lines(WORDS)
    pairs = [(a, b, float(score)) for a, b, score in (line.split("\t") for line in lines)]
    path = write(tmp_path, "\r\n".join(["", *lines, ""]))
    assert evaluate_similarity(vectors, str(path)) == evaluate_similarity(vectors, pairs)


def test_a_vector_of_zeros_has_cosine_zero():
    vectors = KeyedVectors(["a", "b", "o"], torch.tensor([[1.0, 0], [1, 1], [0, 0]]))
    pairs = [("a", "b", 2.0), ("a", "o", 1.0), ("b", "o", 1.0)]
    assert evaluate_similarity(vectors, pairs).pearson == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\tb\t1\na\tb\n", 2),
        ("a\tb\t1\nb\ta\tx\n", 2),
        ("a\tb\tnan\n", 1),
        ("# c\n\na b 1\n", 3),
        ("a\tb\t1\n\tb\t2\n", 2),
        ("a\tb\t1\t2\n", 1),
    ],
)
def test_broken_pairs_name_file_and_line(tmp_path, text, line):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=rf"test\.txt, line {line}: must hold two words"):
        evaluate_similarity(random_vectors(["a", "b"]), path)


def test_similarity_refuses_what_has_no_correlation(tmp_path):
    vectors = random_vectors(["a", "b", "c"])
    with pytest.raises(ValueError, match=r"at least 2 .* got 1 of 2"):
        evaluate_similarity(vectors, [("a", "b", 1.0), ("a", "z", 1.0)])
    with pytest.raises(ValueError, match="scores of all 2 pairs are alike"):
        evaluate_similarity(vectors, [("a", "b", 1.0), ("a", "c", 1.0)])
    alike = KeyedVectors(["a", "b", "c"], torch.ones(3, 2))
    with pytest.raises(ValueError, match="cosines of all 2 pairs are alike"):
        evaluate_similarity(alike, [("a", "b", 1.0), ("a", "c", 2.0)])
    with pytest.raises(ValueError, match=r"pairs\[1\] must be \(word, word, finite number\)"):
        evaluate_similarity(vectors, [("a", "b", 1.0), ("a", "b")])
    with pytest.raises(ValueError, match="restrict_vocabulary must be between 1 and"):
        evaluate_similarity(vectors, [("a", "b", 1.0)], restrict_vocabulary=0)
    with pytest.raises(ValueError, match="cannot be read"):
        evaluate_similarity(vectors, tmp_path / "missing.tsv")


# Analogy


@pytest.mark.parametrize("case_insensitive", [True, False])
@pytest.mark.parametrize("limit", [30, 90])
def test_analogies_equal_gensim(tmp_path, case_insensitive, limit):
    """Few dimensions and few words: by chance a fair part of the answers is right."""
    vectors = random_vectors(mixed_case_keys(), dimension=3)
    path = write(tmp_path, "\n".join(question_lines([*WORDS[:25], "Word5", "absent"])))
    score, sections = in_gensim(vectors).evaluate_word_analogies(
        str(path), restrict_vocab=limit, case_insensitive=case_insensitive
    )
    report = evaluate_analogies(
        vectors, path, restrict_vocabulary=limit, case_insensitive=case_insensitive
    )
    expected = gensim_sections(sections)
    expected[-1] = ("total", *expected[-1][1:])
    assert our_sections(report) == expected
    assert report.accuracy == score > 0.02
    assert report.total.skipped > 0


def brute_force(vectors, question, method):
    """Return the best row for one question of rows a, b, c, in float64."""
    units = vectors.vectors.double().numpy()
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    a, b, c = (units @ units[row] for row in question)
    if method == "add":
        scores = units @ (units[question[1]] - units[question[0]] + units[question[2]])
    else:
        scores = (1 + b) / 2 * ((1 + c) / 2) / ((1 + a) / 2 + 1e-6)
    scores[list(question)] = -np.inf
    return int(scores.argmax())


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_each_answer_is_that_of_brute_force(tmp_path, method):
    """The right answers alone in one section, the second best in another."""
    vectors = random_vectors(WORDS, dimension=5)
    draw = np.random.default_rng(3)
    right, wrong = [": right"], [": wrong"]
    for _ in range(200):
        question = draw.choice(len(WORDS), 3, replace=False)
        answer = brute_force(vectors, question, method)
        others = [row for row in range(len(WORDS)) if row != answer]
        words = " ".join(WORDS[row] for row in question)
        right.append(f"{words} {WORDS[answer]}")
        wrong.append(f"{words} {WORDS[draw.choice(others)]}")
    report = evaluate_analogies(vectors, write(tmp_path, "\n".join(right + wrong)), method=method)
    assert [part.accuracy for part in report.sections] == [1.0, 0.0]


@pytest.mark.filterwarnings("ignore:Call to deprecated `init_sims`:DeprecationWarning")
def test_multiply_agrees_with_gensim_and_differs_from_add(tmp_path):
    vectors = random_vectors(WORDS, dimension=5)
    peer = in_gensim(vectors, np.float32)
    lines = question_lines(WORDS, count=100, sections=1)[1:]
    answered = [": all"]
    for line in lines:
        a, b, c, _ = line.split()
        best = peer.most_similar_cosmul(positive=[b, c], negative=[a], topn=1)[0][0]
        answered.append(f"{a} {b} {c} {best}")
    path = write(tmp_path, "\n".join(answered))
    assert evaluate_analogies(vectors, path, method="multiply").accuracy == 1.0
    assert evaluate_analogies(vectors, path, method="add").accuracy < 1.0


@pytest.mark.parametrize(("cosines", "scores"), [(1, 2**18), (300, 50), (2**22, 700)])
@pytest.mark.parametrize("method", ["add", "multiply"])
def test_blocks_do_not_change_the_answers(tmp_path, monkeypatch, cosines, scores, method):
    vectors = random_vectors(mixed_case_keys(), dimension=4)
    path = write(tmp_path, "\n".join(question_lines(WORDS, count=50)))
    whole = evaluate_analogies(vectors, path, method=method)
    assert whole.total.correct > 0
    monkeypatch.setattr("widemax.evaluation.analogy._COSINES_AT_ONCE", cosines)
    monkeypatch.setattr("widemax.evaluation.analogy._SCORES_AT_ONCE", scores)
    assert evaluate_analogies(vectors, path, method=method) == whole


def test_a_word_of_the_question_in_another_case_is_no_answer(tmp_path):
    """The other case of b lies nearest by far; d is next. To the letter, it is a word like any."""
    matrix = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.9, 0.1, 1], [0.5, 1, 1.5], [-0.2, 1, 0.3]])
    vectors = KeyedVectors(["a", "b", "c", "d", "B"], matrix)
    question = matrix[1] - matrix[0] + matrix[2] / matrix[2].norm()
    assert torch.cosine_similarity(question, matrix)[[3, 4]].diff() > 0
    path = write(tmp_path, ": s\na b c d\n")
    assert evaluate_analogies(vectors, path).accuracy == 1.0
    assert evaluate_analogies(vectors, path, case_insensitive=False).accuracy == 0.0
    for insensitive, expected in ((True, 1.0), (False, 0.0)):
        peer = in_gensim(vectors)
        assert peer.evaluate_word_analogies(str(path), case_insensitive=insensitive)[0] == expected


def test_a_word_of_the_question_is_never_the_answer(tmp_path):
    """Not even in another case, nor where no other word is left."""
    vectors = random_vectors(["a", "b", "c", "A", "B", "C"])
    path = write(tmp_path, ": none left\na b c a\na b c c\n")
    assert evaluate_analogies(vectors, path).accuracy == 0.0


def test_table_counts_sections_and_their_sum(tmp_path):
    vectors = random_vectors(["a", "b", "c", "d"])
    path = write(tmp_path, ": one\na b c d\na b c z\n: two\nx y z a\n")
    assert evaluate_analogies(vectors, path).table() == [
        ("one", "100.0 %", 1, 1, 1),
        ("two", "–", 0, 0, 1),
        ("total", "100.0 %", 1, 1, 2),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b c d\n", "line 1: a section"),
        (": s\na b c d\n\na b c\n", "line 4: a question must have 4 words, got 3"),
        (": s\na b c d e\n", "line 2: a question must have 4 words, got 5"),
        (": s\n", r"no question has all of its words .* \(0 questions\)"),
        (": s\na b c zebra\n", r"no question has all of its words .* \(1 questions\)"),
        ("", "is empty"),
    ],
)
def test_broken_questions_name_file_and_line(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=rf"test\.txt.*{message}"):
        evaluate_analogies(random_vectors(["a", "b", "c", "d"]), path)


def test_an_unknown_method_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"method must be one of .*'add', 'multiply'.* got 'sum'"):
        evaluate_analogies(random_vectors(WORDS), tmp_path / "never read", method="sum")


# The files that everyone measures with


def data_file(name):
    path = DATA / "words" / name
    if not path.is_file():
        pytest.skip(f"{path} is missing: set WIDEMAX_DATA to measure with it")
    return path


@pytest.mark.parametrize(("name", "count"), [("wordsim353.tsv", 353), ("simlex999.txt", 999)])
def test_known_pair_files_give_the_numbers_of_gensim(name, count):
    path = data_file(name)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    words = sorted({word for line in lines for word in line.split("\t")[:2]})
    vectors = random_vectors(words[::-1][:-20])
    report = evaluate_similarity(vectors, path)
    pearson, spearman, _ = in_gensim(vectors).evaluate_word_pairs(str(path))
    assert report.pairs + report.skipped == count
    assert report.pearson == pytest.approx(pearson[0], abs=1e-9)
    assert report.spearman == pytest.approx(spearman[0], abs=1e-9)


def test_known_question_file_gives_the_numbers_of_gensim():
    path = data_file("questions-words.txt")
    lines = [line for line in path.read_text().splitlines() if not line.startswith(":")]
    words = sorted({word.lower() for line in lines for word in line.split()})
    vectors = random_vectors(words[:150], dimension=3)
    _, sections = in_gensim(vectors).evaluate_word_analogies(str(path))
    report = evaluate_analogies(vectors, path)
    assert our_sections(report)[:-1] == gensim_sections(sections)[:-1]
    assert report.total.questions + report.total.skipped == 19_544
