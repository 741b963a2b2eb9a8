"""Optimisers: by the rows a gradient touches, whatever the table, or by all of them."""

from widemax.optim.adagrad import RowAdagrad, RowwiseAdagrad
from widemax.optim.adam import RowAdam
from widemax.optim.clipping import clip_grad_norm_
from widemax.optim.decay import decay_groups, table_parameters
from widemax.optim.dense_adam import DenseAdam
from widemax.optim.exchange import exchange_rows
from widemax.optim.for_model import JointOptimizer, optimizer_for
from widemax.optim.sgd import RowSGD
from widemax.optim.tables import sparse_parameters

OPTIMIZERS = {
    "sgd": RowSGD,
    "adagrad": RowAdagrad,
    "rowwise-adagrad": RowwiseAdagrad,
    "adam": RowAdam,
    "dense-adam": DenseAdam,
}
"""The optimisers by the names of a configuration."""

__all__ = [
    "OPTIMIZERS",
    "DenseAdam",
    "JointOptimizer",
    "RowAdagrad",
    "RowAdam",
    "RowSGD",
    "RowwiseAdagrad",
    "clip_grad_norm_",
    "decay_groups",
    "exchange_rows",
    "optimizer_for",
    "sparse_parameters",
    "table_parameters",
]
