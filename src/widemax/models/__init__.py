"""Models: an encoder, a head, and how examples are cut from sequences."""

from widemax.models.bag import BagModel, NextItem
from widemax.models.base import Model
from widemax.models.baselines.base import Baseline
from widemax.models.baselines.ease import EASE
from widemax.models.baselines.ials import IALS
from widemax.models.baselines.item_knn import ItemKNN
from widemax.models.baselines.popularity import Popularity
from widemax.models.embeddings.airbnb import Airbnb, GoalBatch, GoalWindows
from widemax.models.embeddings.eges import EGES
from widemax.models.embeddings.item2vec import Item2Vec, shuffled_baskets
from widemax.models.embeddings.kernel_steps import Word2VecSteps, train_word2vec
from widemax.models.embeddings.word2vec import (
    CBOW,
    SkipGram,
    WordModel,
    keep_probability,
    start_small,
)
from widemax.models.language.neural import NNLM, LSTMLanguageModel
from widemax.models.language.ngram import NGram, NGramHead
from widemax.models.retrieval.history import HistoryModel
from widemax.models.retrieval.mind import MIND
from widemax.models.retrieval.sasrec import SASRec
from widemax.models.retrieval.sdm import SDM
from widemax.models.retrieval.two_tower import TwoTower
from widemax.models.retrieval.youtube_dnn import YouTubeDNN
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
