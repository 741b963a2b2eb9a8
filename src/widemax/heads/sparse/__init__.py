"""Heads whose distribution gives most classes probability 0 exactly."""

from widemax.heads.sparse.heads import Entmax15Head, SparseHead, SparsemaxHead, TopKSoftmaxHead

__all__ = ["Entmax15Head", "SparseHead", "SparsemaxHead", "TopKSoftmaxHead"]
