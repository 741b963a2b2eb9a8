"""Recommenders that are fitted in one go, which models are judged by."""

from widemax.models.baselines.base import Baseline
from widemax.models.baselines.ease import EASE
from widemax.models.baselines.ials import IALS
from widemax.models.baselines.item_knn import ItemKNN
from widemax.models.baselines.popularity import Popularity

__all__ = ["EASE", "IALS", "Baseline", "ItemKNN", "Popularity"]
