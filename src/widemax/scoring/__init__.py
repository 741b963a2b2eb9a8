"""Scorers: where a class's vector comes from."""

from widemax.scoring.base import Scorer
from widemax.scoring.table import TableScorer

__all__ = ["Scorer", "TableScorer"]
