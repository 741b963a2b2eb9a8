"""Cases beside those of head_cases: spelled classes, n-gram proposals and what goes with them."""

from functools import partial

import torch

from tests.heads.head_cases import DIMENSION, NUM_CLASSES, OBJECTIVES, STOPS_GRADIENTS
from widemax.data import Sequences
from widemax.heads import FullHead, SampledHead
from widemax.heads.importance import ImportanceHead
from widemax.heads.normalised import InfrequentHead, SelfNormalisedHead
from widemax.ngrams import NGramModel
from widemax.sampling import AdaptiveNGramSampler, KneserNeySampler, UniformSampler
from widemax.sampling.conditional.hard import HardNegativeSampler
from widemax.sampling.conditional.ngram import NGramSampler
from widemax.scoring import TableScorer
from widemax.scoring.char_cnn import CharCNNScorer


def corpus():
    """Every class follows some others, the first ones more often."""
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(500, generator=generator).square() * NUM_CLASSES).long()


def ngram():
    """A sampler in a context it has seen, the same for every row."""
    text = corpus()
    sampler = NGramSampler.from_corpus(text, NUM_CLASSES, order=3)
    sampler.set_context(text[None, :2])
    return sampler


def adaptive_ngram():
    """The same with n-grams that can move."""
    text = corpus()
    sampler = AdaptiveNGramSampler.from_corpus(text, NUM_CLASSES, order=3)
    sampler.set_context(text[None, :2])
    return sampler


def kneser_ney():
    """The same with a smoothed model."""
    text = corpus()
    sequences = Sequences(text, torch.tensor([0, len(text)]))
    sampler = KneserNeySampler(NGramModel.modified_kneser_ney(sequences, NUM_CLASSES, order=3))
    sampler.set_context(text[None, :2])
    return sampler


def spelled(**options):
    spellings = [f"class {index}" for index in range(NUM_CLASSES)]
    sizes = {"char_dimension": 3, "widths": (1, 2, 3), "filters": 4, "correction_dimension": 2}
    return CharCNNScorer(spellings, DIMENSION, **{**sizes, **options})


SCORERS = {
    "char-cnn": spelled,
    "char-cnn, bias": lambda: spelled(bias=True),
    "char-cnn, spelling alone": lambda: spelled(correction_dimension=0),
}

SAMPLERS = {
    "adaptive-n-gram": lambda: (adaptive_ngram(), 12),
    "kneser-ney": lambda: (kneser_ney(), 12),
    "n-gram": lambda: (ngram(), 12),
    "n-gram, no context": lambda: (NGramSampler.from_corpus(corpus(), NUM_CLASSES, order=2), 12),
}


def table():
    return TableScorer(NUM_CLASSES, DIMENSION, bias=True)


def hard_negatives(objective):
    scorer = table()
    sampler = HardNegativeSampler(NUM_CLASSES, FullHead(scorer).topk, first_rank=2)
    return SampledHead(scorer, sampler, objective=objective, num_samples=6)


def sampled(make_sampler, objective):
    sampler, num_samples = make_sampler()
    return SampledHead(table(), sampler, objective=objective, num_samples=num_samples)


def importance(make_sampler, effective_size):
    sampler, num_samples = make_sampler()
    return ImportanceHead(table(), sampler, num_samples=num_samples, effective_size=effective_size)


def heads():
    for name, scorer in SCORERS.items():
        yield f"full, {name}", partial(lambda scorer: FullHead(scorer()), scorer), True
    for sampler_name, make in SAMPLERS.items():
        for name, objective in OBJECTIVES.items():
            gradients = name not in STOPS_GRADIENTS
            yield f"{sampler_name} × {name}", partial(sampled, make, objective), gradients
        yield f"importance, {sampler_name}", partial(importance, make, 20), True
    for name, objective in OBJECTIVES.items():
        gradients = name not in STOPS_GRADIENTS
        yield f"hard negatives × {name}", partial(hard_negatives, objective), gradients
    yield (
        "importance",
        partial(importance, lambda: (UniformSampler(NUM_CLASSES), 12), None),
        True,
    )
    yield "self-normalised", lambda: SelfNormalisedHead(table()), True
    yield "infrequent", lambda: InfrequentHead(table(), alpha=2.0, fraction=0.5), True


HEADS = {name: (make, gradients) for name, make, gradients in heads()}
