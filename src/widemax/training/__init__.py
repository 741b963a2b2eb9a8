"""Training: what a loop needs beside the model."""

from widemax.training.guard import NonFiniteError, check_finite

__all__ = ["NonFiniteError", "check_finite"]
