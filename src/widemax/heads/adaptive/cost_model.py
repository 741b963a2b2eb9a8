"""How long a softmax of a given size takes on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from widemax.heads.adaptive.clusters import cluster_cross_entropy

_Amount = TypeVar("_Amount", float, NDArray[np.float64])

# (rows, classes, dimension): each term of the model dominates in some of them.
_MEASURED_SIZES = (
    (16, 64, 8),
    (16, 32768, 16),
    (64, 8192, 64),
    (256, 4096, 8),
    (256, 4096, 64),
    (512, 2048, 128),
    (1024, 1024, 32),
)
_ROUNDS = 5
# Overhead, seconds per score, per product and per parameter of one core of a small server.
_TYPICAL = (8e-4, 8e-9, 6e-11, 3e-9)
_PULL = 0.2


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """How long a training step of one softmax takes on a machine, linear in its sizes.

    seconds(B, V, D) = ``overhead`` + B·V·(``per_score`` + D·``per_product``) +
    V·D·``per_parameter``. Grave et al. (2017, section 4.1) have one fixed dimension; tail clusters
    have smaller ones, so the dimension is a variable here.

    >>> model = CostModel(overhead=1e-4, per_score=1e-9, per_product=1e-10, per_parameter=1e-9)
    >>> round(model.seconds(1000, 1000, 100), 4)
    0.0112
    """

    overhead: float
    """Seconds that any call takes."""
    per_score: float
    """Seconds for each score of a row and a class."""
    per_product: float
    """Seconds for each product of two values in a score."""
    per_parameter: float
    """Seconds of gradient and optimiser for each parameter, however few the rows are."""

    def seconds(self, rows: _Amount, classes: _Amount, dimension: int) -> _Amount:
        """Return the expected time of forward, backward and update of one softmax."""
        scores = rows * classes * (self.per_score + dimension * self.per_product)
        return scores + classes * (dimension * self.per_parameter) + self.overhead

    @staticmethod
    def measured() -> CostModel:
        """Return the model of this machine, measured at the first call in this process.

        It takes about a second; a busy machine makes it noisy, and with it the cutoffs.
        """
        return _measured(torch.get_num_threads())


@lru_cache
def _measured(threads: int) -> CostModel:
    steps = [_training_step(*size) for size in _MEASURED_SIZES]
    # Round by round, not size by size: another program's burst then spoils one round of all.
    rounds = [[_time(step) for step in steps] for _ in range(_ROUNDS)]
    seconds = np.array(rounds).min(axis=0)
    rows, classes, dimension = np.array(_MEASURED_SIZES, dtype=np.float64).T
    terms = [np.ones_like(rows), rows * classes, rows * classes * dimension, classes * dimension]
    # Divided by the time, errors are relative. A weak pull towards a typical machine decides what
    # noise leaves open: which of the terms a time belongs to.
    pull = np.diag(_PULL / np.array(_TYPICAL))
    equations = np.concatenate([np.stack(terms, axis=1) / seconds[:, None], pull])
    values = np.append(np.ones(len(seconds)), [_PULL] * len(_TYPICAL))
    # Least squares without a negative factor: noise must not make a term a gain.
    kept = np.arange(len(terms))
    while (factors := np.linalg.lstsq(equations[:, kept], values)[0]).min() < 0:
        kept = np.delete(kept, factors.argmin())
    fitted = np.zeros(len(terms))
    fitted[kept] = factors
    return CostModel(**dict(zip(CostModel.__dataclass_fields__, fitted.tolist(), strict=True)))


def _training_step(rows: int, classes: int, dimension: int) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(classes, dimension, generator=generator).requires_grad_()
    hidden = torch.randn(rows, dimension, generator=generator).requires_grad_()
    targets = torch.randint(classes, (rows, 1), generator=generator)
    optimizer = torch.optim.Adagrad([table])
    ones = torch.ones(rows, 1)

    def step() -> None:
        optimizer.zero_grad()
        cluster_cross_entropy(hidden, table, None, targets, ones).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _time(call: Callable[[], None]) -> float:
    # The time this thread ran, not the clock's: other programs do not count.
    start = time.thread_time()
    call()
    return time.thread_time() - start
