"""The names of the room: each is imported when it is first asked for."""

from .bag import BagEncoder as BagEncoder
from .features import FeatureEncoder as FeatureEncoder
from .lstm import LSTMEncoder as LSTMEncoder
from .mind import MINDEncoder as MINDEncoder
from .nnlm import NNLMEncoder as NNLMEncoder
from .sasrec import SASRecEncoder as SASRecEncoder
from .sdm import SDMEncoder as SDMEncoder
from .side_information import SideInformationEncoder as SideInformationEncoder
from .two_tower import TwoTowerEncoder as TwoTowerEncoder
from .youtube_dnn import YouTubeDNNEncoder as YouTubeDNNEncoder
