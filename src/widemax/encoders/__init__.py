"""Encoders: from the context of an example to its hidden state."""

from widemax.encoders.bag import BagEncoder

__all__ = ["BagEncoder"]
