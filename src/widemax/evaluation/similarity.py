"""How well the cosines of words agree with how similar people find them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from widemax.evaluation.word_rows import WordRows, numbered_lines, unit_rows
from widemax.vectors import KeyedVectors
from widemax.vocabulary.spelling import quoted

ScoredPair: TypeAlias = tuple[str, str, float]


@dataclass(frozen=True, kw_only=True)
class SimilarityReport:
    """What ``evaluate_similarity`` found; two models can be compared on the same pairs only.

    >>> report = SimilarityReport(pairs=350, skipped=3, spearman=0.65, pearson=0.6)
    >>> report.metrics()
    {'spearman': 0.65, 'pearson': 0.6}
    """

    pairs: int
    """How many pairs were used."""
    skipped: int
    """How many more have a word that is not among the keys."""
    spearman: float
    """The correlation of the ranks, where equal values share the mean of theirs."""
    pearson: float
    """The correlation of cosines and scores."""

    def metrics(self) -> dict[str, float]:
        """Return the metrics by their names."""
        return {"spearman": self.spearman, "pearson": self.pearson}


def evaluate_similarity(
    vectors: KeyedVectors,
    pairs: str | Path | Iterable[ScoredPair],
    *,
    restrict_vocabulary: int | None = 300_000,
    case_insensitive: bool = True,
) -> SimilarityReport:
    """Correlate the cosines of pairs of words with the scores that people gave them.

    ``pairs`` is (word, word, score) for each pair, or a text file such as WordSim-353: three fields
    between tabs, lines that begin with # are comments, the first line may be a header. A pair
    counts if both of its words are among the first ``restrict_vocabulary`` keys (None: all).
    gensim's ``evaluate_word_pairs`` gives the same values.

    >>> import torch
    >>> vectors = KeyedVectors(["tea", "rum", "oak"], torch.tensor([[2.0, 0], [1, 1], [-1, 1]]))
    >>> pairs = [("tea", "rum", 8.0), ("Rum", "oak", 2.0), ("tea", "oak", 1.0), ("tea", "gin", 7.0)]
    >>> report = evaluate_similarity(vectors, pairs)
    >>> round(report.spearman, 4), round(report.pearson, 4), report.skipped
    (1.0, 0.9245, 1)
    """
    judged = read_pairs(Path(pairs)) if isinstance(pairs, str | Path) else _check_pairs(pairs)
    words = WordRows(vectors, restrict_vocabulary, case_insensitive)
    found = [(words.find(first, second), score) for first, second, score in judged]
    used = [(rows, score) for rows, score in found if rows is not None]
    if len(used) < 2:
        raise ValueError(
            f"pairs must hold at least 2 whose words are among the first {len(words.first):,} "
            f"keys, got {len(used)} of {len(judged):,}"
        )
    first, second = (
        unit_rows(vectors.vectors[list(rows)].double())
        for rows in zip(*(places for places, _ in used), strict=True)
    )
    cosines = (first * second).sum(-1).numpy()
    scores = np.array([score for _, score in used])
    return SimilarityReport(
        pairs=len(used),
        skipped=len(judged) - len(used),
        spearman=_correlation(_mean_ranks(cosines), _mean_ranks(scores)),
        pearson=_correlation(cosines, scores),
    )


def read_pairs(path: Path) -> list[ScoredPair]:
    """Return the pairs of a file in the format of WordSim-353 as gensim has it."""
    pairs: list[ScoredPair] = []
    header_may_come = True
    for number, line in numbered_lines(path):
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        score = _number(fields[-1])
        is_header = score is None and header_may_come
        if len(fields) != 3 or not all(fields) or not (is_header or _is_finite(score)):
            raise ValueError(
                f"{path}, line {number:,}: must hold two words and a finite number between tabs, "
                f"got {quoted(line)}"
            )
        header_may_come = False
        if score is not None:
            pairs.append((fields[0], fields[1], score))
    return pairs


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _is_finite(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


def _check_pairs(pairs: Iterable[ScoredPair]) -> list[ScoredPair]:
    checked = []
    for place, pair in enumerate(pairs):
        parts = tuple(pair) if isinstance(pair, tuple | list) else ()
        score = _number(parts[2]) if len(parts) == 3 else None
        words = [part for part in parts[:2] if isinstance(part, str)]
        if score is None or not math.isfinite(score) or len(words) != 2:
            raise ValueError(f"pairs[{place}] must be (word, word, finite number), got {pair!r}")
        checked.append((words[0], words[1], score))
    return checked


def _mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks from 1, the mean of theirs for equal values."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: NDArray[np.float64] = (last - (count - 1) / 2)[place]
    return ranks


def _correlation(cosines: NDArray[np.float64], scores: NDArray[np.float64]) -> float:
    for name, values in (("cosines", cosines), ("scores", scores)):
        if np.ptp(values) == 0:
            raise ValueError(
                f"the {name} of all {len(values):,} pairs are alike: there is nothing to correlate"
            )
    centred = [values - values.mean() for values in (cosines, scores)]
    first, second = (values / np.linalg.norm(values) for values in centred)
    return float(np.clip(first @ second, -1, 1))
