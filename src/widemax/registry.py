"""Names and what they stand for: the one place where a string becomes a class or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from widemax.heads import (
    AdaptiveHead,
    Entmax15Head,
    FullHead,
    Head,
    HierarchicalHead,
    ImportanceHead,
    InfrequentHead,
    SampledHead,
    SelfNormalisedHead,
    SparsemaxHead,
    TopKSoftmaxHead,
)
from widemax.models import (
    CBOW,
    EASE,
    EGES,
    IALS,
    MIND,
    NNLM,
    SDM,
    Airbnb,
    Item2Vec,
    ItemKNN,
    LSTMLanguageModel,
    Model,
    NextItem,
    NGram,
    Popularity,
    SASRec,
    SkipGram,
    TwoTower,
    YouTubeDNN,
)
from widemax.ngrams import NGramModel
from widemax.objectives import (
    corrected_log_q,
    full_logistic,
    full_softmax,
    gbce,
    importance_sampling,
    info_nce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)
from widemax.sampling import (
    AllClassesSampler,
    BatchHardNegativeSampler,
    HardNegativeSampler,
    InBatchSampler,
    KneserNeySampler,
    LearnedUnigramSampler,
    LogUniformSampler,
    MarketSampler,
    MixtureSampler,
    NGramSampler,
    PartitionSampler,
    QueueSampler,
    Sampler,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import (
    CharCNNScorer,
    DifferentiatedScorer,
    Scorer,
    TableScorer,
    TowerScorer,
)

SAMPLERS: Mapping[str, type[Sampler]] = {
    "all": AllClassesSampler,
    "batch-hard-negatives": BatchHardNegativeSampler,
    "hard-negatives": HardNegativeSampler,
    "in-batch": InBatchSampler,
    "kneser-ney": KneserNeySampler,
    "learned-unigram": LearnedUnigramSampler,
    "log-uniform": LogUniformSampler,
    "market": MarketSampler,
    "mixture": MixtureSampler,
    "n-gram": NGramSampler,
    "partition": PartitionSampler,
    "queue": QueueSampler,
    "uniform": UniformSampler,
    "unigram": UnigramSampler,
}

OBJECTIVES: Mapping[str, Callable[..., Tensor]] = {
    "corrected-log-q": corrected_log_q,
    "full-logistic": full_logistic,
    "full-softmax": full_softmax,
    "gbce": gbce,
    "importance-sampling": importance_sampling,
    "info-nce": info_nce,
    "nce": nce,
    "negative-sampling": negative_sampling,
    "sampled-logistic": sampled_logistic,
    "sampled-softmax": sampled_softmax,
}

SCORERS: Mapping[str, type[Scorer]] = {
    "char-cnn": CharCNNScorer,
    "differentiated": DifferentiatedScorer,
    "table": TableScorer,
    "tower": TowerScorer,
}

HEADS: Mapping[str, type[Head]] = {
    "adaptive": AdaptiveHead,
    "entmax-1.5": Entmax15Head,
    "full": FullHead,
    "hierarchical": HierarchicalHead,
    "importance": ImportanceHead,
    "infrequent": InfrequentHead,
    "sampled": SampledHead,
    "self-normalised": SelfNormalisedHead,
    "sparsemax": SparsemaxHead,
    "top-k-softmax": TopKSoftmaxHead,
}

MODELS: Mapping[str, type[Model]] = {
    "airbnb": Airbnb,
    "cbow": CBOW,
    "ease": EASE,
    "eges": EGES,
    "ials": IALS,
    "item-knn": ItemKNN,
    "item2vec": Item2Vec,
    "lstm": LSTMLanguageModel,
    "mind": MIND,
    "n-gram": NGram,
    "next-item": NextItem,
    "nnlm": NNLM,
    "popularity": Popularity,
    "sasrec": SASRec,
    "sdm": SDM,
    "skip-gram": SkipGram,
    "two-tower": TwoTower,
    "youtube-dnn": YouTubeDNN,
}

SMOOTHINGS: Mapping[str, Callable[..., NGramModel]] = {
    "kneser-ney": NGramModel.kneser_ney,
    "maximum-likelihood": NGramModel.maximum_likelihood,
    "modified-kneser-ney": NGramModel.modified_kneser_ney,
}
