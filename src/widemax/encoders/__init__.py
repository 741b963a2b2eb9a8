"""Encoders: from the context of an example to its hidden state."""

from widemax.encoders.bag import BagEncoder
from widemax.encoders.lstm import LSTMEncoder
from widemax.encoders.nnlm import NNLMEncoder

__all__ = ["BagEncoder", "LSTMEncoder", "NNLMEncoder"]
