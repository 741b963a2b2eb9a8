"""Heads: the last layer of a model, which owns the output parameters."""

from widemax.heads.adaptive import AdaptiveHead, CostModel
from widemax.heads.base import BatchHead, Head, ScorerHead
from widemax.heads.conversion import (
    as_full_head,
    as_sampled_head,
    as_table,
    class_vectors_of,
    copy_class_vectors,
)
from widemax.heads.full import FullHead
from widemax.heads.importance import ImportanceDraw, ImportanceHead
from widemax.heads.layered import LayeredHead
from widemax.heads.masks import hits_by_class, hits_by_query
from widemax.heads.normalised import (
    InfrequentHead,
    LogNormalizerStatistics,
    SelfNormalisedHead,
    log_normalizer_statistics,
)
from widemax.heads.sampled import SampledHead
from widemax.heads.sparse import Entmax15Head, SparseHead, SparsemaxHead, TopKSoftmaxHead
from widemax.heads.tree import HierarchicalHead, Tree, TreeSummary

__all__ = [
    "AdaptiveHead",
    "BatchHead",
    "CostModel",
    "Entmax15Head",
    "FullHead",
    "Head",
    "HierarchicalHead",
    "ImportanceDraw",
    "ImportanceHead",
    "InfrequentHead",
    "LayeredHead",
    "LogNormalizerStatistics",
    "SampledHead",
    "ScorerHead",
    "SelfNormalisedHead",
    "SparseHead",
    "SparsemaxHead",
    "TopKSoftmaxHead",
    "Tree",
    "TreeSummary",
    "as_full_head",
    "as_sampled_head",
    "as_table",
    "class_vectors_of",
    "copy_class_vectors",
    "hits_by_class",
    "hits_by_query",
    "log_normalizer_statistics",
]
