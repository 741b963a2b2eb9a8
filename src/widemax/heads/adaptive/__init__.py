"""Adaptive softmax: rare classes in clusters of smaller dimension."""

from widemax.heads.adaptive.cost_model import CostModel
from widemax.heads.adaptive.cutoffs import choose_cutoffs
from widemax.heads.adaptive.head import AdaptiveHead

__all__ = ["AdaptiveHead", "CostModel", "choose_cutoffs"]
