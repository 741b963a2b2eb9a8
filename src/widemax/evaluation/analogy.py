"""Whether vectors answer "a is to b as c is to …"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from widemax.evaluation.word_rows import WordRows, numbered_lines, unit_rows
from widemax.validation import ABSENT
from widemax.vectors import KeyedVectors
from widemax.vocabulary.spelling import quoted

AnalogyMethod: TypeAlias = Literal["add", "multiply"]
_Score: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]

# Cosines of the words of questions to some rows: 16 MB. Scores of some questions: they stay in
# the cache from one pass to the next.
_COSINES_AT_ONCE = 2**22
_SCORES_AT_ONCE = 2**18
# Levy & Goldberg 2014: what keeps a cosine of −1 from being divided by.
_EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class AnalogySection:
    """The result of one section of an analogy test, or of all of them."""

    name: str
    """The section's, or "total"."""
    correct: int
    """How many questions were answered correctly."""
    questions: int
    """How many were asked."""
    skipped: int
    """How many more have a word that is not among the keys."""

    @property
    def accuracy(self) -> float | None:
        """The share of the questions that were answered correctly; None without a question."""
        return self.correct / self.questions if self.questions else None


@dataclass(frozen=True, kw_only=True)
class AnalogyReport:
    """What ``evaluate_analogies`` found, section by section.

    >>> parts = (AnalogySection(name="capitals", correct=3, questions=4, skipped=1),
    ...          AnalogySection(name="plurals", correct=2, questions=6, skipped=0))
    >>> report = AnalogyReport(sections=parts)
    >>> report.accuracy, report.table()[-1]
    (0.5, ('total', '50.0 %', 5, 10, 1))
    """

    sections: tuple[AnalogySection, ...]
    """In the order of the file."""

    @property
    def total(self) -> AnalogySection:
        """All sections as one, in which each question has the same weight."""
        return AnalogySection(
            name="total",
            correct=sum(section.correct for section in self.sections),
            questions=sum(section.questions for section in self.sections),
            skipped=sum(section.skipped for section in self.sections),
        )

    @property
    def accuracy(self) -> float:
        """The share of all questions that were answered correctly."""
        total = self.total
        return total.correct / total.questions

    def table(self) -> list[tuple[str, str, int, int, int]]:
        """Return name, accuracy, correct, questions and skipped of each section and the total."""
        return [
            (
                part.name,
                "–" if part.accuracy is None else f"{100 * part.accuracy:.1f} %",
                part.correct,
                part.questions,
                part.skipped,
            )
            for part in (*self.sections, self.total)
        ]


class _Question(NamedTuple):
    section: int
    words: list[str]


def evaluate_analogies(
    vectors: KeyedVectors,
    path: str | Path,
    *,
    restrict_vocabulary: int | None = 30_000,
    method: AnalogyMethod = "add",
    case_insensitive: bool = True,
) -> AnalogyReport:
    """Ask for the fourth word x of each question "a is to b as c is to x".

    The file has four words a line, in sections that begin with ``: name``. "add" (3CosAdd) answers
    argmax over x of cos(x, b) − cos(x, a) + cos(x, c); "multiply" (3CosMul, Levy & Goldberg 2014)
    argmax of c(x, b)·c(x, c) / (c(x, a) + 10⁻⁶) with c = (1 + cos)/2. x is one of the first
    ``restrict_vocabulary`` keys (None: all), but neither a, b nor c in any case. A question with a
    word that is not among those keys is skipped. gensim's ``evaluate_word_analogies`` gives the
    same answers by "add".

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "questions.txt"
    >>> _ = path.write_text(": royal\\nman king woman queen\\nking man queen woman\\nman king ox x")
    >>> grid = torch.tensor([[1.0, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1], [-1, 0, 0]])
    >>> vectors = KeyedVectors(["man", "king", "woman", "queen", "ox"], grid)
    >>> evaluate_analogies(vectors, path).table()
    [('royal', '100.0 %', 2, 2, 1), ('total', '100.0 %', 2, 2, 1)]
    """
    if method not in _SCORES:
        raise ValueError(f"method must be one of {sorted(_SCORES)}, got {method!r}")
    names, questions = read_questions(Path(path))
    words = WordRows(vectors, restrict_vocabulary, case_insensitive)
    found = [words.find(*question.words) for question in questions]
    asked = torch.tensor([rows for rows in found if rows is not None], dtype=torch.int64)
    if not len(asked):
        raise ValueError(
            f"{path}: no question has all of its words among the first {len(words.first):,} keys "
            f"({len(questions):,} questions)"
        )
    units = unit_rows(vectors.vectors[: len(words.first)])
    best = _best_rows(units, words.first, asked[:, :3], _SCORES[method])
    right = (best >= 0) & (words.first[best] == asked[:, 3])
    section = torch.tensor([question.section for question in questions])
    known = torch.tensor([rows is not None for rows in found])
    correct, questions_asked, skipped = (
        torch.bincount(part, minlength=len(names)).tolist()
        for part in (section[known][right], section[known], section[~known])
    )
    return AnalogyReport(
        sections=tuple(
            AnalogySection(
                name=name, correct=correct[i], questions=questions_asked[i], skipped=skipped[i]
            )
            for i, name in enumerate(names)
        )
    )


