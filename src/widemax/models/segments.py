"""Stretches of text, so that a recurrent model reads each word once a step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.data.sequences import MAX_WINDOW, offsets_of, places_of
from widemax.validation import ABSENT, as_int64, check_tensor, check_whole


@dataclass(frozen=True, kw_only=True)
class SegmentBatch:
    """Some segments: each word to predict, and the word before it."""

    context: Tensor
    """int64 [B, L]; -1 after the end of a segment, and first in it where a sequence begins."""

    targets: Tensor
    """int64 [B, L]; -1 where nothing is to be predicted."""


@dataclass(frozen=True, kw_only=True)
class StreamBatch(SegmentBatch):
    """The next stretch of each of some streams that are read side by side."""

    follows: bool
    """Whether each row goes on where that of the batch before ended; else all streams begin."""


class Segments:
    """One example for each stretch of ``length`` words: all of them, each from those before it.

    A segment has the words p … q of a sequence as targets, and beside each target the word before
    it as context; each word of each sequence is a target once. It begins with the ``overlap`` words
    before p (as many as there are), which are read and not predicted. A recurrent model takes
    1 + ``overlap``/``length`` steps a word, where ``Windows`` of H words would take H: truncated
    back-propagation through time, with segments of their own in place of a state carried over, so
    that they can be shuffled.

    >>> segments = Segments(Sequences.from_lists([[4, 0, 2, 7, 5]]), length=3, overlap=1)
    >>> batch = segments.batch(torch.arange(len(segments)))
    >>> batch.targets.tolist()
    [[4, 0, 2], [-1, 7, 5]]
    >>> batch.context.tolist()
    [[-1, 4, 0], [0, 2, 7]]
    """

    def __init__(
        self,
        sequences: Sequences,
        length: int = 32,
        *,
        overlap: int = 0,
        predicts_first: bool = True,
    ) -> None:
        """Cut sequences; one who does not predict the first of each has no use for some."""
        self.sequences = sequences
        self.length = check_whole("length", length, 1, MAX_WINDOW)
        self.overlap = check_whole("overlap", overlap, 0, MAX_WINDOW)
        pieces = (sequences.lengths + self.length - 1) // self.length
        owner = torch.repeat_interleave(torch.arange(len(sequences)), pieces)
        place = torch.arange(len(owner)) - offsets_of(pieces)[owner]
        begins, ends = sequences.offsets[owner], sequences.offsets[owner + 1]
        starts = begins + place * self.length
        stops = torch.minimum(starts + self.length, ends)
        num_targets = stops - starts - (0 if predicts_first else (starts == begins).long())
        useful = num_targets > 0
        self._begins, self._starts, self._stops = begins[useful], starts[useful], stops[useful]
        self.num_targets = num_targets[useful]
        """How many targets each segment has."""

    def __len__(self) -> int:
        return len(self._starts)

    def batch(self, rows: Tensor) -> SegmentBatch:
        """Return the segments ``rows`` [B], no wider than the longest of them."""
        if check_tensor("rows", rows).dim() != 1:
            raise ValueError(f"rows must have one dimension, got {list(rows.shape)}")
        rows = as_int64("rows", rows)
        outside = rows[(rows < 0) | (rows >= len(self))]
        if len(outside):
            last = len(self) - 1
            raise ValueError(f"rows must be between 0 and {last:,}, got {int(outside[0]):,}")
        begins, starts, stops = (
            each[rows, None] for each in (self._begins, self._starts, self._stops)
        )
        first = torch.maximum(starts - self.overlap, begins)
        longest = int((stops - first).max()) if len(rows) else 0
        places = first + torch.arange(longest)
        inside = places < stops
        return SegmentBatch(
            context=self._words(places - 1, inside & (places > begins)),
            targets=self._words(places, inside & (places >= starts)),
        )

    def places(self, rows: Tensor) -> Tensor:
        """Return where in ``sequences.values`` the targets of some segments stand."""
        count = self.num_targets[rows]
        return places_of(self._stops[rows] - count, count)

    def _words(self, places: Tensor, there: Tensor) -> Tensor:
        """Return the words at places, and -1 where there are none to read."""
        values = self.sequences.values
        if not len(values):
            return torch.full_like(places, ABSENT)
        return torch.where(there, values[places.clamp(0, len(values) - 1)], ABSENT)


class Streams:
    """One text in ``rows`` streams of equal length, side by side: an example is a whole batch.

    Each word but the first of the text is a target once, beside the word before it. Example s has
    the ``length`` words of stretch s of every stream, so that a recurrent model goes on with the
    state that example s − 1 left behind: truncated back-propagation through time as by Zaremba,
    Sutskever & Vinyals 2014. Examples are therefore to be taken ``in_order``, one at a time.

    >>> streams = Streams(Sequences.from_lists([[4, 0, 2, 7, 5], [1, 6]]), length=2, rows=2)
    >>> for row in range(len(streams)):
    ...     batch = streams.batch(torch.tensor([row]))
    ...     print(batch.context.tolist(), batch.targets.tolist(), batch.follows)
    [[4, 0], [7, 5]] [[0, 2], [5, 1]] False
    [[2], [1]] [[7], [6]] True
    """

    in_order = True

    def __init__(self, sequences: Sequences, length: int, rows: int) -> None:
        self.values = sequences.values
        self.length = check_whole("length", length, 1, MAX_WINDOW)
        rows = check_whole("rows", rows, 1, 2**31)
        pairs = max(0, len(self.values) - 1)
        self._stream_length = -(-pairs // rows)
        self._starts = torch.arange(rows)[:, None] * self._stream_length
        self._ends = (self._starts + self._stream_length).clamp(max=pairs)

    def __len__(self) -> int:
        return -(-self._stream_length // self.length)

    def batch(self, rows: Tensor) -> StreamBatch:
        """Return the example ``rows`` [1]: a stretch of each stream."""
        rows = as_int64("rows", rows)
        if rows.shape != (1,) or not 0 <= int(rows[0]) < len(self):
            raise ValueError(
                f"rows must be one number between 0 and {len(self) - 1:,}, got {rows.tolist()}"
            )
        done = int(rows[0]) * self.length
        places = self._starts + torch.arange(done, min(done + self.length, self._stream_length))
        inside, last = places < self._ends, len(self.values) - 1
        return StreamBatch(
            context=torch.where(inside, self.values[places.clamp(max=last)], ABSENT),
            targets=torch.where(inside, self.values[(places + 1).clamp(max=last)], ABSENT),
            follows=done > 0,
        )


def sequence_starts(context: Tensor) -> Tensor:
    """Return in which segments [B, L] a sequence begins, bool [B, 1]."""
    if check_tensor("context", context).dim() != 2:
        raise ValueError(f"context must have two dimensions, got {list(context.shape)}")
    return context[:, :1] < 0


def without_start(values: Tensor, starts: Tensor) -> Tensor:
    """Return rows [B, L], moved left by one place where a sequence begins, bool [B, 1].

    The first word of a sequence has nothing before it to be predicted from.
    """
    moved = torch.cat([values[:, 1:], torch.full_like(values[:, :1], ABSENT)], dim=1)
    return torch.where(starts, moved, values)
