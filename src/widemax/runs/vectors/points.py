"""Classes and hidden states as points of a database: their product is the score of the model."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.heads import ScorerHead
from widemax.index.rows import ClassRows
from widemax.models import Model
from widemax.runs.vectors.indexes import searches_by_product
from widemax.scoring.rows import widened

Points = NDArray[np.float32]


def class_points(model: Model) -> Points | None:
    """Return [v, b, sqrt(M² − |v|² − b²)] of each class, M the longest; None if nothing is ranked.

    The product with [q, 1, 0] is the score, and as all have the length M their order is that of
    angles. The first coordinates are the class vectors, bit for bit.
    """
    if not searches_by_product(model):
        return None
    assert isinstance(model.head, ScorerHead)
    rows = ClassRows.of_head(model.head)
    parts = [widened(rows.vectors).float()]
    if rows.biases is not None:
        parts.append(rows.biases.float()[:, None])
    known = torch.cat(parts, dim=1)
    squares = known.double().square().sum(1)
    missing = (squares.max() - squares).clamp(min=0).sqrt()
    return as_array(torch.cat([known, missing[:, None].float()], dim=1))


def query_points(model: Model, hidden: Tensor) -> Points:
    """Return [q, 1, 0] of hidden states [B, D], whose product with a point is the score."""
    assert isinstance(model.head, ScorerHead)
    scorer = model.head.scorer
    queries = scorer.queries(hidden.float()).detach().float()
    parts = [queries]
    if scorer.class_biases() is not None:
        parts.append(queries.new_ones(len(queries), 1))
    return as_array(torch.cat([*parts, queries.new_zeros(len(queries), 1)], dim=1))


def as_array(tensor: Tensor) -> Points:
    """Return a tensor as an array of float32, in one piece."""
    array: Points = np.ascontiguousarray(tensor.detach().cpu().numpy(), np.float32)
    return array
