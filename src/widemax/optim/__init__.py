"""Row-sparse optimisers: a step costs what its gradient touches, whatever the table."""

from widemax.optim.adagrad import RowAdagrad, RowwiseAdagrad
from widemax.optim.adam import RowAdam
from widemax.optim.clipping import clip_grad_norm_
from widemax.optim.sgd import RowSGD

OPTIMIZERS = {
    "sgd": RowSGD,
    "adagrad": RowAdagrad,
    "rowwise-adagrad": RowwiseAdagrad,
    "adam": RowAdam,
}
"""The optimisers by the names of a configuration."""

__all__ = [
    "OPTIMIZERS",
    "RowAdagrad",
    "RowAdam",
    "RowSGD",
    "RowwiseAdagrad",
    "clip_grad_norm_",
]
