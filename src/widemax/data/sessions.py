"""Sessions: what a user did in one go, told by the pauses between."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data.sequences import Sequences
from widemax.kernels.data.slices import pauses
from widemax.validation import check_positive


def sessions_of(sequences: Sequences, *, gap: float) -> tuple[Sequences, Tensor]:
    """Cut each sequence where more than ``gap`` seconds pass; return sessions and their owners.

    Formula: a session begins with a sequence, and at each value whose time is more than ``gap``
    after that of the value before.

    Shapes: ``sequences`` of N users with times → S sessions in the same order, without names, and
    owners int64 [S], the row of the user of each. Values and times are those of ``sequences``, so
    whatever stands beside them (``Source.goals``) stands beside the sessions too. An empty sequence
    has no session.

    Cost: two passes over the times; values and times are shared, not copied.

    Reference: half an hour (``gap=1800``) is the custom of web logs since Catledge and Pitkow,
    "Characterizing Browsing Strategies in the World-Wide Web", 1995, who found 25.5 minutes.

    Use when: items of one visit belong together (Item2Vec, EGES). Avoid when: the log has no times,
    or days only.

    >>> times = torch.tensor([0.0, 60, 9000, 5])
    >>> sequences = Sequences(torch.tensor([4, 0, 2, 1]), torch.tensor([0, 3, 4]), times=times)
    >>> sessions, owners = sessions_of(sequences, gap=1800)
    >>> sessions.lengths.tolist(), owners.tolist()
    ([2, 1, 1], [0, 0, 1])
    """
    gap = check_positive("gap", gap)
    if sequences.times is None:
        raise ValueError("sequences must have times to be cut into sessions: times is None")
    starts, owners, falls = pauses(sequences.times.numpy(), sequences.offsets.numpy(), gap)
    if falls >= 0:
        raise ValueError(f"times must not fall within a sequence, they do at value {falls:,}")
    offsets = torch.from_numpy(starts)
    sessions = Sequences.trusted(sequences.values, offsets, times=sequences.times)
    return sessions, torch.from_numpy(owners)
