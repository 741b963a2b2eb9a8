"""A feed-forward neural language model on Brown, alone and mixed with a Kneser–Ney trigram.

The model of Bengio, Ducharme, Vincent & Janvin 2003: the vectors of the last four words, a tanh
layer, a softmax over 17,905 words. Trained by sampled softmax with the log Q correction; all
perplexities are exact. Input and output vectors are one table, inputs and hidden layer have
dropout. Words seen at most three times in the corpus are <unk>; the first 800,000 words train,
the next 200,000 choose the best epoch (by each tenth word), and the rest is measured once, at
the end.

777 words stand only in the parts that are not trained on. Gradients say nothing of them, so each
is given the vector of <unk>, which stands for rare words too, and its bias less a constant:
together they are to <unk> as they are in the validation part. What this gains is not to be had
on words that were seen: their perplexity is reported apart.

    python experiments/nnlm_brown.py [--json FILE] [--check]
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from _common import DATA
from _harness import Report, command_line
from _language import Corpus, decay_groups, load_brown, perplexity, stream_log_probs, train
from widemax.data import Sequences
from widemax.encoders import NNLMEncoder
from widemax.evaluation import PerplexityReport, mixed_perplexity
from widemax.heads import SampledHead
from widemax.models import NNLM
from widemax.ngrams import NGramModel
from widemax.optim import RowAdam
from widemax.sampling import UnigramSampler
from widemax.scoring import TableScorer

CONTEXT_SIZE = 4
DIMENSION = 200
DROPOUT = 0.4
NUM_SAMPLES = 768
EPOCHS = 10
BATCH_SIZE = 1024
LEARNING_RATE = 2e-3
VALID_EVERY = 10
SEED = 1

# Of the order of what Bengio et al. 2003 report for their slightly smaller vocabulary.
MOST_ALONE, MOST_MIXED = 276.0, 259.0
TRIGRAM_KNOWN = 332.6
MOST_SECONDS = 7200.0


def build(corpus: Corpus) -> NNLM:
    """Return the untrained model, its biases at the logarithm of the counts."""
    torch.manual_seed(SEED)
    size = corpus.num_classes
    table = nn.Embedding(size, DIMENSION)
    encoder = NNLMEncoder(size, CONTEXT_SIZE, DIMENSION, DIMENSION, dropout=DROPOUT, sparse=True)
    table.weight = encoder.weight
    scorer = TableScorer.tied(table, bias=True, sparse=True)
    with torch.no_grad():
        scorer.bias.copy_((corpus.counts + 0.5).log() - math.log(len(corpus.train)))
    # A word that was never seen is never drawn: it borrows what it has from <unk>.
    sampler = UnigramSampler(size, corpus.counts, unique=True)
    return NNLM(encoder, SampledHead(scorer, sampler, num_samples=NUM_SAMPLES))


class UnseenWords:
    """The words that training never shows, and how they borrow from <unk>."""

    def __init__(self, corpus: Corpus) -> None:
        self.unknown = corpus.vocabulary.id_of("<unk>")
        self.unseen = corpus.counts == 0
        unseen_tokens = int(self.unseen[corpus.valid].sum())
        unknown_tokens = int((corpus.valid == self.unknown).sum())
        self.log_share = math.log(unseen_tokens / unknown_tokens / int(self.unseen.sum()))

    @torch.no_grad()
    def lend(self, model: NNLM) -> None:
        """Give them the vector of <unk>, as input and as output, and a share of its bias."""
        scorer = model.head.scorer
        scorer.weight[self.unseen] = scorer.weight[self.unknown].clone()
        scorer.bias[self.unseen] = scorer.bias[self.unknown] + self.log_share


def trigram_log_probs(corpus: Corpus) -> Tensor:
    """Return log P of each word of the test part by the modified Kneser–Ney trigram."""
    fitted = NGramModel.modified_kneser_ney(whole(corpus.train), corpus.num_classes, order=3)
    return fitted.token_log_prob(whole(corpus.test))


def whole(stream: Tensor) -> Sequences:
    return Sequences(stream, torch.tensor([0, len(stream)]))


def add_test_figures(report: Report, corpus: Corpus, neural: Tensor) -> None:
    trigram = trigram_log_probs(corpus)
    seen = corpus.counts[corpus.test] > 0
    alone, counted, alone_seen, counted_seen = (
        PerplexityReport.from_log_probs(each).perplexity
        for each in (neural, trigram, neural[seen], trigram[seen])
    )
    mixed = mixed_perplexity(neural, trigram, 0.5).perplexity
    report.add("test perplexity, neural model", alone, MOST_ALONE, "at most")
    report.add("test perplexity, mixed half and half", mixed, MOST_MIXED, "at most")
    report.add("test perplexity, trigram", counted)
    off = abs(counted - TRIGRAM_KNOWN)
    report.add(f"trigram, off the known {TRIGRAM_KNOWN}", off, 0.1, "at most")
    report.add("on words seen in training only, neural model", alone_seen)
    report.add("on words seen in training only, trigram", counted_seen)


def main() -> None:
    report = Report(command_line(__doc__.split("\n")[0] if __doc__ else None).parse_args())
    corpus = load_brown()
    if corpus is None:
        print(f"nothing measured: there is no Brown corpus in {DATA} (set WIDEMAX_DATA)")
        return
    torch.set_num_threads(1)
    start = time.perf_counter()
    model, words = build(corpus), UnseenWords(corpus)
    history = train(
        model,
        corpus.train,
        corpus.valid,
        RowAdam(decay_groups(model, 0.0)),
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        schedule="linear",
        seed=SEED,
        valid_every=VALID_EVERY,
        before_evaluation=lambda: words.lend(model),
    )
    report.add("epochs until the best", history.best.epoch)
    report.add("valid perplexity, neural model", perplexity(model, corpus.valid))
    add_test_figures(report, corpus, stream_log_probs(model, corpus.test))
    report.add("seconds of training steps", history.seconds)
    report.add("seconds in all", time.perf_counter() - start, MOST_SECONDS, "at most")
    report.finish()


if __name__ == "__main__":
    main()
