"""Models: an encoder, a head, and how examples are cut from sequences."""

from widemax.models.base import Model
from widemax.models.baselines import EASE, IALS, Baseline, ItemKNN, Popularity
from widemax.models.embeddings import (
    CBOW,
    EGES,
    Airbnb,
    BagModel,
    GoalBatch,
    GoalWindows,
    Item2Vec,
    SkipGram,
    Word2VecSteps,
    WordModel,
    keep_probability,
    shuffled_baskets,
    start_small,
    train_word2vec,
)
from widemax.models.language import NNLM, LSTMLanguageModel, NGram, NGramHead
from widemax.models.retrieval import (
    MIND,
    SDM,
    HistoryModel,
    NextItem,
    SASRec,
    TwoTower,
    YouTubeDNN,
)
from widemax.models.segments import SegmentBatch, Segments

__all__ = [
    "CBOW",
    "EASE",
    "EGES",
    "IALS",
    "MIND",
    "NNLM",
    "SDM",
    "Airbnb",
    "BagModel",
    "Baseline",
    "GoalBatch",
    "GoalWindows",
    "HistoryModel",
    "Item2Vec",
    "ItemKNN",
    "LSTMLanguageModel",
    "Model",
    "NGram",
    "NGramHead",
    "NextItem",
    "Popularity",
    "SASRec",
    "SegmentBatch",
    "Segments",
    "SkipGram",
    "TwoTower",
    "Word2VecSteps",
    "WordModel",
    "YouTubeDNN",
    "keep_probability",
    "shuffled_baskets",
    "start_small",
    "train_word2vec",
]
