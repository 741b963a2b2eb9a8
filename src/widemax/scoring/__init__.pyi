"""The names of the room: each is imported when it is first asked for."""

from .base import Scorer as Scorer
from .char_cnn import CharCNNScorer as CharCNNScorer
from .differentiated import DifferentiatedScorer as DifferentiatedScorer
from .mapped import MappedTableScorer as MappedTableScorer
from .rows import gather_rows as gather_rows
from .sharded import ShardedTableScorer as ShardedTableScorer
from .sharded import shard_classes as shard_classes
from .sharded import sharded_rows as sharded_rows
from .table import TableScorer as TableScorer
from .tower import RowFeatures as RowFeatures
from .tower import TowerScorer as TowerScorer
