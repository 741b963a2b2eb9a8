"""Sequences of classes (a user's items in time order, a sentence's words), and windows on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from widemax.devices import by_kernels
from widemax.kernels.compiling import is_loaded
from widemax.kernels.data.windows import read_examples
from widemax.validation import ABSENT, as_int64, check_fraction, check_tensor, check_whole
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import Keys, as_keys

MAX_WINDOW = 2**16
"""Most places a window may have on either side of its target."""

SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True, eq=False, repr=False)
class Sequences:
    """Many sequences of class ids, end to end in one tensor.

    Sequence i is values[offsets[i] : offsets[i + 1]]; nothing is kept per Python object.

    >>> sequences = Sequences.from_lists([[4, 0, 2], [1], [3, 3]])
    >>> sequences
    Sequences(3 sequences, 6 values)
    >>> sequences.sequence(2).tolist(), sequences.lengths.tolist()
    ([3, 3], [3, 1, 2])
    >>> train, targets = sequences.split_last()
    >>> train.values.tolist(), targets.tolist()
    ([4, 0, 1, 3], [[2], [-1], [3]])
    """

    values: Tensor
    """Int64 [T], the classes of all sequences."""
    offsets: Tensor
    """Int64 [N + 1], from 0 to T and never falling; a sequence may be empty."""
    names: pl.Series | None = None
    """The keys of the N sequences (of the users), if there are any."""
    times: Tensor | None = None
    """Float64 [T], the second at which each value was chosen, if it is known."""
    vocabulary: Vocabulary | None = None
    """By which the values are numbered, where it is known."""
    weights: Tensor | None = None
    """Float64 [T], how much each value counts as a target, 0 being not at all; None: all alike."""

    def __post_init__(self) -> None:
        for name in ("values", "offsets"):
            if check_tensor(name, getattr(self, name)).dim() != 1:
                raise ValueError(
                    f"{name} must have one dimension, got {list(getattr(self, name).shape)}"
                )
            object.__setattr__(self, name, as_int64(name, getattr(self, name)))
        _check_offsets(self.offsets, len(self.values))
        if len(self.values) and int(self.values.min()) < 0:
            raise ValueError(f"values must be at least 0, got {int(self.values.min())}")
        if self.names is not None:
            if len(self.names) != len(self):
                raise ValueError(
                    f"names must be as many as the sequences, {len(self):,}, "
                    f"got {len(self.names):,}"
                )
            object.__setattr__(self, "names", as_keys(self.names, name="names"))
        if self.times is not None:
            if check_tensor("times", self.times).shape != self.values.shape:
                raise ValueError(
                    f"times must be [{len(self.values):,}], one for each value, "
                    f"got {list(self.times.shape)}"
                )
            if not bool(self.times.isfinite().all()):
                raise ValueError("times must be finite numbers of seconds")
            object.__setattr__(self, "times", self.times.double())
        if self.weights is not None:
            if check_tensor("weights", self.weights).shape != self.values.shape:
                raise ValueError(
                    f"weights must be [{len(self.values):,}], one for each value, "
                    f"got {list(self.weights.shape)}"
                )
            if not bool((self.weights.isfinite() & (self.weights >= 0)).all()):
                raise ValueError("weights must be finite numbers of at least 0")
            object.__setattr__(self, "weights", self.weights.double())

    @classmethod
    def trusted(
        cls,
        values: Tensor,
        offsets: Tensor,
        names: pl.Series | None = None,
        times: Tensor | None = None,
        vocabulary: Vocabulary | None = None,
        weights: Tensor | None = None,
    ) -> Sequences:
        """Take what is known to be right: nothing is checked, which would read all of it again.

        For parts of sequences that were checked, and for what a reader has made itself.
        """
        sequences = object.__new__(cls)
        vars(sequences).update(
            values=values,
            offsets=offsets,
            names=names,
            times=times,
            vocabulary=vocabulary,
            weights=weights,
        )
        return sequences

    def numbered_by(self, vocabulary: Vocabulary) -> Sequences:
        """Return the sequences with a note of the vocabulary that gave the values their ids."""
        return Sequences.trusted(
            self.values, self.offsets, self.names, self.times, vocabulary, self.weights
        )

    def weighed_by(self, weights: Tensor | None) -> Sequences:
        """Return the sequences with other weights, float64 [T] and known to be right, or none."""
        return Sequences.trusted(
            self.values, self.offsets, self.names, self.times, self.vocabulary, weights
        )

    def relative_weights(self) -> Tensor | None:
        """Return the weights over their mean, that of those above 0; None where all are alike.

        >>> log = Sequences.from_lists([[4, 0, 2]])
        >>> log.weighed_by(torch.tensor([1.0, 0.0, 3.0])).relative_weights().tolist()
        [0.5, 0.0, 1.5]
        """
        if self.weights is None or not len(self.weights):
            return None
        counted = self.weights[self.weights > 0]
        if not len(counted):
            raise ValueError("weights must not all be 0: nothing would be left to train on")
        if bool((self.weights == self.weights[0]).all()):
            return None
        return (self.weights / counted.mean()).to(torch.get_default_dtype())

    @classmethod
    def from_lists(cls, lists: Iterable[Sequence[int]], *, names: Keys | None = None) -> Sequences:
        """Take one list of class ids for each sequence."""
        parts = [torch.as_tensor(part, dtype=torch.long) for part in lists]
        lengths = torch.tensor([len(part) for part in parts], dtype=torch.long)
        values = torch.cat(parts) if parts else lengths
        own_names = None if names is None else as_keys(names, name="names")
        return cls(values, offsets_of(lengths), own_names)

    @property
    def lengths(self) -> Tensor:
        """How many values each sequence has, int64 [N]."""
        return torch.from_numpy(np.diff(self.offsets.numpy()))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Sequences({len(self):,} sequences, {len(self.values):,} values)"

    def sequence(self, index: int) -> Tensor:
        """Return the values of one sequence, a view, int64 [its length]."""
        index = check_whole("index", index, 0, len(self) - 1)
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def split_last(self, n: int = 1) -> tuple[Sequences, Tensor]:
        """Hold out the last ``n`` values of each sequence: the rest, and targets int64 [N, n].

        This is leave-one-out when sequences are in time order. A sequence of ``n`` values or fewer
        stays whole, for nothing would be left to predict from; its targets are -1.
        """
        n = check_whole("n", n, 1, MAX_WINDOW)
        held = (self.lengths > n).long() * n
        ends = self.offsets[1:] - held
        places = ends[:, None] + torch.arange(n)
        targets = torch.full_like(places, ABSENT)
        long_enough = held > 0
        targets[long_enough] = self.values[places[long_enough]]
        rest = torch.ones(len(self.values), dtype=torch.bool)
        rest[places[long_enough].flatten()] = False
        return self.kept(rest), targets

    def kept(self, chosen: Tensor) -> Sequences:
        """Return the values that are chosen, bool [T], in sequences of the same names and order.

        >>> Sequences.from_lists([[4, 0], [2]]).kept(torch.tensor([False, True, False])).lengths
        tensor([1, 0])
        """
        if check_tensor("chosen", chosen).shape != self.values.shape or chosen.dtype != torch.bool:
            raise ValueError(
                f"chosen must be bool [{len(self.values):,}], got {chosen.dtype} "
                f"{list(chosen.shape)}"
            )
        before = offsets_of(chosen.long())
        times, weights = (
            None if each is None else each[chosen] for each in (self.times, self.weights)
        )
        return Sequences.trusted(
            self.values[chosen], before[self.offsets], self.names, times, self.vocabulary, weights
        )

    def joined(self) -> Sequences:
        """Return all values as one sequence: what came before reaches over the ends of others.

        >>> Sequences.from_lists([[4, 0], [2]]).joined().lengths.tolist()
        [3]
        """
        ends = torch.tensor([0, len(self.values)])
        return Sequences.trusted(self.values, ends, None, self.times, self.vocabulary, self.weights)

    def continues(self) -> Tensor:
        """Return whether each value but the last has its successor in its own sequence, bool.

        >>> Sequences.from_lists([[4, 0], [2], [1, 1]]).continues().tolist()
        [True, False, False, True]
        """
        inside = torch.ones(max(len(self.values) - 1, 0), dtype=torch.bool)
        starts = self.offsets[1:-1]
        inside[starts[(starts > 0) & (starts < len(self.values))] - 1] = False
        return inside

    def chosen(self, rows: Tensor) -> Sequences:
        """Return the sequences ``rows`` [B], in that order.

        >>> Sequences.from_lists([[4, 0], [2]]).chosen(torch.tensor([1, 0])).values.tolist()
        [2, 4, 0]
        """
        rows = _check_places("rows", rows, len(self))
        lengths = self.lengths[rows]
        places = places_of(self.offsets[rows], lengths)
        names = None if self.names is None else self.names[rows.numpy()]
        times, weights = (
            None if each is None else each[places] for each in (self.times, self.weights)
        )
        return Sequences.trusted(
            self.values[places], offsets_of(lengths), names, times, self.vocabulary, weights
        )

    def split(self, fraction: float) -> tuple[Sequences, Sequences]:
        """Return the first sequences, and the last ``fraction`` of them, rounded to whole ones."""
        held = round(check_fraction("fraction", fraction) * len(self))
        cut = len(self) - held
        return self.between(0, cut), self.between(cut, len(self))

    def between(self, start: int, stop: int) -> Sequences:
        """Return sequences ``start`` … ``stop`` − 1; their values are not copied.

        >>> Sequences.from_lists([[4, 0], [2], [1]]).between(1, 3).values.tolist()
        [2, 1]
        """
        offsets = self.offsets[start : stop + 1]
        values = self.values[offsets[0] : offsets[-1]]
        names = None if self.names is None else self.names[start:stop]
        times, weights = (
            None if each is None else each[offsets[0] : offsets[-1]]
            for each in (self.times, self.weights)
        )
        return Sequences.trusted(
            values, offsets - offsets[0], names, times, self.vocabulary, weights
        )


@dataclass(frozen=True, kw_only=True)
class WindowBatch:
    """Some targets, and the classes that stood around each.

    >>> batch = Windows(Sequences.from_lists([[4, 0, 2]]), before=2).batch(torch.tensor([1]))
    >>> batch.context.tolist(), batch.targets.tolist()
    ([[-1, 4]], [0])
    """

    context: Tensor
    """Int64 [B, H] with H = before + after, -1 where the sequence has no such place."""
    targets: Tensor
    """Int64 [B]."""
    users: Tensor | None = None
    """Int64 [B], the sequence that each target stands in, or -1 for a user who is not known."""
    ages: Tensor | None = None
    """Float32 [B], the days from each target to the last time of all, where times are known."""
    vocabulary: Vocabulary | None = None
    """By which the classes are numbered, where it is known."""


class Windows:
    """One example for each position: the class there, to be predicted from those around it.

    The target of position p is values[p]; its context is values[p − before … p − 1] and
    values[p + 1 … p + after], in this order, -1 where the sequence of p has no such place: the
    continuous bag of words of Mikolov et al. 2013 or, with ``after=0``, the next item of a session.

    ``positions`` is int64 [M], places in ``sequences.values``; without it, every place is an
    example. ``require_context`` drops those that have no context; a place of weight 0 is no example
    either. A batch is a gather of B·H
    values, about half a millisecond for 1,024 × 50 on one core.

    >>> sequences = Sequences.from_lists([[4, 0, 2], [1], [3, 5]])
    >>> windows = Windows(sequences, before=2, require_context=True)
    >>> batch = windows.batch(torch.arange(len(windows)))
    >>> batch.context.tolist(), batch.targets.tolist()
    ([[-1, 4], [4, 0], [-1, 3]], [0, 2, 5])

    The last value of each sequence, as leave-one-out asks for it:

    >>> last = Windows(sequences, before=2, positions=sequences.offsets[1:] - 1)
    >>> last.batch(torch.tensor([0, 2])).targets.tolist()
    [2, 5]
    """

    def __init__(
        self,
        sequences: Sequences,
        before: int = 50,
        after: int = 0,
        positions: Tensor | None = None,
        *,
        require_context: bool = False,
    ) -> None:
        self.sequences = sequences
        self.before = check_whole("before", before, 0, MAX_WINDOW)
        self.after = check_whole("after", after, 0, MAX_WINDOW)
        if not self.before + self.after:
            raise ValueError("before + after must be at least 1, got 0: a window needs a place")
        if positions is not None:
            positions = _check_places("positions", positions, len(sequences.values))
        if sequences.weights is not None:
            counted = sequences.weights > 0
            positions = (
                counted.nonzero()[:, 0] if positions is None else positions[counted[positions]]
            )
        self.positions = self._with_context(positions) if require_context else positions
        steps = torch.arange(-self.before, self.after + 1)
        self._steps = steps[steps != 0]
        times = sequences.times
        self._latest = times.max() if times is not None and len(times) else 0.0

    def __len__(self) -> int:
        return len(self.sequences.values if self.positions is None else self.positions)

    def batch(self, rows: Tensor) -> WindowBatch:
        """Return the examples ``rows`` [B]."""
        rows = _check_places("rows", rows, len(self))
        context, targets, users = self._read(rows)
        return WindowBatch(
            context=context,
            targets=targets,
            users=users,
            ages=self._ages(rows),
            vocabulary=self.sequences.vocabulary,
        )

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return contexts of rows, [B, H], their targets, and the sequences they stand in."""
        values, offsets = self.sequences.values, self.sequences.offsets
        if by_kernels(values, offsets, rows) and is_loaded():
            chosen = rows[:0] if self.positions is None else self.positions
            found = read_examples(
                *(values.numpy(), offsets.numpy(), chosen.numpy(), rows.numpy()),
                *(self.before, self.after),
            )
            context, targets, users = map(torch.from_numpy, found)
            return context, targets, users
        positions = self.places(rows)
        users, start, end = self._sequences_of(positions)
        back, ahead = self._steps[: self.before], self._steps[self.before :]
        # Each place can fall out of its sequence at one end only.
        inside = torch.cat(
            [back >= (start - positions)[:, None], ahead < (end - positions)[:, None]], dim=1
        )
        places = positions[:, None] + self._steps
        # Places beyond the ends are read somewhere, and marked: quicker than to leave them out.
        read = values.index_select(0, places.clamp_(0, len(values) - 1).flatten())
        context = torch.where(inside, read.view(places.shape), ABSENT)
        return context, values.index_select(0, positions), users

    def places(self, rows: Tensor) -> Tensor:
        """Return where in ``sequences.values`` the targets of some rows stand."""
        return rows if self.positions is None else self.positions.index_select(0, rows)

    def at_most(self, count: int, *, generator: torch.Generator | None = None) -> Windows:
        """Return at most ``count`` examples of each sequence, drawn at random without repeats.

        >>> sequences = Sequences.from_lists([[4, 0, 2, 6], [1], [3, 5]])
        >>> windows = Windows(sequences, before=2).at_most(2)
        >>> len(windows), windows.positions[-3:].tolist()
        (5, [4, 5, 6])
        """
        count = check_whole("count", count, 1, 2**62)
        positions = self.positions
        if positions is None:
            positions = torch.arange(len(self.sequences.values))
        shuffled = positions[torch.randperm(len(positions), generator=generator)]
        owners, order = self._sequences_of(shuffled)[0].sort(stable=True)
        first = torch.searchsorted(owners, owners)
        kept = shuffled[order][torch.arange(len(owners)) - first < count]
        return Windows(self.sequences, self.before, self.after, kept.sort().values)

    def _sequences_of(self, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return which sequence each position stands in, and where that starts and ends."""
        offsets = self.sequences.offsets
        # From the right: of sequences that start here, all but the last are empty.
        users = torch.searchsorted(offsets, positions, right=True) - 1
        return users, offsets[users], offsets[users + 1]

    def _ages(self, rows: Tensor) -> Tensor | None:
        if self.sequences.times is None:
            return None
        return ((self._latest - self.sequences.times[self.places(rows)]) / SECONDS_A_DAY).float()

    def _with_context(self, positions: Tensor | None) -> Tensor:
        if positions is None:
            positions = torch.arange(len(self.sequences.values))
        _, start, end = self._sequences_of(positions)
        has_before = (positions > start) & (self.before > 0)
        has_after = (positions < end - 1) & (self.after > 0)
        return positions[has_before | has_after]


def places_of(starts: Tensor, lengths: Tensor) -> Tensor:
    """Return the places of stretches end to end: from each start as many as its length.

    >>> places_of(torch.tensor([5, 2]), torch.tensor([2, 1])).tolist()
    [5, 6, 2]
    """
    offsets = offsets_of(lengths)
    moved = (starts - offsets[:-1]).repeat_interleave(lengths)
    return torch.arange(int(offsets[-1])) + moved


def offsets_of(lengths: Tensor) -> Tensor:
    """Return where each of the sequences of these lengths starts, and where the last one ends."""
    # In NumPy: to wake torch's threads for so little takes longer, and then they compete.
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths.cpu().numpy(), out=offsets[1:])
    return torch.from_numpy(offsets).to(lengths.device)


def _check_offsets(offsets: Tensor, total: int) -> None:
    if not len(offsets) or int(offsets[0]) != 0 or int(offsets[-1]) != total:
        ends = [int(offsets[0]), int(offsets[-1])] if len(offsets) else []
        raise ValueError(f"offsets must start at 0 and end at {total:,}, got the ends {ends}")
    falling = offsets.diff() < 0
    if bool(falling.any()):
        row = int(falling.nonzero()[0]) + 1
        raise ValueError(f"offsets must never fall, got {offsets[row - 1 : row + 1].tolist()}")


def _check_places(name: str, places: Tensor, size: int) -> Tensor:
    """Return ``places`` as int64 [M] if each lies in 0 … size − 1."""
    if check_tensor(name, places).dim() != 1:
        raise ValueError(f"{name} must have one dimension, got {list(places.shape)}")
    places = as_int64(name, places)
    if len(places):
        low, high = (int(bound) for bound in torch.aminmax(places))
        if low < 0 or high >= size:
            worst = low if low < 0 else high
            raise ValueError(f"{name} must be between 0 and {size - 1:,}, got {worst:,}")
    return places
