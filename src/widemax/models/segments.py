"""Stretches of text, so that a recurrent model reads each word once a step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.data.sequences import MAX_WINDOW, offsets_of
from widemax.validation import ABSENT, as_int64, check_tensor, check_whole


@dataclass(frozen=True, kw_only=True)
class SegmentBatch:
    """Some segments: each word that is to be told, and the word before it.

    Formula: see ``Segments``.

    Shapes: ``context`` and ``targets`` are int64 [B, L]; -1 in ``targets`` where nothing is to be
    told, in ``context`` after the end of a segment, and first in it where a sequence begins.

    Cost: it only holds tensors.

    Reference: none.

    Use when: reading what ``Segments.batch`` returns. Avoid when: nothing else makes one.

    >>> batch = Segments(Sequences.from_lists([[4, 0, 2]]), length=5).batch(torch.tensor([0]))
    >>> batch.context.tolist(), batch.targets.tolist()
    ([[-1, 4, 0]], [[4, 0, 2]])
    """

    context: Tensor
    targets: Tensor


class Segments:
    """One example for each stretch of ``length`` words: all of them, each from those before it.

    Formula: a segment has the words p … q of a sequence as targets, and beside each target the
    word before it as context; each word of each sequence is a target once. It begins with the
    ``overlap`` words before p (as many as there are), which are read and not told.

    Shapes: ``batch`` takes int64 [B] rows, each in 0 … M − 1 for M segments, and returns [B, L],
    L = ``length`` + ``overlap``, or less where all of these segments are shorter.

    Cost: 24 bytes per segment; a batch is a gather of B·L values. The recurrence takes
    1 + ``overlap``/``length`` steps a word, where ``Windows`` of H words would take H.

    Reference: truncated back-propagation through time, with segments of their own in place of a
    state carried on, so that they can be shuffled.

    Use when: training ``LSTMLanguageModel``. Avoid when: the model reads a fixed number of words
    (``Windows``).

    >>> segments = Segments(Sequences.from_lists([[4, 0, 2, 7, 5]]), length=3, overlap=1)
    >>> batch = segments.batch(torch.arange(len(segments)))
    >>> batch.targets.tolist()
    [[4, 0, 2], [-1, 7, 5]]
    >>> batch.context.tolist()
    [[-1, 4, 0], [0, 2, 7]]
    """

    def __init__(self, sequences: Sequences, length: int = 32, *, overlap: int = 0) -> None:
        self.sequences = sequences
        self.length = check_whole("length", length, 1, MAX_WINDOW)
        self.overlap = check_whole("overlap", overlap, 0, MAX_WINDOW)
        pieces = (sequences.lengths + self.length - 1) // self.length
        owner = torch.repeat_interleave(torch.arange(len(sequences)), pieces)
        place = torch.arange(len(owner)) - offsets_of(pieces)[owner]
        begins, ends = sequences.offsets[owner], sequences.offsets[owner + 1]
        self._begins = begins
        self._starts = begins + place * self.length
        self._stops = torch.minimum(self._starts + self.length, ends)

    def __len__(self) -> int:
        return len(self._starts)

    def batch(self, rows: Tensor) -> SegmentBatch:
        """Return the segments ``rows`` [B]."""
        rows = _check_rows(rows, len(self))
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

    def _words(self, places: Tensor, there: Tensor) -> Tensor:
        """Return the words at places, and -1 where there are none to be read."""
        values = self.sequences.values
        if not len(values):
            return torch.full_like(places, ABSENT)
        return torch.where(there, values[places.clamp(0, len(values) - 1)], ABSENT)


def _check_rows(rows: Tensor, size: int) -> Tensor:
    if check_tensor("rows", rows).dim() != 1:
        raise ValueError(f"rows must have one dimension, got {list(rows.shape)}")
    rows = as_int64("rows", rows)
    outside = rows[(rows < 0) | (rows >= size)]
    if len(outside):
        raise ValueError(f"rows must be between 0 and {size - 1:,}, got {int(outside[0]):,}")
    return rows
