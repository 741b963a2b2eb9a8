"""Training: the loop, its checkpoints, and what it is held to."""

from widemax.training.guard import NonFiniteError, check_finite
from widemax.training.loop import Interrupted
from widemax.training.word2vec import Word2VecSteps, train_word2vec

__all__ = [
    "Interrupted",
    "NonFiniteError",
    "Word2VecSteps",
    "check_finite",
    "train_word2vec",
]
