"""What is known of each user, and what is to be found: the questions of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from widemax.data.sequences import Sequences, WindowBatch
from widemax.kernels.data.slices import fill_from_right
from widemax.validation import ABSENT, check_whole
from widemax.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Holdout:
    """Some users with what they had and what they chose next, which no model has seen.

    Question i is: from ``histories.sequence(i)``, find ``targets.sequence(i)``.

    >>> sequences = Sequences.from_lists([[4, 0, 2], [1], [3, 5]])
    >>> train, held = Holdout.of_last(sequences)
    >>> train.values.tolist(), held.targets.values.tolist(), held.users.tolist()
    ([4, 0, 1, 3], [2, 5], [0, 2])
    >>> held.batch(torch.arange(2), max_history=3).context.tolist()
    [[-1, 4, 0], [-1, -1, 3]]
    """

    histories: Sequences
    """N sequences: what is known."""
    targets: Sequences
    """N sequences, none empty: what is to be found."""
    users: Tensor
    """Int64 [N], the user's row in the training data, by which features are found; or -1."""

    def __post_init__(self) -> None:
        sizes = len(self.histories), len(self.targets), len(self.users)
        if len(set(sizes)) > 1:
            raise ValueError(
                f"histories, targets and users must be as many, got {sizes[0]:,}, {sizes[1]:,} "
                f"and {sizes[2]:,}"
            )
        empty = self.targets.lengths.numpy() == 0
        if empty.any():
            row = int(empty.argmax())
            raise ValueError(f"targets must not be empty, got an empty list in row {row:,}")

    @classmethod
    def of_last(cls, sequences: Sequences) -> tuple[Sequences, Holdout]:
        """Return sequences without the last value of each, and the questions for those values.

        A sequence of one value stays whole and asks nothing.
        """
        train, targets = sequences.split_last()
        return train, cls.of_users(train, targets[:, 0])

    @classmethod
    def of_users(cls, train: Sequences, targets: Tensor) -> Holdout:
        """Ask for one target of each training sequence, int64 [N]; -1 asks nothing."""
        users = (targets != ABSENT).nonzero()[:, 0]
        asked = Sequences(targets[users], torch.arange(len(users) + 1), vocabulary=train.vocabulary)
        return cls(train.chosen(users), asked, users)

    def __len__(self) -> int:
        return len(self.users)

    def numbered_by(self, vocabulary: Vocabulary) -> Holdout:
        """Return the questions with a note of the vocabulary that gave the classes their ids."""
        histories = self.histories.numbered_by(vocabulary)
        return Holdout(histories, self.targets.numbered_by(vocabulary), self.users)

    def chosen(self, rows: Tensor) -> Holdout:
        """Return the questions ``rows`` [N], in this order."""
        return Holdout(self.histories.chosen(rows), self.targets.chosen(rows), self.users[rows])

    def batch(self, rows: Tensor, *, max_history: int) -> WindowBatch:
        """Return what is known in the questions ``rows`` [B]; targets are -1, and ages 0: now."""
        max_history = check_whole("max_history", max_history, 1, 2**20)
        return WindowBatch(
            context=last_values(self.histories, rows, max_history),
            targets=torch.full_like(rows, ABSENT),
            users=self.users[rows],
            ages=torch.zeros(len(rows)),
            vocabulary=self.histories.vocabulary,
        )

    def seen(self, rows: Tensor) -> Tensor:
        """Return all that each user had, [B, E] padded with -1, to be left out of answers."""
        lengths = self.histories.lengths[rows]
        longest = max(1, int(lengths.max())) if len(rows) else 1
        return last_values(self.histories, rows, longest)


def last_values(sequences: Sequences, rows: Tensor, width: int) -> Tensor:
    """Return the last values of each row, [B, width], with -1 before them where they are fewer."""
    found = torch.empty(len(rows), width, dtype=torch.int64)
    offsets = sequences.offsets
    ends = offsets[rows + 1].numpy()
    fill_from_right(sequences.values.numpy(), offsets[rows].numpy(), ends, ABSENT, found.numpy())
    return found
