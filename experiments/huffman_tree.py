"""What a Huffman tree from counts alone costs a language model, and why.

The model of output_layers.py on the Penn Treebank, written anew in plain torch (_plain_tree.py)
with a Huffman tree of its own, and trained as long as the row of the library's tree there. Then,
for one epoch each: the same with gensim's Huffman tree; with the words of each path length
shuffled; with similar words side by side; and, to see whether it is the training, with another
rate, decay, start and rule. All lengths of paths are Huffman's: only which word stands where is
different.

    python experiments/huffman_tree.py [--rows own,gensim] [--resume] [--json FILE] [--check]

Settings are compared on the validation part. Each row is stored in results/huffman_tree.rows.json
as soon as it is done. gensim must be installed for its row. The data are read from the folder
WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _harness import Report, command_line
from _language import Corpus, load_ptb
from _plain_tree import Codes, Training, huffman_codes, plain_perplexity, train_plain
from _stored import StoredRows, some_of
from widemax.heads import Tree

RESULTS = Path(__file__).resolve().parent / "results"
STORED = StoredRows(RESULTS / "huffman_tree.rows.json")
LIBRARY_TEST = 176.5
"""The test perplexity of the library's Huffman tree in output_layers.py."""
NEIGHBOURS, SIMILAR_DIMENSION = 2_000, 64
TRAIN_EVERY = 10


def own_codes(corpus: Corpus) -> Codes:
    return huffman_codes(corpus.counts.tolist())


def gensim_codes(corpus: Corpus) -> Codes:
    from gensim.models import Word2Vec

    keys = list(corpus.vocabulary.keys)
    model = Word2Vec(hs=1, negative=0, min_count=1, vector_size=1)
    model.build_vocab_from_freq(dict(zip(keys, corpus.counts.tolist(), strict=True)))
    paths = [model.wv.get_vecattr(key, "point").tolist() for key in keys]
    turns = [model.wv.get_vecattr(key, "code").tolist() for key in keys]
    return Codes.of(paths, turns)


def shuffled_codes(corpus: Corpus) -> Codes:
    """Huffman's tree with the words of each path length mixed."""
    codes = own_codes(corpus)
    place = torch.arange(corpus.num_classes)
    generator = torch.Generator().manual_seed(0)
    for depth in codes.depths.unique():
        words = (codes.depths == depth).nonzero()[:, 0]
        place[words] = words[torch.randperm(len(words), generator=generator)]
    return Codes(codes.nodes[place], codes.signs[place])


def similar_codes(corpus: Corpus) -> Codes:
    """Huffman's tree with similar words side by side, by the words that stand next to them."""
    tree = Tree.huffman(corpus.counts, neighbour_vectors(corpus))
    nodes, signs = tree.paths(torch.arange(corpus.num_classes))
    return Codes(nodes.clamp(min=0), signs.float())


def neighbour_vectors(corpus: Corpus) -> Tensor:
    """Words by the frequent words before them: square roots of shares, their main directions."""
    before, word = corpus.train[:-1], corpus.train[1:]
    frequent = before < NEIGHBOURS
    counts = torch.zeros(corpus.num_classes, NEIGHBOURS)
    ones = torch.ones(int(frequent.sum()))
    counts.index_put_((word[frequent], before[frequent]), ones, accumulate=True)
    shares = (counts / counts.sum(1, keepdim=True).clamp(min=1)).sqrt()
    torch.manual_seed(0)
    left, values, _ = torch.svd_lowrank(shares, q=SIMILAR_DIMENSION)
    return (left * values).double()


@dataclass(frozen=True)
class Case:
    """A tree, how it is trained, and what that is to tell."""

    title: str
    codes: Callable[[Corpus], Codes]
    training: Training = field(default_factory=Training)


PROBE = Training(epochs=1)
CASES = {
    "own": Case("its own Huffman tree, 5 epochs", own_codes),
    "own_fast": Case("… rate 0.003, 5 epochs", own_codes, Training(learning_rate=0.003)),
    "probe": Case("its own Huffman tree", own_codes, PROBE),
    "gensim": Case("gensim's Huffman tree", gensim_codes, PROBE),
    "shuffled": Case("words of equal path length shuffled", shuffled_codes, PROBE),
    "similar": Case("similar words side by side", similar_codes, PROBE),
    "rate_up": Case("rate 0.003", own_codes, replace(PROBE, learning_rate=0.003)),
    "similar_fast": Case(
        "rate 0.003, similar words side by side",
        similar_codes,
        replace(PROBE, learning_rate=0.003),
    ),
    "no_decay": Case("no weight decay", own_codes, replace(PROBE, weight_decay=0.0)),
    "decay_up": Case("weight decay 0.3", own_codes, replace(PROBE, weight_decay=0.3)),
    "lazy": Case(
        "no weight decay, lazy Adam of the nodes",
        own_codes,
        replace(PROBE, weight_decay=0.0, lazy_nodes=True),
    ),
    "zero": Case("biases start at 0", own_codes, replace(PROBE, start_at_frequencies=False)),
}
"""The first two at full length, beside the library's row; the others for one epoch each."""


def measure(case: Case, corpus: Corpus) -> dict[str, float]:
    model = train_plain(
        case.codes(corpus),
        case.training,
        corpus.train,
        corpus.valid,
        corpus.counts,
        lambda line: print(f"  {line}", flush=True),
    )
    depths = model.codes.depths.double()
    parts = {"train": TRAIN_EVERY, "valid": 1, "test": 1}
    return {
        **{
            f"{part}_perplexity": plain_perplexity(
                model, case.training, getattr(corpus, part), every
            )
            for part, every in parts.items()
        },
        "path_length": float((depths * corpus.counts).sum() / corpus.counts.sum()),
        "node_norm": float(model.node_vectors.detach().norm(dim=1).median()),
    }


def configuration(name: str) -> dict[str, Any]:
    return {"title": CASES[name].title, **asdict(CASES[name].training)}


def add_figures(report: Report, done: dict[str, dict[str, float]]) -> None:
    for name, row in done.items():
        title = CASES[name].title
        for part in ("train", "valid"):
            report.add(f"{title}: {part} perplexity", row[f"{part}_perplexity"])
        report.add(f"{title}: nodes on a path", row["path_length"])
    if "own" in done:
        test = done["own"]["test_perplexity"]
        report.add("its own Huffman tree, 5 epochs: test perplexity", test)
        report.add("… to the library's", test / LIBRARY_TEST, 0.97)


def main() -> None:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=some_of(CASES), default=list(CASES), help="like own,gensim")
    parser.add_argument("--resume", action="store_true", help="keep stored rows that fit")
    options = parser.parse_args()
    corpus = load_ptb()
    if corpus is None:
        print("nothing measured: there is no Penn Treebank (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(1)
    stored = STORED.fitting({name: configuration(name) for name in CASES})
    done = stored if options.resume else {}
    for name in options.rows:
        if name not in done:
            print(CASES[name].title, flush=True)
            done[name] = measure(CASES[name], corpus)
            STORED.add(name, configuration(name), done[name])
            print(f"  {done[name]}", flush=True)
    report = Report(options)
    add_figures(report, {name: done[name] for name in CASES if name in done})
    report.finish()


if __name__ == "__main__":
    main()
