"""Frequencies of ids from a stream, in memory that does not grow with the catalogue."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.sampling.base import KeepsPrecision, uniform_log_prob
from widemax.validation import (
    ABSENT,
    MAX_TABLE_CLASSES,
    check_ids,
    check_num_classes,
    check_positive,
    check_whole,
)

_PRIME = 2**31 - 1
_LOW_BITS = 20


class StreamingFrequency(KeepsPrecision):
    """Estimates how likely a target is each class, from the gaps between its visits to batches.

    Formula: A[h] is the last step at which bucket h was seen, B[h] the mean gap in batches and
    C[h] the mean number of copies in a batch that has it: with c copies at step t
    B ← (1 − rate)·B + rate·(t − A) and C ← (1 − rate)·C + rate·c; the first sight sets both. C/B
    estimates the expected count of a class in a batch, so that
    log p(y) = log C − log B − log(mean number of targets in a batch); of several hashes the
    smallest C/B counts. A class not seen in t steps has C/B = 1/(t + 1).

    Shapes: ids of any shape; ``update`` takes targets [B] or [B, T], -1 where absent.

    Cost: O(num_hashes) an id; 16 bytes for each bucket of each hash.

    Reference: Yi et al. 2019, who estimate 1/B, the share of batches that have the class. That is
    the expected count only where a batch hardly ever has it twice: it stops at one a batch, while
    every copy is a candidate. C makes up for it.

    Use when: in-batch or queued negatives need log Q, ids are too many to count or their
    popularity drifts. Avoid when: the counts are known (``UnigramSampler`` with distortion 1).

    When ``num_classes`` fits in ``num_buckets`` each class has its own bucket and nothing is
    hashed. This is a frequency, not a sampler: it cannot draw, and its probabilities need not sum
    to 1.

    >>> import torch
    >>> frequency = StreamingFrequency(100)
    >>> for step in range(8):
    ...     frequency.update(torch.tensor([3, 3, 10 + step]))
    >>> frequency.log_prob(torch.tensor([3, 50])).exp().round(decimals=3).tolist()
    [0.667, 0.037]
    """

    last_seen: Tensor
    _mean_gap_bits: Tensor
    _mean_copies_bits: Tensor
    step: Tensor
    num_targets: Tensor
    _coefficients: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        num_buckets: int = 2**20,
        num_hashes: int = 4,
        rate: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.num_classes = check_num_classes(num_classes)
        if check_positive("rate", rate) > 1:
            raise ValueError(f"rate must be above 0 and at most 1, got {rate!r}")
        self.rate = rate
        for name, value in (("num_buckets", num_buckets), ("num_hashes", num_hashes)):
            check_whole(name, value, 1, MAX_TABLE_CLASSES)
        if num_buckets * num_hashes > MAX_TABLE_CLASSES:
            raise ValueError(
                f"num_buckets · num_hashes must be at most {MAX_TABLE_CLASSES:,}, "
                f"got {num_buckets:,} · {num_hashes:,}"
            )
        self._hashed = num_classes > num_buckets
        self.num_buckets = num_buckets if self._hashed else num_classes
        self.num_hashes = num_hashes if self._hashed else 1
        size = self.num_buckets * self.num_hashes
        generator = torch.Generator().manual_seed(check_whole("seed", seed, 0, 2**63 - 1))
        coefficients = torch.randint(1, _PRIME, (3, self.num_hashes, 1), generator=generator)
        self.register_buffer("_coefficients", coefficients)
        self.register_buffer("last_seen", torch.zeros(size, dtype=torch.int64))
        # Both are float32 kept as bits, because model.half() would round a floating buffer.
        self.register_buffer("_mean_gap_bits", torch.zeros(size, dtype=torch.int32))
        self.register_buffer("_mean_copies_bits", torch.zeros(size, dtype=torch.int32))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.register_buffer("num_targets", torch.zeros((), dtype=torch.int64))

    def update(self, targets: Tensor) -> None:
        """Take in the targets of one batch; a batch without any is not a step."""
        targets = check_ids("targets", targets, self.num_classes, absent=True)
        present = targets[targets != ABSENT]
        if not len(present):
            return
        self.step += 1
        self.num_targets += len(present)
        buckets, copies = torch.unique(self._buckets(present), return_counts=True)
        last_seen = self.last_seen[buckets]
        first = last_seen == 0
        self._average(self._mean_gap_bits, buckets, self.step - last_seen, first)
        self._average(self._mean_copies_bits, buckets, copies, first)
        self.last_seen[buckets] = self.step

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return the estimated log p(y) of one draw from the targets; −log V before any batch."""
        if not int(self.step):
            return uniform_log_prob(ids, self.num_classes)
        buckets = self._buckets(ids.flatten())
        in_batch = _values(self._mean_copies_bits, buckets) / _values(self._mean_gap_bits, buckets)
        unseen = self.last_seen[buckets] == 0
        in_batch = torch.where(unseen, 1 / (self.step.double() + 1), in_batch)
        mean_batch = self.num_targets.double() / self.step
        return (in_batch.amin(0).log() - mean_batch.log()).view(ids.shape)

    def _average(self, bits: Tensor, buckets: Tensor, values: Tensor, first: Tensor) -> None:
        """Move the running means of distinct buckets towards new values; the first is taken."""
        values = values.double()
        smoothed = _values(bits, buckets).lerp(values, self.rate)
        bits[buckets] = torch.where(first, values, smoothed).float().view(torch.int32)

    def _buckets(self, ids: Tensor) -> Tensor:
        """Return the places [num_hashes, N] of ids [N] in the flat buffers."""
        if not self._hashed:
            return ids.unsqueeze(0)
        # Both halves of an id have at most 20 bits and a coefficient 31: no sum reaches 2^53.
        high, low = ids >> _LOW_BITS, ids & ((1 << _LOW_BITS) - 1)
        first, second, third = self._coefficients
        bucket = (first * high + second * low + third) % _PRIME % self.num_buckets
        hash_index = torch.arange(self.num_hashes, device=ids.device).unsqueeze(1)
        return torch.add(bucket, hash_index, alpha=self.num_buckets)


def _values(bits: Tensor, buckets: Tensor) -> Tensor:
    return bits[buckets].view(torch.float32).double()
