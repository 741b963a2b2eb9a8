"""Checks on arguments: each raises before anything is allocated, naming value and limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.devices import by_kernels, demand
from widemax.limits import ABSENT as ABSENT
from widemax.limits import check_fraction as check_fraction
from widemax.limits import check_not_negative as check_not_negative
from widemax.limits import check_positive as check_positive
from widemax.limits import check_whole as check_whole
from widemax.limits import is_finite

MAX_CLASSES = 2**40
"""Most classes of a sampler without a table; float64 still distinguishes every id."""

MAX_TABLE_CLASSES = 2**28
"""Most classes of a sampler that allocates a table by itself."""

MAX_SAMPLES = 2**28
"""Most candidates one call may draw, over all rows of the batch."""

MAX_DISTORTION = 10
"""Largest power of counts, above 0 and below."""

_FEW = 64
"""Of so many ids Python finds the bounds sooner than torch."""


def check_num_classes(num_classes: int, *, limit: int = MAX_CLASSES) -> int:
    """Return ``num_classes`` if it lies between 1 and ``limit``."""
    return check_whole("num_classes", num_classes, 1, limit)


def check_num_samples(num_samples: int | None, *, rows: int = 1) -> int:
    """Return ``num_samples`` if that many candidates for each of ``rows`` rows can be drawn."""
    if num_samples is None:
        raise ValueError("num_samples must be given: this sampler draws as many as it is asked for")
    # A graph may not know how many rows there are.
    alone = rows <= 1 or torch.compiler.is_compiling()
    name = "num_samples" if alone else f"num_samples for each of {rows:,} rows"
    return check_whole(name, num_samples, 1, MAX_SAMPLES // max(rows, 1))


def check_tensor(name: str, value: Tensor) -> Tensor:
    """Return ``value`` if it is a tensor, and not a list or an array."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(value).__name__}")
    return value


def check_dense(name: str, value: Tensor) -> Tensor:
    """Return ``value`` if it is a tensor with all its values, neither sparse nor on "meta"."""
    if check_tensor(name, value).layout != torch.strided:
        raise ValueError(f"{name} must be dense, got layout {value.layout}: call its to_dense()")
    if value.is_meta:
        raise ValueError(f"{name} must hold values, got a tensor on the device meta")
    return value


def as_int64(name: str, ids: Tensor) -> Tensor:
    """Return ``ids`` as int64 if it is a tensor of whole numbers."""
    if check_tensor(name, ids).dtype == torch.int64:
        return ids
    if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise ValueError(f"{name} must hold whole numbers, got dtype {ids.dtype}")
    return ids.long()


def check_ids(name: str, ids: Tensor, num_classes: int, *, absent: bool = False) -> Tensor:
    """Return ``ids`` as int64 if each names a class; with ``absent``, -1 may mark a gap."""
    ids, least = as_int64(name, ids), ABSENT if absent else 0
    if not by_kernels(ids):
        demand(((ids >= least) & (ids < num_classes)).all(), _class_limits(name, num_classes))
    elif ids.numel():
        low, high = _bounds(ids)
        if high >= num_classes or low < least:
            limits = _class_limits(name, num_classes)
            raise ValueError(f"{limits}, got {high if high >= num_classes else low:,}")
    return ids


def _bounds(ids: Tensor) -> tuple[int, int]:
    """Return the lowest and the highest."""
    if ids.numel() <= _FEW:
        few: list[int] = ids.reshape(-1).tolist()
        return min(few), max(few)
    low, high = torch.aminmax(ids)
    return int(low), int(high)


def _class_limits(name: str, num_classes: int) -> str:
    return f"{name} must lie between 0 and {num_classes - 1:,} (num_classes {num_classes:,})"


def check_exclude(exclude: Tensor, rows: int, num_classes: int) -> Tensor:
    """Return the classes that each of ``rows`` rows leaves out, int64 [B, E], padded with -1.

    >>> check_exclude(torch.tensor([[3, -1]]), rows=1, num_classes=10)
    tensor([[ 3, -1]])
    """
    if check_tensor("exclude", exclude).dim() != 2 or len(exclude) != rows:
        raise ValueError(f"exclude must have shape [{rows}, E], got {list(exclude.shape)}")
    return check_ids("exclude", exclude, num_classes, absent=True)


