"""Models: an encoder, a head, and how examples are cut from sequences."""

from widemax.models.airbnb import Airbnb, GoalBatch, GoalWindows
from widemax.models.bag import BagModel, NextItem
from widemax.models.base import Model
from widemax.models.baselines import Baseline
from widemax.models.ease import EASE
from widemax.models.eges import EGES
from widemax.models.history import HistoryModel
from widemax.models.ials import IALS
from widemax.models.item2vec import Item2Vec, shuffled_baskets
from widemax.models.item_knn import ItemKNN
from widemax.models.language import NNLM, LSTMLanguageModel
from widemax.models.mind import MIND
from widemax.models.ngram import NGram, NGramHead
from widemax.models.popularity import Popularity
from widemax.models.sasrec import SASRec
from widemax.models.sdm import SDM
from widemax.models.segments import SegmentBatch, Segments
from widemax.models.two_tower import TwoTower
from widemax.models.word2vec import CBOW, SkipGram, WordModel, keep_probability, start_small
from widemax.models.youtube_dnn import YouTubeDNN

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
    "WordModel",
    "YouTubeDNN",
    "keep_probability",
    "shuffled_baskets",
    "start_small",
]
