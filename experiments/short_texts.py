"""Word vectors of short texts: the epochs that the length chooses, five epochs, and gensim.

The first words of 17 million of Wikipedia, with all settings at their defaults: those of widemax,
the same with five epochs whatever the length, and those of gensim (subsampling at 1e-3, a learning
rate of 0.025, five epochs). Besides WordSim-353 and SimLex-999, the mean cosine of random pairs of
words: near 1, all vectors point the same way, and whatever is near a word is near any other.

    python experiments/short_texts.py [--words N [N ...]] [--seeds N] [--json FILE] [--check]

The data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from gensim.models import Word2Vec
from torch.nn.functional import normalize

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import DATA
from _harness import Report, command_line
from _words import KINDS, Kind, Text, quality_of, rate_of, unpack, untrained
from widemax.models import train_word2vec

NUM_WORDS = (200_000, 500_000, 1_000_000, 2_000_000)
NUM_PAIRS = 20_000
MOST_ALIKE = 0.4
"""Mean cosine of random pairs from which on neighbours say little."""


class Worth(NamedTuple):
    wordsim: float
    simlex: float
    alike: float
    """The mean cosine of random pairs."""


def worth_of(text: Text, vectors: torch.Tensor) -> Worth:
    quality = quality_of(text.vocabulary, vectors)
    unit = normalize(vectors.detach(), dim=1)
    drawn = torch.Generator().manual_seed(0)
    one, other = torch.randint(len(unit), (2, NUM_PAIRS), generator=drawn)
    alike = float((unit[one] * unit[other]).sum(1).mean())
    return Worth(quality.wordsim, quality.simlex, alike)


def ours(kind: Kind, text: Text, seed: int, epochs: int | None) -> Worth:
    """Train with so many epochs, or as many as the length chooses."""
    model = untrained(kind, text.vocabulary, seed)
    train_word2vec(
        model, text.sequences, epochs=epochs, learning_rate=rate_of(kind), threads=1, seed=seed
    )
    return worth_of(text, model.key_vectors())


def of_gensim(kind: Kind, text: Text, seed: int) -> Worth:
    skip_gram = kind.gensim["sg"]
    peer = Word2Vec(corpus_file=str(text.path), sg=skip_gram, workers=1, seed=seed + 1)
    return worth_of(text, torch.from_numpy(peer.wv[text.vocabulary.keys.to_list()]))


def compare(report: Report, kind: Kind, text: Text, num_seeds: int) -> None:
    trainings = {
        "auto": lambda seed: ours(kind, text, seed, None),
        "5 epochs": lambda seed: ours(kind, text, seed, 5),
        "gensim": lambda seed: of_gensim(kind, text, seed),
    }
    found = {}
    for name, train in trainings.items():
        runs = [train(seed) for seed in range(num_seeds)]
        found[name] = Worth(*(statistics.fmean(each) for each in zip(*runs, strict=True)))
        wordsim, simlex, alike = found[name]
        print(
            f"{len(text.sequences.values):>9,} words, {kind.name}, {name:<8}"
            f"   WordSim {wordsim:.3f}   SimLex {simlex:.3f}   random pairs {alike:.3f}",
            flush=True,
        )
    size = f"{len(text.sequences.values):,} words, {kind.name}"
    ours_, peer = found["auto"], found["gensim"]
    report.add(f"{size}: WordSim", ours_.wordsim, peer.wordsim)
    report.add(f"{size}: SimLex", ours_.simlex, peer.simlex)
    report.add(f"{size}: mean cosine of random pairs", ours_.alike, MOST_ALIKE, "at most")


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--words", type=int, nargs="+", default=NUM_WORDS, help="lengths of texts")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    report = Report(options)
    if not DATA.is_dir():
        print(f"nothing measured: there is no folder {DATA} (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(1)
    for num_words in options.words:
        with tempfile.TemporaryDirectory() as folder:
            text = unpack(num_words, Path(folder))
            for kind in KINDS[:2]:
                compare(report, kind, text, options.seeds)
    report.finish()


if __name__ == "__main__":
    main()
