"""Models of users: the next item from a history."""

from widemax.models.retrieval.history import HistoryModel
from widemax.models.retrieval.mind import MIND
from widemax.models.retrieval.next_item import NextItem
from widemax.models.retrieval.sasrec import SASRec
from widemax.models.retrieval.sdm import SDM
from widemax.models.retrieval.two_tower import TwoTower
from widemax.models.retrieval.youtube_dnn import YouTubeDNN

__all__ = ["MIND", "SDM", "HistoryModel", "NextItem", "SASRec", "TwoTower", "YouTubeDNN"]
