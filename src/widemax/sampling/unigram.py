"""Classes by their counts, raised to a power."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.declarations import declare
from widemax.devices import by_kernels
from widemax.kernels.sampling import alias as kernel
from widemax.sampling.base import DISTORTION, DRAWN, DRAWS, EXTRA_COUNT, DrawnSampler
from widemax.sampling.count_file import read_counts
from widemax.validation import (
    Counts,
    check_counts,
    check_not_negative,
    check_num_classes,
    check_whole,
    distorted_weights,
)

MAX_ALIAS_CLASSES = 2**31 - 1
"""Most classes an alias table takes: it stores ids as int32."""


@declare.sampler("unigram", options=[*DRAWN, DISTORTION, EXTRA_COUNT], traits=[*DRAWS, "kernel"])
class UnigramSampler(DrawnSampler):
    """Draws classes in proportion to a power of their counts, in O(1) by an alias table.

    Formula: p(y) = n(y)^distortion / Σ n^distortion with n = count + extra_count, over the ids that
    are not reserved (y ≥ num_reserved_ids) and lie in the shard (y mod num_shards = shard); 0 for
    all others and for classes with n = 0. An extra count lets classes compete that were never seen,
    which nothing else would tell to stay down. A distortion below 0 draws rare classes more often.

    Shapes: counts [V]; candidates [S], or [B, S] with ``per_example=True``.

    Cost: O(1) a draw, O(V) to build; 12 bytes a class, up to 2^31 − 1 classes.

    Reference: Mikolov et al. 2013 (distortion 0.75); Caselles-Dupré, Lesaint & Royo-Letelier 2018
    (below 0, for items); TensorFlow's ``fixed_unigram_candidate_sampler``; Vose 1991.

    Use when: the counts are known, in any order of ids. Avoid when: they are not known beforehand
    (``LearnedUnigramSampler``) or do not fit in memory (``LogUniformSampler``).

    A target with p = 0 has the log expected count −inf; it is never NaN.

    >>> import torch
    >>> sampler = UnigramSampler(4, [100, 0, 16, 16], distortion=0.5, num_reserved_ids=1)
    >>> sampler.log_prob(torch.arange(4)).exp().tolist()
    [0.0, 0.0, 0.5, 0.5]
    """

    traced = True
    _table: Tensor
    _relative_bits: Tensor

    def __init__(
        self,
        num_classes: int,
        counts: Counts,
        *,
        distortion: float = 0.75,
        extra_count: float = 0.0,
        num_reserved_ids: int = 0,
        num_shards: int = 1,
        shard: int = 0,
        unique: bool = False,
        per_example: bool = False,
    ) -> None:
        super().__init__(
            num_classes, unique=unique, per_example=per_example, limit=MAX_ALIAS_CLASSES
        )
        check_whole("num_reserved_ids", num_reserved_ids, 0, num_classes - 1)
        check_whole("num_shards", num_shards, 1, num_classes)
        check_whole("shard", shard, 0, num_shards - 1)
        extra_count = check_not_negative("extra_count", extra_count)
        if extra_count:
            counts = check_counts(counts, num_classes, all_zero=True) + extra_count
        weights = distorted_weights(counts, num_classes, distortion)
        _exclude(weights, num_reserved_ids, num_shards, shard)
        scaled = kernel.scaled_weights(weights)
        table = torch.from_numpy(kernel.build_alias_table(scaled)).view(torch.int64).squeeze(1)
        # V·p(y): in float32 it vanishes exactly where the column's threshold does. Kept as bits,
        # because model.half() would round a floating buffer.
        relative = torch.from_numpy(scaled.astype(np.float32)).view(torch.int32)
        self.register_buffer("_table", table, persistent=False)
        self.register_buffer("_relative_bits", relative, persistent=False)
        self._num_drawable = int(torch.count_nonzero(relative))

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        separator: str = ",",
        num_classes: int | None = None,
        distortion: float = 0.75,
        num_reserved_ids: int = 0,
        num_shards: int = 1,
        shard: int = 0,
        unique: bool = False,
        per_example: bool = False,
    ) -> Self:
        """Return the sampler of the counts in a vocabulary file, one class a line, in order.

        The count is the last column of each line. The first line is class ``num_reserved_ids``;
        the reserved ids before it are not in the file. ``num_classes`` need not be given; if it is,
        it must be that of the file, reserved ids counted. It is TensorFlow's
        ``fixed_unigram_candidate_sampler(vocab_file=…)``, which has ``distortion`` 1 by default.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "words.csv"
        >>> _ = path.write_text("the,9\\nroad,4\\nsun,1\\n")
        >>> sampler = UnigramSampler.from_file(path, distortion=0.5, num_reserved_ids=1)
        >>> [round(p, 4) for p in sampler.log_prob(torch.arange(4)).exp().tolist()]
        [0.0, 0.5, 0.3333, 0.1667]
        """
        num_reserved_ids = check_whole("num_reserved_ids", num_reserved_ids, 0, MAX_ALIAS_CLASSES)
        counts = read_counts(path, separator=separator)
        found = num_reserved_ids + len(counts)
        if num_classes is not None and num_classes != found:
            raise ValueError(
                f"num_classes must be {found:,}, as {path} has {len(counts):,} counts and "
                f"num_reserved_ids is {num_reserved_ids:,}, got {num_classes!r}"
            )
        check_num_classes(found, limit=MAX_ALIAS_CLASSES)
        return cls(
            found,
            np.concatenate([np.zeros(num_reserved_ids), counts]),
            distortion=distortion,
            num_reserved_ids=num_reserved_ids,
            num_shards=num_shards,
            shard=shard,
            unique=unique,
            per_example=per_example,
        )

    @property
    def num_drawable(self) -> int:
        """How many classes have a probability above 0."""
        return self._num_drawable

    def draw(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return independent draws, int64 of the given shape."""
        size = math.prod(shape)
        column = torch.randint(self.num_classes, (size,), device=device, generator=generator)
        # float64: a float32 uniform is a multiple of 2^-24 and would overdraw the rarest classes.
        uniform = torch.rand(size, dtype=torch.float64, device=device, generator=generator)
        look_up = _look_up_on_cpu if by_kernels(column) else look_up_in_torch
        return look_up(self._table, column, uniform).view(shape)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y) for each id, −inf where y is never drawn."""
        bits = self._relative_bits.index_select(0, ids.reshape(-1))
        log_prob = bits.view(torch.float32).double().log() - math.log(self.num_classes)
        return log_prob.view(ids.shape)


def look_up_in_torch(table: Tensor, column: Tensor, uniform: Tensor) -> Tensor:
    """Return the classes [S] that columns and uniforms [S] draw from a table, on any device."""
    # One int64 holds threshold and alias: a draw misses the cache once, however large V is.
    entry = table.index_select(0, column).view(torch.int32).view(len(column), 2)
    threshold = entry.view(torch.float32)[:, 0]
    return torch.where(uniform < threshold, column, entry[:, 1])


def _look_up_on_cpu(table: Tensor, column: Tensor, uniform: Tensor) -> Tensor:
    packed = table.numpy()
    threshold, alias = packed.view(np.float32)[0::2], packed.view(np.int32)[1::2]
    return torch.from_numpy(kernel.look_up(threshold, alias, column.numpy(), uniform.numpy()))


def _exclude(weights: NDArray[np.float64], num_reserved: int, num_shards: int, shard: int) -> None:
    """Set the weights of reserved ids and of other shards to 0, in place."""
    weights[:num_reserved] = 0.0
    kept = weights[shard::num_shards].copy()
    weights[:] = 0.0
    weights[shard::num_shards] = kept
    if not weights.any():
        raise ValueError(
            f"counts leaves no class to draw: num_reserved_ids = {num_reserved:,} and shard = "
            f"{shard:,} of num_shards = {num_shards:,} exclude every class with a count above 0"
        )