def read_questions(path: Path) -> tuple[list[str], list[_Question]]:
    """Return the names of the sections of a file, and its questions."""
    names: list[str] = []
    questions = []
    for number, line in numbered_lines(path):
        words = line.split()
        if line.startswith(":"):
            names.append(line.lstrip(":").strip())
        elif not names:
            raise ValueError(
                f"{path}, line {number:,}: a section (': name') must come first, got {quoted(line)}"
            )
        elif len(words) != 4:
            raise ValueError(
                f"{path}, line {number:,}: a question must have 4 words, got {len(words)}: "
                f"{quoted(line)}"
            )
        else:
            questions.append(_Question(len(names) - 1, words))
    return names, questions


def _best_rows(units: Tensor, first: Tensor, given: Tensor, score: _Score) -> Tensor:
    """Return the row that answers each question best, int64 [Q]; -1 where none is left.

    Questions have few distinct words: the cosines of each to all rows are taken once.
    """
    words, place = torch.unique(given, return_inverse=True)
    best_row = torch.full((len(given),), ABSENT)
    best_score = torch.full((len(given),), -torch.inf)
    width = max(1, _COSINES_AT_ONCE // len(words))
    for start in range(0, len(units), width):
        cosines = units[words] @ units[start : start + width].T
        # A row that stands for a word of a question is no answer to it, in whatever case.
        stands_for = first[start : start + width]
        taken = torch.isin(stands_for, words).nonzero()[:, 0]
        word = torch.searchsorted(words, stands_for[taken])
        step = max(1, _SCORES_AT_ONCE // cosines.shape[1])
        for rows in (slice(at, at + step) for at in range(0, len(given), step)):
            scores = score(*(cosines.index_select(0, column) for column in place[rows].unbind(1)))
            question, at = _any_equal(place[rows], word).nonzero(as_tuple=True)
            scores[question, taken[at]] = -torch.inf
            # NumPy's is ten times as fast.
            found = torch.from_numpy(scores.numpy().argmax(1))
            value = scores.gather(1, found[:, None])[:, 0]
            better = value > best_score[rows]
            best_row[rows] = torch.where(better, found + start, best_row[rows])
            best_score[rows] = torch.where(better, value, best_score[rows])
    return best_row


def _any_equal(given: Tensor, words: Tensor) -> Tensor:
    """Return whether words [N] are among those of each question [B, 3], bool [B, N]."""
    equal = given[:, 0, None] == words
    for column in given[:, 1:].unbind(1):
        equal |= column[:, None] == words
    return equal


def _add(to_a: Tensor, to_b: Tensor, to_c: Tensor) -> Tensor:
    return to_b.sub_(to_a).add_(to_c)


def _multiply(to_a: Tensor, to_b: Tensor, to_c: Tensor) -> Tensor:
    shifted = [cosine.add_(1).div_(2) for cosine in (to_a, to_b, to_c)]
    return shifted[1].mul_(shifted[2]).div_(shifted[0].add_(_EPSILON))


_SCORES: dict[str, _Score] = {"add": _add, "multiply": _multiply}
