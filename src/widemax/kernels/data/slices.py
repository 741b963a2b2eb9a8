"""Parts of sequences that lie end to end: which values stay, copied in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.data.blocks import in_blocks
from widemax.kernels.data.memory import unset

Numbers = NDArray[np.int64]
Codes = NDArray[Any]
"""Whole numbers of any size."""

_kernel = njit(cache=True, nogil=True)


@_kernel
def part_lengths(parts: NDArray[np.uint8], offsets: Numbers, num_parts: int) -> Numbers:
    """Return how many values of each part 0 … num_parts − 1 every sequence has, [num_parts, N].

    >>> part_lengths(np.array([0, 1, 1], np.uint8), np.array([0, 2, 3]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    lengths = np.zeros((num_parts, len(offsets) - 1), np.int64)
    for row in range(len(offsets) - 1):
        for place in range(offsets[row], offsets[row + 1]):
            lengths[parts[place], row] += 1
    return lengths


def joined_slices(values: NDArray[Any], starts: Numbers, lengths: Numbers) -> NDArray[Any]:
    """Return the slices values[starts[i] : starts[i] + lengths[i]] end to end.

    >>> joined_slices(np.array([5, 6, 7, 8]), np.array([0, 3]), np.array([2, 1])).tolist()
    [5, 6, 8]
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    joined = unset(int(offsets[-1]), values.dtype)
    in_blocks(
        lambda start, stop: _join(start, stop, values, starts, offsets, joined),
        len(joined),
        offsets,
    )
    return joined


@_kernel
def _join(
    start: int, stop: int, values: NDArray[Any], starts: Numbers, offsets: Numbers,
    joined: NDArray[Any],
) -> None:  # fmt: skip
    for row in range(start, stop):
        moved = starts[row] - offsets[row]
        for place in range(offsets[row], offsets[row + 1]):
            joined[place] = values[place + moved]


@_kernel
def fill_from_right(
    values: Numbers, starts: Numbers, ends: Numbers, nothing: int, found: Numbers
) -> None:
    """Write the last values of slices to the right of the rows of ``found`` [B, W], in place.

    Row i ends with the values[starts[i] : ends[i]], or with as many of the last of them as it has
    places; what is left of it holds ``nothing``.

    >>> found = np.empty((2, 3), np.int64)
    >>> fill_from_right(np.arange(9), np.array([0, 4]), np.array([2, 9]), -1, found)
    >>> found.tolist()
    [[-1, 0, 1], [6, 7, 8]]
    """
    rows, width = found.shape
    for row in range(rows):
        length = min(width, ends[row] - starts[row])
        for place in range(width - length):
            found[row, place] = nothing
        first = ends[row] - width
        for place in range(width - length, width):
            found[row, place] = values[first + place]


def kept_lengths(
    codes: Codes, offsets: Numbers, class_of: Codes, kept: NDArray[np.bool_] | None
) -> Numbers:
    """Return how many codes of each sequence are kept (None keeps all) and have a class ≥ 0, [N].

    >>> codes, offsets = np.array([0, 1, 1, 2]), np.array([0, 3, 4])
    >>> kept_lengths(codes, offsets, np.array([-1, 0, 1]), None).tolist()
    [2, 1]
    """
    lengths = np.empty(len(offsets) - 1, np.int64)
    marks = np.empty(0, np.bool_) if kept is None else kept
    in_blocks(
        lambda start, stop: _lengths(start, stop, codes, offsets, class_of, marks, lengths),
        len(codes),
        offsets,
    )
    return lengths


@_kernel
def _lengths(
    start: int, stop: int, codes: Codes, offsets: Numbers, class_of: Codes,
    kept: NDArray[np.bool_], lengths: Numbers,
) -> None:  # fmt: skip
    for row in range(start, stop):
        length = 0
        for place in range(offsets[row], offsets[row + 1]):
            stays = len(kept) == 0 or kept[place]
            length += stays and class_of[codes[place]] >= 0
        lengths[row] = length


def kept_classes(
    codes: Codes,
    offsets: Numbers,
    class_of: Codes,
    kept: NDArray[np.bool_] | None,
    places: Numbers,
    times: NDArray[Any] | None,
    time_type: type[np.generic],
    since: int = 0,
) -> tuple[Numbers, NDArray[Any] | None]:
    """Return the classes of the codes that are kept and have one, and their times.

    They are those that ``kept_lengths`` counts, of the sequences that stay, end to end. ``places``
    [N + 1] says where what is left of each sequence starts in the result: one that stays is as long
    as ``kept_lengths`` says, one that does not has length 0. Times become ``time_type``, with
    ``since`` added.

    >>> codes, offsets, class_of = np.array([0, 1, 1, 2]), np.array([0, 3, 4]), np.array([-1, 0, 1])
    >>> times = np.array([5, 6, 7, 8])
    >>> values, left = kept_classes(
    ...     codes, offsets, class_of, None, np.array([0, 2, 2]), times, np.float64
    ... )
    >>> values.tolist(), left.tolist()
    ([0, 0], [6.0, 7.0])
    """
    values = unset(int(places[-1]), np.int64)
    marks = np.empty(0, np.bool_) if kept is None else kept
    left = unset(0 if times is None else int(places[-1]), time_type)
    given = left if times is None else times

    def keep(start: int, stop: int) -> None:
        _keep(start, stop, codes, offsets, class_of, marks, places, given, since, values, left)

    in_blocks(keep, len(codes), offsets)
    return values, None if times is None else left


@_kernel
def _keep(
    start: int, stop: int, codes: Codes, offsets: Numbers, class_of: Codes,
    kept: NDArray[np.bool_], places: Numbers, times: NDArray[Any], since: int,
    values: Numbers, left: NDArray[Any],
) -> None:  # fmt: skip
    timed = len(times) > 0
    for row in range(start, stop):
        written, end = places[row], places[row + 1]
        if written == end:
            continue
        for place in range(offsets[row], offsets[row + 1]):
            if len(kept) > 0 and not kept[place]:
                continue
            found = class_of[codes[place]]
            if found >= 0:
                values[written] = found
                if timed:
                    left[written] = times[place] + since
                written += 1


def pauses(
    times: NDArray[np.float64], offsets: Numbers, gap: float
) -> tuple[Numbers, Numbers, int]:
    """Return where sessions start and the last ends, whose each is, and where a time falls, or −1.

    A session starts with a sequence, and at each p with times[p] − times[p − 1] > gap. There are
    starts [S + 1], the last of them T; owners [S] in 0 … N − 1; of the places where a time falls
    the first.

    >>> starts, owners, falls = pauses(np.array([0.0, 60, 9000, 5]), np.array([0, 3, 4]), 1800.0)
    >>> starts.tolist(), owners.tolist(), falls
    ([0, 2, 3, 4], [0, 0, 1], -1)
    """
    blocks = in_blocks(
        lambda start, stop: (start, *_count_pauses(start, stop, times, offsets, gap)),
        len(times),
        offsets,
    )
    total = 0
    first = {}
    for start, found, _ in blocks:
        first[start] = total
        total += found
    starts, owners = unset(total + 1, np.int64), unset(total, np.int64)
    starts[-1] = len(times)
    in_blocks(
        lambda start, stop: _cut(
            start, stop, times, offsets, gap, starts[first[start] :], owners[first[start] :]
        ),
        len(times),
        offsets,
    )
    return starts, owners, min((fall for *_, fall in blocks if fall >= 0), default=-1)


@_kernel
def _count_pauses(
    start: int, stop: int, times: NDArray[np.float64], offsets: Numbers, gap: float
) -> tuple[int, int]:
    """Return how many sessions there are, and the first place where a time falls, or −1."""
    found = falling = 0
    # All neighbours first, in one loop without branches; then not those of different sequences.
    for place in range(offsets[start] + 1, offsets[stop]):
        pause = times[place] - times[place - 1]
        found += pause > gap
        falling += pause < 0
    for row in range(start, stop):
        first = offsets[row]
        if first < offsets[row + 1]:
            found += 1
            if first > offsets[start]:
                pause = times[first] - times[first - 1]
                found -= pause > gap
                falling -= pause < 0
    if falling == 0:
        return found, -1
    for row in range(start, stop):
        for place in range(offsets[row] + 1, offsets[row + 1]):
            if times[place] < times[place - 1]:
                return found, place
    return found, -1


@_kernel
def _cut(
    start: int, stop: int, times: NDArray[np.float64], offsets: Numbers, gap: float,
    starts: Numbers, owners: Numbers,
) -> None:  # fmt: skip
    found = 0
    for row in range(start, stop):
        for place in range(offsets[row], offsets[row + 1]):
            if place == offsets[row] or times[place] - times[place - 1] > gap:
                starts[found] = place
                owners[found] = row
                found += 1
