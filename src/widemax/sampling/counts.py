"""Counts of the classes as a user hands them over: a tensor, an array or a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Counts = Tensor | NDArray[Any] | Sequence[float]


def check_counts(counts: Counts, num_classes: int) -> NDArray[Any]:
    """Return ``counts`` as an array if it holds one finite count ≥ 0 per class, not all 0."""
    if isinstance(counts, Tensor):
        # NumPy has no bfloat16.
        counts = counts.float() if counts.dtype == torch.bfloat16 else counts
        array = counts.detach().cpu().numpy()
    else:
        array = np.asarray(counts)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"counts must hold numbers, got dtype {array.dtype}")
    if array.shape != (num_classes,):
        raise ValueError(
            f"counts must have shape [num_classes] = [{num_classes:,}], got {list(array.shape)}"
        )
    # min and max carry NaN along, so one pass each finds every bad value.
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and np.isfinite(high)):
        wrong = int(np.flatnonzero(~(np.isfinite(array) & (array >= 0)))[0])
        raise ValueError(
            f"counts must be finite and at least 0, got {array[wrong]} for class {wrong:,}"
        )
    if high == 0:
        raise ValueError(f"counts must be above 0 for some class, got {num_classes:,} zeros")
    return array
