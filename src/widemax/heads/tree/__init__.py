"""Hierarchical softmax: trees over the classes."""

from widemax.heads.tree.head import HierarchicalHead
from widemax.heads.tree.tree import Tree, TreeSummary

__all__ = ["HierarchicalHead", "Tree", "TreeSummary"]
