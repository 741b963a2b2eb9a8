"""Inner products as angles: class vectors of any length, put on one sphere."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.index.rows import ClassRows
from widemax.scoring.rows import widened

_TINY = np.finfo(np.float64).tiny


def classes_on_sphere(rows: ClassRows, *, like: ClassRows | None = None) -> NDArray[np.float32]:
    """Return [v, b, sqrt(M² − |v|² − b²)] / M for each class, M the longest [v, b].

    By plain inner product a long vector is near to everything and a short one not even to itself:
    graphs lose their way, and clusters have no centre. On the sphere the order of scores is that
    of angles (Bachrach et al. 2014). The bias, where there is one, is a coordinate that meets a 1
    in the query. ``like`` are rows whose M is taken: one longer than M gets a last coordinate of 0,
    and lies outside, where its products are still right.
    """
    vectors = widened(rows.vectors)
    parts = [vectors] if rows.biases is None else [vectors, rows.biases[:, None]]
    for name, part in (("class vectors", vectors), ("biases", parts[-1])):
        if not bool(part.isfinite().all()):
            raise ValueError(f"the {name} of the head must be finite: search them with ExactIndex")
    squares = _squares(rows)
    longest = (squares if like is None else _squares(like)).max()
    longest = longest.clamp(min=torch.finfo(torch.float32).tiny)
    missing = (longest - squares).clamp(min=0).sqrt()[:, None]
    # Divided part by part, so that nothing of this size is in float64.
    scaled = [(part / longest.sqrt()).float() for part in (*parts, missing)]
    return np.ascontiguousarray(torch.cat(scaled, dim=1).cpu().numpy())


def _squares(rows: ClassRows) -> Tensor:
    """Return |v|² + b² of each class, float64 [V]."""
    lengths: Tensor = torch.linalg.vector_norm(widened(rows.vectors), dim=1, dtype=torch.float64)
    squares = lengths.square()
    return squares if rows.biases is None else squares + rows.biases.double() ** 2


def queries_on_sphere(rows: ClassRows, queries: Tensor) -> NDArray[np.float32]:
    """Return [q, 1, 0] scaled to length 1: scaling changes no order, and overflows nowhere."""
    given = queries.detach().cpu().numpy()
    count, width = given.shape
    points = np.zeros((count, width + (1 if rows.biases is None else 2)))
    points[:, :width] = given
    if rows.biases is not None:
        points[:, width] = 1
    lengths = np.sqrt(np.vecdot(points, points))[:, None]
    points /= np.maximum(lengths, _TINY)
    return points.astype(np.float32)
