"""Encoders: from the context of an example to its hidden state."""

from widemax.encoders.bag import BagEncoder
from widemax.encoders.features import FeatureEncoder
from widemax.encoders.lstm import LSTMEncoder
from widemax.encoders.mind import MINDEncoder
from widemax.encoders.nnlm import NNLMEncoder
from widemax.encoders.sasrec import SASRecEncoder
from widemax.encoders.sdm import SDMEncoder
from widemax.encoders.side_information import SideInformationEncoder
from widemax.encoders.two_tower import TwoTowerEncoder
from widemax.encoders.youtube_dnn import YouTubeDNNEncoder

__all__ = [
    "BagEncoder",
    "FeatureEncoder",
    "LSTMEncoder",
    "MINDEncoder",
    "NNLMEncoder",
    "SASRecEncoder",
    "SDMEncoder",
    "SideInformationEncoder",
    "TwoTowerEncoder",
    "YouTubeDNNEncoder",
]
