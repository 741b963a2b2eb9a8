"""Sessions: what a user did in one go, between two pauses."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data.sequences import Sequences
from widemax.kernels.data.slices import pauses
from widemax.validation import check_positive


def sessions_of(sequences: Sequences, *, gap: float) -> tuple[Sequences, Tensor]:
    """Cut each sequence where more than ``gap`` seconds pass; return sessions and their owners.

    A session begins with a sequence, and at each value whose time is more than ``gap`` after that
    of the value before; half an hour (``gap=1800``) is the custom of web logs since Catledge and
    Pitkow, "Characterizing Browsing Strategies in the World-Wide Web", 1995, who found 25.5
    minutes.

    Sessions come in the same order, without names; owners, int64 [S], are the row of the user of
    each. Values and times are shared with ``sequences``, so whatever stands beside them
    (``Source.goals``) stands beside the sessions too. An empty sequence has no session.

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