def check_targets(targets: Tensor, num_classes: int, *, absent: bool = True) -> Tensor:
    """Return ``targets`` as int64 [B] or [B, T] if each names a class.

    In [B, T], with ``absent``, -1 marks a missing positive of a row with fewer than T.
    """
    if check_tensor("targets", targets).dim() not in (1, 2):
        raise ValueError(f"targets must have shape [B] or [B, T], got {list(targets.shape)}")
    if targets.dim() == 2 and not 1 <= targets.shape[1] <= num_classes:
        raise ValueError(
            f"targets must hold between 1 and num_classes = {num_classes:,} positives per row, "
            f"got {targets.shape[1]:,}"
        )
    return check_ids("targets", targets, num_classes, absent=absent and targets.dim() == 2)


def check_hidden(hidden: Tensor, dimension: int, *, rows: int | None = None) -> Tensor:
    """Return ``hidden`` if it is a floating [B, ``dimension``] (and has ``rows`` rows)."""
    if check_dense("hidden", hidden).dim() != 2 or hidden.shape[1] != dimension:
        raise ValueError(
            f"hidden must have shape [B, {dimension}], got {list(hidden.shape)}; "
            "flatten leading dimensions first"
        )
    if not hidden.is_floating_point():
        raise ValueError(f"hidden must be floating point, got dtype {hidden.dtype}")
    if rows is not None and hidden.shape[0] != rows:
        raise ValueError(f"hidden has {hidden.shape[0]:,} rows but targets has {rows:,}")
    return hidden


def check_weights(weights: Tensor, rows: int) -> Tensor:
    """Return the weights of examples if they are ``rows`` finite numbers of at least 0.

    >>> check_weights(torch.tensor([1.0, 0.0]), rows=2)
    tensor([1., 0.])
    """
    if check_dense("weights", weights).shape != (rows,):
        raise ValueError(f"weights must have shape [{rows}], got {list(weights.shape)}")
    if weights.is_complex():
        raise ValueError(f"weights must be real numbers, got dtype {weights.dtype}")
    if not by_kernels(weights):
        fine = (weights >= 0) & weights.isfinite()
        demand(fine.all(), "weights must be finite and at least 0")
    elif rows:
        # Smallest and largest carry NaN along.
        low, high = (float(bound) for bound in torch.aminmax(weights.detach()))
        if not (low >= 0 and math.isfinite(high)):
            wrong = low if low < 0 else high
            raise ValueError(f"weights must be finite and at least 0, got {wrong}")
    return weights


def check_generator(generator: torch.Generator | None, device: torch.device) -> None:
    """Refuse what is no generator, or one that cannot draw on this device; None is torch's own."""
    if generator is None:
        return
    if not isinstance(generator, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    if generator.device.type != device.type:
        raise ValueError(
            f"generator must be on {device.type} like hidden, got one on {generator.device.type}"
        )


def check_ignore_index(ignore_index: int) -> int:
    """Return the target that does not count, which any int64 may be."""
    return check_whole("ignore_index", ignore_index, -(2**63), 2**63 - 1)


Counts = Tensor | NDArray[Any] | Sequence[float]
"""Counts of the classes as a user hands them over."""


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
    """Return count^distortion, the largest scaled to 1, and 0 for count 0 whatever the power.

    >>> [distorted_weights([4, 1, 0], 3, power).tolist() for power in (0.5, -0.5)]
    [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0]]
    """
    if not (is_finite(distortion) and abs(distortion) <= MAX_DISTORTION):
        raise ValueError(
            f"distortion must be a finite number between {-MAX_DISTORTION} and {MAX_DISTORTION}, "
            f"got {distortion!r}"
        )
    array = check_counts(counts, num_classes)
    seen = array > 0
    # Divided by the largest, or below 0 by the smallest, no power can overflow.
    divisor = array.max() if distortion >= 0 else array[seen].min()
    weights: NDArray[np.float64] = np.divide(array, divisor, dtype=np.float64)
    with np.errstate(divide="ignore"):
        np.power(weights, distortion, out=weights)
    weights[~seen] = 0.0
    return weights
