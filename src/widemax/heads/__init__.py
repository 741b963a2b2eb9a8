"""Heads: the last layer of a model, which owns the output parameters."""

from widemax.heads.base import Head, ScorerHead
from widemax.heads.full import FullHead
from widemax.heads.masks import hits_by_class, hits_by_query
from widemax.heads.sampled import SampledHead

__all__ = ["FullHead", "Head", "SampledHead", "ScorerHead", "hits_by_class", "hits_by_query"]
