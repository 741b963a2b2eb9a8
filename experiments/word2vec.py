"""Skip-gram and CBOW on 17 million words of Wikipedia: beside gensim, and by gradients.

Part gensim: dimension 100, window 5, 5 negatives or a Huffman tree, subsampling at 1e-4, words seen
5 times or more, 5 epochs, the learning rate from 0.025 down, for CBOW from 0.05 as in the program
that came with the papers, the same for both. gensim reads the
unpacked text by its quickest way (corpus_file). The vocabulary is read apart; words a second are
the words that are left of the corpus, times the epochs, by the seconds of training alone, in turn:
ours, gensim, ours again.

Part torch: the same models through gradients, as any head can be trained, on the first 2 million
words, and beside them the kernel on the same words. The settings that get there: Adagrad with a
rate of 0.1 that falls linearly to 0, batches of 4,096 words of the text with all their neighbours,
and either 5 negatives for each pair of words by count^0.75 or the softmax over 256 distinct classes
by rank for all of the batch; 5 epochs, vectors that start as those of the kernel.

    python experiments/word2vec.py [--part gensim|torch|all] [--words N] [--threads N]
                                   [--seeds N] [--own-seeds N] [--json FILE] [--check]

The data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from gensim.models import Word2Vec
from rich import box
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _harness import Report, command_line
from widemax.data import Sequences, read_corpus
from widemax.encoders import BagEncoder
from widemax.evaluation import evaluate_analogies, evaluate_similarity
from widemax.heads import SampledHead
from widemax.models import CBOW, SkipGram, WordModel, keep_probability, start_small
from widemax.objectives import Objective, negative_sampling, sampled_softmax
from widemax.optim import RowAdagrad
from widemax.sampling import LogUniformSampler, Sampler, UnigramSampler
from widemax.scoring import TableScorer
from widemax.training import train_word2vec
from widemax.training.schedules import learning_rate_at
from widemax.training.steps import GradientSteps
from widemax.vectors import KeyedVectors
from widemax.vocabulary import Vocabulary

DATA = Path(os.environ.get("WIDEMAX_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
DIMENSION, WINDOW, NEGATIVES, SUBSAMPLE, MIN_COUNT = 100, 5, 5, 1e-4, 5
EPOCHS = 5
TORCH_WORDS, GRADIENT_BATCH, GRADIENT_RATE = 2_000_000, 4096, 0.1


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
    """One way to train words, the arguments of gensim for it, and the speed-up that is asked."""

    name: str
    model: type[WordModel]
    tree: bool
    gensim: dict[str, int]
    least_speedup: float


KINDS = [
    Kind("skip-gram, negatives", SkipGram, False, {"sg": 1, "negative": NEGATIVES}, 5),
    Kind("CBOW, negatives", CBOW, False, {"sg": 0, "negative": NEGATIVES}, 3),
    Kind("skip-gram, tree", SkipGram, True, {"sg": 1, "hs": 1, "negative": 0}, 2),
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


def told(name: str, text: Text, seconds: float, vectors: torch.Tensor) -> Trained:
    """Judge the vectors of a training, say what came of it, and return it."""
    trained = Trained(
        len(text.sequences.values) * EPOCHS / seconds, quality_of(text.vocabulary, vectors)
    )
    wordsim, simlex, analogies = trained.quality
    print(
        f"{name:<34} {seconds:7.1f} s {trained.words_per_second:>11,.0f} words/s"
        f"   WordSim {wordsim:.4f}   SimLex {simlex:.4f}   analogies {analogies:.2f} %",
        flush=True,
    )
    return trained


def train_ours(kind: Kind, text: Text, *, threads: int, seed: int) -> Trained:
    model = untrained(kind, text.vocabulary, seed)
    start = time.perf_counter()
    train_word2vec(
        model,
        text.sequences,
        window=WINDOW,
        epochs=EPOCHS,
        learning_rate=rate_of(kind),
        threads=threads,
        seed=seed,
    )
    seconds = time.perf_counter() - start
    return told(f"{kind.name}: ours, seed {seed}", text, seconds, model.key_vectors())


def rate_of(kind: Kind) -> float:
    return 0.05 if kind.model is CBOW else 0.025


def untrained(kind: Kind, vocabulary: Vocabulary, seed: int) -> WordModel:
    torch.manual_seed(seed)
    if kind.tree:
        return kind.model.with_tree(vocabulary.counts, dimension=DIMENSION, subsample=SUBSAMPLE)
    return kind.model.with_negatives(
        vocabulary.counts, dimension=DIMENSION, negatives=NEGATIVES, subsample=SUBSAMPLE
    )


def train_gensim(kind: Kind, text: Text, *, threads: int, seed: int) -> Trained:
    peer = Word2Vec(
        vector_size=DIMENSION,
        window=WINDOW,
        sample=SUBSAMPLE,
        min_count=MIN_COUNT,
        alpha=rate_of(kind),
        workers=threads,
        seed=seed + 1,
        **kind.gensim,
    )
    peer.build_vocab(corpus_file=str(text.path))
    check_same_words(peer, text.vocabulary)
    start = time.perf_counter()
    peer.train(
        corpus_file=str(text.path),
        total_examples=peer.corpus_count,
        total_words=peer.corpus_total_words,
        epochs=EPOCHS,
    )
    seconds = time.perf_counter() - start
    # In our order, so that ties in count leave both with the same first 30,000 words.
    vectors = torch.from_numpy(peer.wv[text.vocabulary.keys.to_list()])
    return told(f"{kind.name}: gensim, seed {seed}", text, seconds, vectors)


def check_same_words(peer: Word2Vec, vocabulary: Vocabulary) -> None:
    """Both must train on the same words, or neither speed nor quality can be compared."""
    theirs = {word: peer.wv.get_vecattr(word, "count") for word in peer.wv.index_to_key}
    ours = dict(zip(vocabulary.keys.to_list(), vocabulary.counts.tolist(), strict=True))
    if theirs != ours:
        sys.exit(f"gensim has {len(theirs):,} words, we have {len(ours):,}, or counts differ")


def compare(kind: Kind, text: Text, options: argparse.Namespace) -> dict[str, list[Trained]]:
    """Train in turn, ours first and, at least once, last."""
    runs: dict[str, list[Trained]] = {"ours": [], "gensim": []}
    for seed in range(max(options.own_seeds, options.seeds + 1)):
        runs["ours"].append(train_ours(kind, text, threads=options.threads, seed=seed))
        if seed < options.seeds:
            runs["gensim"].append(train_gensim(kind, text, threads=options.threads, seed=seed))
    return runs


def middle(runs: list[Trained]) -> Trained:
    """The median speed and the mean quality of several runs."""
    qualities = zip(*(run.quality for run in runs), strict=True)
    return Trained(
        statistics.median(run.words_per_second for run in runs),
        Quality(*map(statistics.fmean, qualities)),
    )


def add_bars(report: Report, kind: Kind, runs: dict[str, list[Trained]]) -> None:
    ours, peer = middle(runs["ours"]), middle(runs["gensim"])
    allowed = Quality(0.01, 0.01, 1.0)
    for name, found, theirs, less in zip(
        ("WordSim-353", "SimLex-999", "analogies %"), ours.quality, peer.quality, allowed,
        strict=True,
    ):  # fmt: skip
        report.add(f"{kind.name}, {name}, gensim", theirs)
        report.add(f"{kind.name}, {name}, ours", found, theirs - less)
    for name, spread in zip(Quality._fields, spread_of(runs["ours"]), strict=True):
        report.add(f"{kind.name}, {name}, spread of ours over seeds", spread)
    report.add(f"{kind.name}, words/s, gensim", peer.words_per_second)
    report.add(f"{kind.name}, words/s, ours", ours.words_per_second)
    speedup = ours.words_per_second / peer.words_per_second
    report.add(f"{kind.name}, times as quick as gensim", speedup, kind.least_speedup)


def spread_of(runs: list[Trained]) -> Quality:
    """The largest less the smallest of each measure."""
    measures = zip(*(run.quality for run in runs), strict=True)
    return Quality(*(max(values) - min(values) for values in measures))


def beside_gensim(report: Report, options: argparse.Namespace, folder: Path) -> None:
    text = unpack(options.words, folder)
    print(f"{text.sequences}, {len(text.vocabulary):,} different words", flush=True)
    compile_kernels()
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("", "words/s", "× gensim", "WordSim", "SimLex", "analogies %"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for kind in KINDS:
        runs = compare(kind, text, options)
        add_bars(report, kind, runs)
        base = middle(runs["gensim"]).words_per_second
        for name, (speed, quality) in ((name, middle(of)) for name, of in runs.items()):
            numbers = f"{speed:,.0f}", f"{speed / base:.2f}", *(f"{x:.4g}" for x in quality)
            table.add_row(f"{kind.name}, {name}", *numbers)
    Console().print(table)


def compile_kernels() -> None:
    """Train on a few words, so that nothing is compiled while the clock runs."""
    sequences = Sequences.from_lists([[0, 1, 2, 0, 1]])
    counts = torch.tensor([2, 2, 1])
    for kind in KINDS:
        make = kind.model.with_tree if kind.tree else kind.model.with_negatives
        train_word2vec(make(counts, dimension=DIMENSION), sequences, threads=1, epochs=1)


class GradientRun(NamedTuple):
    """A head trained by gradients, and the kind of the kernel that it is held against."""

    name: str
    kind: Kind
    objective: Objective
    sampler: Callable[[Vocabulary], Sampler]
    num_samples: int


def by_counts(vocabulary: Vocabulary) -> Sampler:
    return UnigramSampler(len(vocabulary), vocabulary.counts, distortion=0.75, per_example=True)


def by_rank(vocabulary: Vocabulary) -> Sampler:
    return LogUniformSampler(len(vocabulary), unique=True)


GRADIENT_RUNS = [
    GradientRun("skip-gram, negatives", KINDS[0], negative_sampling, by_counts, 5),
    GradientRun("CBOW, negatives", KINDS[1], negative_sampling, by_counts, 5),
    GradientRun("CBOW, sampled softmax", KINDS[1], sampled_softmax, by_rank, 256),
]


def train_by_gradients(run: GradientRun, text: Text, *, seed: int) -> Trained:
    """Train with Adagrad, a rate for each word, which falls linearly to 0."""
    torch.manual_seed(seed)
    vocabulary = text.vocabulary
    head = SampledHead(
        TableScorer(len(vocabulary), DIMENSION, bias=False, sparse=True),
        run.sampler(vocabulary),
        objective=run.objective,
        num_samples=run.num_samples,
    )
    encoder = BagEncoder(len(vocabulary), DIMENSION)
    model = run.kind.model(encoder, head, keep=keep_probability(vocabulary.counts, SUBSAMPLE))
    start_small(model)
    windows = run.kind.model.windows(text.sequences, max_history=1, window=WINDOW)
    optimizer = RowAdagrad(model.parameters(), lr=GRADIENT_RATE)
    steps = GradientSteps(model, optimizer, windows, batch_size=GRADIENT_BATCH, seed=seed)
    total = EPOCHS * steps.per_epoch
    rate = learning_rate_at("linear", GRADIENT_RATE, total_steps=total)
    start = time.perf_counter()
    for step in range(total):
        steps.take(step, rate(step))
    seconds = time.perf_counter() - start
    return told(f"{run.name}: gradients", text, seconds, model.key_vectors())


def by_gradients(report: Report, options: argparse.Namespace, folder: Path) -> None:
    text = unpack(options.words or TORCH_WORDS, folder)
    print(f"{text.sequences}, {len(text.vocabulary):,} different words", flush=True)
    kernel = {
        kind.name: middle(
            [
                train_ours(kind, text, threads=options.threads, seed=seed)
                for seed in range(options.own_seeds)
            ]
        )
        for kind in KINDS[:2]
    }
    for name, trained in kernel.items():
        report.add(f"{name}, WordSim-353, the kernel on fewer words", trained.quality.wordsim)
    for run in GRADIENT_RUNS:
        found = train_by_gradients(run, text, seed=0).quality.wordsim
        least = kernel[run.kind.name].quality.wordsim - 0.02
        report.add(f"{run.name}, WordSim-353, by gradients", found, least)


PARTS = {"gensim": beside_gensim, "torch": by_gradients}


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--words", type=int, default=0, help="first N words of the text (0: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1, help="runs of gensim")
    parser.add_argument("--own-seeds", type=int, default=3, help="runs of the kernel")
    options = parser.parse_args()
    if min(options.threads, options.seeds, options.own_seeds) < 1 or options.words < 0:
        parser.error("--threads, --seeds and --own-seeds must be at least 1, --words at least 0")
    report = Report(options)
    if not DATA.is_dir():
        print(f"nothing measured: there is no folder {DATA} (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(options.threads)
    for name in PARTS if options.part == "all" else [options.part]:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](report, options, Path(folder))
    report.finish()


if __name__ == "__main__":
    main()
