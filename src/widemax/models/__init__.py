"""Models: an encoder, a head, and how examples are cut from sequences."""

from widemax.models.bag import CBOW, BagModel, NextItem
from widemax.models.base import Model

__all__ = ["CBOW", "BagModel", "Model", "NextItem"]
