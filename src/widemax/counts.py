"""Counts of the classes as a user hands them over: a tensor, an array or a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.validation import check_not_negative

Counts = Tensor | NDArray[Any] | Sequence[float]


def check_counts(
    counts: Counts, num_classes: int | None = None, *, all_zero: bool = False
) -> NDArray[Any]:
    """Return ``counts`` as an array if it holds one finite count ≥ 0 per class, not all 0.

    Without ``num_classes`` there are as many classes as counts; ``all_zero`` allows only zeros.

    >>> check_counts([3, 0, 1]).tolist()
    [3, 0, 1]
    """
    if isinstance(counts, Tensor):
        # NumPy has no bfloat16.
        counts = counts.float() if counts.dtype == torch.bfloat16 else counts
        array = counts.detach().cpu().numpy()
    else:
        array = np.asarray(counts)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"counts must hold numbers, got dtype {array.dtype}")
    if num_classes is None:
        if array.ndim != 1 or not len(array):
            raise ValueError(f"counts must have shape [V], V at least 1, got {list(array.shape)}")
    elif array.shape != (num_classes,):
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
    if high == 0 and not all_zero:
        raise ValueError(f"counts must be above 0 for some class, got {len(array):,} zeros")
    return array


def distorted_weights(counts: Counts, num_classes: int, distortion: float) -> NDArray[np.float64]:
    """Return count^distortion, and 0 for count 0 even where the distortion is 0.

    >>> distorted_weights([4, 1, 0], 3, 0.5).tolist()
    [1.0, 0.5, 0.0]
    """
    check_not_negative("distortion", distortion)
    array = check_counts(counts, num_classes)
    # Divided by the largest, no power can overflow.
    weights: NDArray[np.float64] = np.divide(array, array.max(), dtype=np.float64)
    np.power(weights, distortion, out=weights)
    weights[array == 0] = 0.0
    return weights
