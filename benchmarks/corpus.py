"""Reading a text: words counted and encoded, against gensim's build_vocab, which only counts.

The text is that of WIDEMAX_DATA (words/wiki17m.txt.gz, 17 million words) if it is there, else one
of two million words drawn with falling frequency. gensim gets the plain file; so do we, and what
unpacking adds is reported apart.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from gensim.models import Word2Vec

from _harness import DATA, Report, command_line, interleaved
from widemax.data.phrases import join_phrases
from widemax.data.reading.text import read_corpus
from widemax.data.sequences import Sequences
from widemax.vocabulary import Vocabulary

WIKIPEDIA = DATA / "words" / "wiki17m.txt.gz"
MIN_COUNT = 5  # gensim's default: with 1, most of its time goes into entries for rare words
OURS, PEER = "widemax", "gensim"


def write_drawn_text(packed: Path) -> None:
    rng = np.random.default_rng(0)
    words = rng.zipf(1.2, size=(100_000, 20)) % 10**6
    with gzip.open(packed, "wt", compresslevel=6) as file:
        file.writelines(" ".join(f"w{word:x}" for word in line) + "\n" for line in words.tolist())


def gensim_reads(path: Path) -> Word2Vec:
    model = Word2Vec(min_count=MIN_COUNT, vector_size=1)  # its vectors are not what is timed
    model.build_vocab(corpus_file=str(path))
    return model


def widemax_reads(path: Path, *, cache: bool = False) -> tuple[Sequences, Vocabulary]:
    return read_corpus(path, min_count=MIN_COUNT, cache=cache)


def check_results(path: Path) -> None:
    """What is timed is right: every word is counted as often as gensim counts it, and encoded."""
    sequences, vocabulary = widemax_reads(path)
    vectors = gensim_reads(path).wv
    expected = {key: vectors.get_vecattr(key, "count") for key in vectors.index_to_key}
    assert dict(vocabulary.table.iter_rows()) == expected
    with path.open() as file:
        for index, line in zip(range(100), file, strict=False):
            words = [word for word in line.split() if word in expected]
            assert vocabulary.decode(sequences.sequence(index)) == words


def unpack(packed: Path) -> None:
    with gzip.open(packed) as file:
        while file.read(2**24):
            pass


def hash_of(path: Path) -> None:
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")


def figures(report: Report, packed: Path, path: Path, repeats: int) -> None:
    seconds = interleaved(
        {OURS: partial(widemax_reads, path), PEER: partial(gensim_reads, path)}, repeats, warmup=1
    )
    report.add("plain file: words counted and encoded (s)", seconds[OURS])
    report.add("plain file: gensim, words counted (s)", seconds[PEER])
    report.add(
        "plain file: ours / gensim build_vocab", seconds[OURS] / seconds[PEER], 1.0, "at most"
    )

    seconds = interleaved(
        {
            "gzip": partial(widemax_reads, packed),
            "unpack": partial(unpack, packed),
            "plain": partial(widemax_reads, path),
            "cached": partial(widemax_reads, path, cache=True),
            "sha256": partial(hash_of, path),
        },
        repeats,
        warmup=1,
    )
    report.add("gzip: read (s)", seconds["gzip"])
    report.add("gzip: unpacking alone (s)", seconds["unpack"])
    report.add("sha256 of the plain file (s)", seconds["sha256"])
    report.add("cached / read", seconds["cached"] / seconds["plain"], 0.5, "at most")

    corpus = widemax_reads(path)
    seconds = interleaved({"phrases": partial(join_phrases, *corpus)}, repeats, warmup=1)
    report.add("phrases joined, one pass (s)", seconds["phrases"])


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    report = Report(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        packed, path = Path(folder) / "corpus.txt.gz", Path(folder) / "corpus.txt"
        if WIKIPEDIA.is_file():
            shutil.copyfile(WIKIPEDIA, packed)
        else:
            write_drawn_text(packed)
        with gzip.open(packed) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, 2**24)
        check_results(path)
        figures(report, packed, path, report.arguments.repeats)
    report.finish()


if __name__ == "__main__":
    main()
