"""The skip-gram family: vectors from what stands together."""

from typing import TYPE_CHECKING

import lazy_loader

from widemax.models.embeddings.airbnb import Airbnb, GoalBatch, GoalWindows
from widemax.models.embeddings.airbnb_types import (
    AirbnbTypes,
    RequestBatch,
    RequestWindows,
    TypeEncoder,
    TypeScorer,
    types_of,
)
from widemax.models.embeddings.eges import EGES
from widemax.models.embeddings.item2vec import Item2Vec, shuffled_baskets
from widemax.models.embeddings.new_items import (
    nearest_known,
    place_new_classes,
    place_new_items,
)
from widemax.models.embeddings.word2vec import (
    CBOW,
    BagModel,
    SkipGram,
    WordModel,
    keep_probability,
    start_small,
)

# It loads Numba, which only training needs.
if TYPE_CHECKING:
    from widemax.models.embeddings.kernel_steps import Word2VecSteps, train_word2vec
else:
    __getattr__, __dir__, _ = lazy_loader.attach(
        __name__, submod_attrs={"kernel_steps": ["Word2VecSteps", "train_word2vec"]}
    )

__all__ = [
    "CBOW",
    "EGES",
    "Airbnb",
    "AirbnbTypes",
    "BagModel",
    "GoalBatch",
    "GoalWindows",
    "Item2Vec",
    "RequestBatch",
    "RequestWindows",
    "SkipGram",
    "TypeEncoder",
    "TypeScorer",
    "Word2VecSteps",
    "WordModel",
    "keep_probability",
    "nearest_known",
    "place_new_classes",
    "place_new_items",
    "shuffled_baskets",
    "start_small",
    "train_word2vec",
    "types_of",
]
