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

    python experiments/word2vec.py [--part gensim|torch|speed|command|memory|all] [--words N]
                                   [--threads N] [--seeds N] [--own-seeds N] [--resume]
                                   [--json FILE] [--check]

Part speed, of minutes: one epoch of each kind, three times in turn, the medians; what an epoch has
learned is compared as well, at the learning rates that gensim's threads have in one. With one
thread, processor time is taken, which is fair on a busy machine. Part command: `widemax train`,
from the text to the stored run with its validation, beside a script of gensim that trains and
stores its vectors, each a process of its own; and its time outside the steps, beside that of the
steps. Part memory: what such a process holds at most. These three are no part of "all".

What is measured beside gensim is stored in results/word2vec.parts.json, a kind of training at a
time; with --resume a kind that is there is not trained again.

The data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from gensim.models import Word2Vec
from rich import box
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _command import memory, whole_command
from _common import DATA
from _gradients import by_gradients
from _harness import Report, command_line
from _words import (
    DIMENSION,
    EPOCHS,
    KINDS,
    MIN_COUNT,
    SUBSAMPLE,
    WINDOW,
    Kind,
    Quality,
    Text,
    Trained,
    clock_of,
    middle,
    rate_of,
    told,
    train_an_epoch,
    train_ours,
    unpack,
)
from widemax.data import Sequences
from widemax.models import train_word2vec
from widemax.vocabulary import Vocabulary

STORED = Path(__file__).resolve().parent / "results" / "word2vec.parts.json"


ROUNDS = 3
"""How often both are timed in turn."""
SHORT_CHECK = 0.03
"""By how much WordSim may be lower after one epoch; after all of them, the bars are those below."""

Runs = dict[str, list[Trained]]


def train_gensim(
    kind: Kind, text: Text, *, threads: int, seed: int, epochs: int = EPOCHS
) -> Trained:
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
    clock = clock_of(threads)
    start = clock()
    peer.train(
        corpus_file=str(text.path),
        total_examples=peer.corpus_count,
        total_words=peer.corpus_total_words,
        epochs=epochs,
    )
    seconds = clock() - start
    # In our order, so that ties in count leave both with the same first 30,000 words.
    vectors = torch.from_numpy(peer.wv[text.vocabulary.keys.to_list()])
    return told(f"{kind.name}: gensim, seed {seed}", text, seconds, vectors, epochs)


def check_same_words(peer: Word2Vec, vocabulary: Vocabulary) -> None:
    """Both must train on the same words, or neither speed nor quality can be compared."""
    theirs = {word: peer.wv.get_vecattr(word, "count") for word in peer.wv.index_to_key}
    ours = dict(zip(vocabulary.keys.to_list(), vocabulary.counts.tolist(), strict=True))
    if theirs != ours:
        sys.exit(f"gensim has {len(theirs):,} words, we have {len(ours):,}, or counts differ")


def compare(kind: Kind, text: Text, options: argparse.Namespace) -> Runs:
    """Train in turn, ours first and, at least once, last."""
    runs: Runs = {"ours": [], "gensim": []}
    peer_seeds = options.seeds or kind.peer_seeds
    for seed in range(max(options.own_seeds, peer_seeds + 1)):
        runs["ours"].append(train_ours(kind, text, threads=options.threads, seed=seed))
        if seed < peer_seeds:
            runs["gensim"].append(train_gensim(kind, text, threads=options.threads, seed=seed))
    return runs


def add_bars(report: Report, kind: Kind, runs: Runs) -> None:
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


def stored_runs(kind: Kind, options: argparse.Namespace) -> Runs | None:
    """What was measured of a kind before, if with the same number of words and threads."""
    found = read_stored().get(kind.name)
    if not options.resume or found is None or found["setting"] != setting_of(options):
        return None
    return {
        name: [Trained(speed, Quality(*quality)) for speed, quality in runs]
        for name, runs in found["runs"].items()
    }


def store(kind: Kind, options: argparse.Namespace, runs: Runs) -> None:
    stored = {**read_stored(), kind.name: {"setting": setting_of(options), "runs": runs}}
    temporary = STORED.with_suffix(".tmp")
    temporary.write_text(json.dumps(stored, indent=1) + "\n")
    temporary.replace(STORED)


def read_stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return stored


def setting_of(options: argparse.Namespace) -> dict[str, int]:
    return {"words": options.words, "threads": options.threads}


def beside_gensim(report: Report, options: argparse.Namespace, folder: Path) -> None:
    text = unpack(options.words, folder)
    print(f"{text.sequences}, {len(text.vocabulary):,} different words", flush=True)
    compile_kernels()
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("", "words/s", "× gensim", "WordSim", "SimLex", "analogies %"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for kind in KINDS:
        runs = stored_runs(kind, options)
        if runs is None:
            runs = compare(kind, text, options)
            store(kind, options, runs)
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
        model = kind.model.create(counts, dimension=DIMENSION, **kind.head)
        train_word2vec(model, sequences, threads=1, epochs=1)


def speed(report: Report, options: argparse.Namespace, folder: Path) -> None:
    """Time one epoch of each kind, ours and gensim's in turn; vectors must be worth the same."""
    text = unpack(options.words, folder)
    compile_kernels()
    for kind in KINDS:
        threads = options.threads
        runs: Runs = {"ours": [], "gensim": []}
        for seed in range(ROUNDS):
            runs["ours"].append(train_an_epoch(kind, text, threads=threads, seed=seed))
            runs["gensim"].append(train_gensim(kind, text, threads=threads, seed=seed, epochs=1))
        ours, peer = middle(runs["ours"]), middle(runs["gensim"])
        report.add(f"{kind.name}, WordSim-353 of an epoch, gensim", peer.quality.wordsim)
        least = peer.quality.wordsim - SHORT_CHECK
        report.add(f"{kind.name}, WordSim-353 of an epoch, ours", ours.quality.wordsim, least)
        ratio = ours.words_per_second / peer.words_per_second
        report.add(f"{kind.name}, words/s, ours", ours.words_per_second)
        report.add(f"{kind.name}, times as quick as gensim", ratio, kind.least_speedup)


PARTS = {
    "gensim": beside_gensim,
    "torch": by_gradients,
    "speed": speed,
    "command": whole_command,
    "memory": memory,
}


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--words", type=int, default=0, help="first N words of the text (0: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--seeds", type=int, default=0, help="runs of gensim (0: 3, for the tree 1)"
    )
    parser.add_argument("--own-seeds", type=int, default=3, help="runs of the kernel")
    parser.add_argument("--resume", action="store_true", help="keep what is stored of gensim")
    options = parser.parse_args()
    if min(options.threads, options.own_seeds) < 1 or min(options.words, options.seeds) < 0:
        parser.error("--threads and --own-seeds must be at least 1, --words and --seeds at least 0")
    report = Report(options)
    if not DATA.is_dir():
        print(f"nothing measured: there is no folder {DATA} (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(options.threads)
    for name in ["gensim", "torch"] if options.part == "all" else [options.part]:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](report, options, Path(folder))
    report.finish()


if __name__ == "__main__":
    main()
