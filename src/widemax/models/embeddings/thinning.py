"""Windows of a text from which frequent words are left out, others in each epoch."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from widemax.data import WindowBatch, Windows
from widemax.validation import ABSENT


class ThinnedWindows:
    """The examples of windows, with contexts that reach over the words that were left out.

    Formula: in epoch e each place of the text is kept with probability keep(word), seeded by
    (seed, e). The context of a kept place is the ``before`` kept places before it and the ``after``
    kept ones after it in its sequence, so that a window of n words has n words however many are
    left out; a place that is not kept has no context. Rows are those of ``windows`` in every epoch.

    Reference: Mikolov et al. 2013 (words are left out before windows are cut, in their program).

    >>> from widemax.data import Sequences
    >>> text = Sequences.from_lists([[0, 1, 0, 2], [1, 2]])
    >>> thinned = ThinnedWindows(Windows(text, before=1), torch.tensor([0.0, 1.0, 1.0]), seed=0)
    >>> thinned.batch(torch.arange(6)).context[:, 0].tolist()
    [-1, -1, -1, 1, -1, 1]
    """

    def __init__(self, windows: Windows, keep: Tensor, *, seed: int) -> None:
        self.windows, self.seed = windows, seed
        self._keep = keep.cpu()
        self.start_epoch(0)

    @property
    def positions(self) -> Tensor | None:
        """Where the rows stand in the text; None: each place is a row."""
        return self.windows.positions

    def __len__(self) -> int:
        return len(self.windows)

    def start_epoch(self, epoch: int) -> None:
        """Draw which words are left out, the same whenever this epoch is asked for."""
        seeded = torch.Generator().manual_seed((self.seed * 1_000_003 + ~epoch) % 2**63)
        text = self.windows.sequences
        self.kept = torch.rand(len(text.values), generator=seeded) < self._keep[text.values]
        left = text.kept(self.kept)
        self._left = Windows(left, self.windows.before, self.windows.after)
        self._place = self.kept.cumsum(0) - 1

    def batch(self, rows: Tensor) -> WindowBatch:
        """Return the examples ``rows`` [B]; one that was left out has no context."""
        batch = self.windows.batch(rows)
        positions = rows if self.positions is None else self.positions[rows]
        there = self.kept[positions]
        context = torch.full_like(batch.context, ABSENT)
        context[there] = self._left.batch(self._place[positions[there]]).context
        return replace(batch, context=context)
