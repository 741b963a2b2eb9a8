"""Training: the loop, its checkpoints, and what it is held to."""

from widemax.training.guard import NonFiniteError, check_finite
from widemax.training.loop import Interrupted

__all__ = ["Interrupted", "NonFiniteError", "check_finite"]
