"""What the two parts of word2vec.py share: the text, the kinds of training, what vectors are worth.

The data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import gzip
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from _common import DATA
from widemax.data import Sequences, read_corpus
from widemax.evaluation import evaluate_analogies, evaluate_similarity
from widemax.models import CBOW, SkipGram, Word2VecSteps, WordModel, train_word2vec
from widemax.vectors import KeyedVectors
from widemax.vocabulary import Vocabulary

DIMENSION, WINDOW, NEGATIVES, SUBSAMPLE, MIN_COUNT = 100, 5, 5, 1e-4, 5
EPOCHS = 5
SAMPLED: dict[str, int | str] = {"num_samples": NEGATIVES}
TREE: dict[str, int | str] = {"head": "hierarchical"}


class Text(NamedTuple):
    path: Path
    sequences: Sequences
    vocabulary: Vocabulary


class Quality(NamedTuple):
    """Spearman on WordSim-353 and SimLex-999, and the analogies answered right, in per cent."""

    wordsim: float
    simlex: float
    analogies: float


class Trained(NamedTuple):
    words_per_second: float
    quality: Quality


class Kind(NamedTuple):
    """One way to train words, the settings of both programs for it, and the speed-up asked."""

    name: str
    model: type[WordModel]
    head: dict[str, int | str]
    gensim: dict[str, int]
    least_speedup: float
    peer_seeds: int
    """Runs of gensim: where it is quick, as many as ours."""


KINDS = [
    Kind("skip-gram, negatives", SkipGram, SAMPLED, {"sg": 1, "negative": NEGATIVES}, 10, 3),
    Kind("CBOW, negatives", CBOW, SAMPLED, {"sg": 0, "negative": NEGATIVES}, 5, 3),
    Kind("skip-gram, tree", SkipGram, TREE, {"sg": 1, "hs": 1, "negative": 0}, 4, 1),
]


def unpack(num_words: int, folder: Path) -> Text:
    """Write the first articles, of ``num_words`` words or all of them (0), to a file of text."""
    path, written = folder / "text.txt", 0
    with gzip.open(DATA / "words/wiki17m.txt.gz", "rt") as source, path.open("w") as target:
        for line in source:
            target.write(line)
            written += len(line.split())
            if 0 < num_words <= written:
                break
    return Text(path, *read_corpus(path, min_count=MIN_COUNT))


def quality_of(vocabulary: Vocabulary, vectors: torch.Tensor) -> Quality:
    words = KeyedVectors(vocabulary.keys, vectors.detach())
    wordsim, simlex = (
        evaluate_similarity(words, DATA / f"words/{name}").spearman
        for name in ("wordsim353.tsv", "simlex999.txt")
    )
    analogies = evaluate_analogies(words, DATA / "words/questions-words.txt").accuracy
    return Quality(wordsim, simlex, 100 * analogies)


def told(
    name: str, text: Text, seconds: float, vectors: torch.Tensor, epochs: int = EPOCHS
) -> Trained:
    """Judge the vectors of a training, say what came of it, and return it."""
    trained = Trained(
        len(text.sequences.values) * epochs / seconds, quality_of(text.vocabulary, vectors)
    )
    wordsim, simlex, analogies = trained.quality
    print(
        f"{name:<34} {seconds:7.1f} s {trained.words_per_second:>11,.0f} words/s"
        f"   WordSim {wordsim:.4f}   SimLex {simlex:.4f}   analogies {analogies:.2f} %",
        flush=True,
    )
    return trained


def train_an_epoch(kind: Kind, text: Text, *, threads: int, seed: int) -> Trained:
    """Train for one epoch, with the learning rates that gensim has in one.

    Each of its threads lets the rate fall by the words that it has itself read, of those of the
    whole text: with two threads, it has fallen to a half when the text is at its end.
    """
    model = untrained(kind, text.vocabulary, seed)
    clock = clock_of(threads)
    start = clock()
    steps = Word2VecSteps(model, text.sequences, window=WINDOW, threads=threads, seed=seed)
    for step in range(steps.per_epoch):
        steps.take(step, rate_of(kind) * (1 - step / steps.per_epoch / threads))
    steps.publish()
    seconds = clock() - start
    name = f"{kind.name}: ours, seed {seed}"
    return told(name, text, seconds, model.key_vectors(), epochs=1)


def train_ours(kind: Kind, text: Text, *, threads: int, seed: int, epochs: int = EPOCHS) -> Trained:
    model = untrained(kind, text.vocabulary, seed)
    clock = clock_of(threads)
    start = clock()
    train_word2vec(
        model,
        text.sequences,
        window=WINDOW,
        epochs=epochs,
        learning_rate=rate_of(kind),
        threads=threads,
        seed=seed,
    )
    seconds = clock() - start
    name = f"{kind.name}: ours, seed {seed}"
    return told(name, text, seconds, model.key_vectors(), epochs)


def clock_of(threads: int) -> Callable[[], float]:
    """One thread's own time is fair on a busy machine; that of several would be their sum."""
    return time.process_time if threads == 1 else time.perf_counter


def rate_of(kind: Kind) -> float:
    return 0.05 if kind.model is CBOW else 0.025


def untrained(kind: Kind, vocabulary: Vocabulary, seed: int) -> WordModel:
    torch.manual_seed(seed)
    return kind.model.create(
        vocabulary.counts, dimension=DIMENSION, subsample=SUBSAMPLE, **kind.head
    )


def middle(runs: list[Trained]) -> Trained:
    """The median speed and the mean quality of several runs."""
    qualities = zip(*(run.quality for run in runs), strict=True)
    return Trained(
        statistics.median(run.words_per_second for run in runs),
        Quality(*map(statistics.fmean, qualities)),
    )
