"""What target sampling learns without any context: a bias for each word of the Penn Treebank.

The text is cut into parts of at most 2,000 different words, and in a part only its own words
compete (Jean et al. 2015). Nothing is trained: the biases at which the expected gradient over all
parts is 0 are found by fixed-point iteration, in float64, without the correction and with it
(``share_correction``). The perplexity of the training text under their softmax is compared with
that of the frequencies, which is the best there is.

    python experiments/target_sampling.py [--json FILE] [--check]

The data are read from the folder WIDEMAX_DATA, by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _harness import Report, command_line
from _heads import PART_CLASSES
from _language import Corpus, load_ptb
from widemax.sampling import PartitionSampler

ITERATIONS = 300


def fitted_biases(corpus: Corpus, sampler: PartitionSampler) -> Tensor:
    """The biases at which each word is expected as often as it is there, float64 [V]."""
    counts = corpus.counts.double()
    biases = (counts / counts.sum()).log()
    parts = []
    for part, (start, stop) in enumerate(sampler.ranges):
        sampler.select(part)
        candidates = sampler.sample(None, corpus.train[start : start + 1])
        parts.append((candidates.ids, candidates.log_expected_count, stop - start))
    for _ in range(ITERATIONS):
        expected = torch.zeros_like(biases)
        for ids, log_count, size in parts:
            expected[ids] += size * (biases[ids] - log_count).softmax(0)
        biases += (counts / expected).log()
    return biases


def main() -> None:
    options = command_line(__doc__.split("\n")[0] if __doc__ else None).parse_args()
    corpus = load_ptb()
    if corpus is None:
        print("nothing measured: there is no Penn Treebank (set WIDEMAX_DATA)")
        return
    frequencies = corpus.counts.double() / corpus.counts.sum()
    best = math.exp(-(frequencies * frequencies.log()).sum().item())
    report = Report(options)
    report.add("frequencies: perplexity", best)
    for corrected in (False, True):
        sampler = PartitionSampler.from_targets(
            corpus.train,
            corpus.num_classes,
            max_classes=PART_CLASSES,
            share_correction=corrected,
        )
        log_prob = fitted_biases(corpus, sampler).log_softmax(0)
        figure = math.exp(-(frequencies * log_prob).sum().item())
        name = "with log π" if corrected else "as published"
        report.add(f"{name}: perplexity", figure, 1.005 * best if corrected else None, "at most")
    report.finish()


if __name__ == "__main__":
    main()
