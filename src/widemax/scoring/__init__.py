"""Scorers: where a class's vector comes from."""

from widemax.scoring.base import Scorer
from widemax.scoring.char_cnn import CharCNNScorer
from widemax.scoring.differentiated import DifferentiatedScorer
from widemax.scoring.mapped import MappedTableScorer
from widemax.scoring.rows import gather_rows
from widemax.scoring.sharded import ShardedTableScorer, shard_classes, sharded_rows
from widemax.scoring.table import TableScorer
from widemax.scoring.tower import RowFeatures, TowerScorer

__all__ = [
    "CharCNNScorer",
    "DifferentiatedScorer",
    "MappedTableScorer",
    "RowFeatures",
    "Scorer",
    "ShardedTableScorer",
    "TableScorer",
    "TowerScorer",
    "gather_rows",
    "shard_classes",
    "sharded_rows",
]
