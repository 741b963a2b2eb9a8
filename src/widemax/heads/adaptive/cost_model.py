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

from widemax.heads.adaptive.kept import cluster_cross_entropy

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
_USUAL = (8e-4, 8e-9, 6e-11, 3e-9)
_PULL = 0.2


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """How long a training step of one softmax takes on a machine, as a line in its sizes.

    Formula: seconds(B, V, D) = ``overhead`` + B·V·(``per_score`` + D·``per_product``) +
    V·D·``per_parameter``: what a call costs at all, what each score and each of its products
    costs, and what the gradient and the optimiser cost however few the rows are.

    Shapes: four numbers, in seconds.

    Cost: ``CostModel.measured()`` takes about a second once per process; a busy
    machine makes it noisy, and with it the cutoffs.

    Reference: Grave et al. 2017, section 4.1, g(k, B) = max(c + λ·k0·B0, c + λ·k·B) at one fixed
    dimension; the tail clusters have smaller ones, so the dimension is a variable here.

    Use when: cutoffs must be the same on every machine (pass one to ``AdaptiveHead``). Avoid
    when: they should suit this machine (``cutoffs="auto"`` measures).

    >>> model = CostModel(overhead=1e-4, per_score=1e-9, per_product=1e-10, per_parameter=1e-9)
    >>> round(model.seconds(1000, 1000, 100), 4)
    0.0112
    """

    overhead: float
    per_score: float
    per_product: float
    per_parameter: float

    def seconds(self, rows: _Amount, classes: _Amount, dimension: int) -> _Amount:
        """Return the expected time of forward, backward and update of one softmax."""
        scores = rows * classes * (self.per_score + dimension * self.per_product)
        return scores + classes * (dimension * self.per_parameter) + self.overhead

    @staticmethod
    def measured() -> CostModel:
        """Return the model of this machine, measured at the first call in this process."""
        return _measured(torch.get_num_threads())


@lru_cache
def _measured(threads: int) -> CostModel:
    steps = [_training_step(*size) for size in _MEASURED_SIZES]
    # Round by round, not size by size: another program's burst then spoils one round of all.
    rounds = [[_timed(step) for step in steps] for _ in range(_ROUNDS)]
    seconds = np.array(rounds).min(axis=0)
    rows, classes, dimension = np.array(_MEASURED_SIZES, dtype=np.float64).T
    terms = [np.ones_like(rows), rows * classes, rows * classes * dimension, classes * dimension]
    # Divided by the time, errors are relative. A weak pull towards a usual machine decides what
    # noise leaves open: which of the terms a time belongs to.
    pull = np.diag(_PULL / np.array(_USUAL))
    equations = np.concatenate([np.stack(terms, axis=1) / seconds[:, None], pull])
    line = _fit_not_negative(equations, np.append(np.ones(len(seconds)), [_PULL] * len(_USUAL)))
    overhead, per_score, per_product, per_parameter = line.tolist()
    return CostModel(
        overhead=overhead,
        per_score=per_score,
        per_product=per_product,
        per_parameter=per_parameter,
    )


def _fit_not_negative(
    terms: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return least squares with no negative factor: noise must not make a term a gain."""
    kept = np.arange(terms.shape[1])
    while True:
        factors, *_ = np.linalg.lstsq(terms[:, kept], values)
        if factors.min() >= 0:
            break
        kept = np.delete(kept, factors.argmin())
    result = np.zeros(terms.shape[1])
    result[kept] = factors
    return result


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


def _timed(call: Callable[[], None]) -> float:
    # The time this thread ran, not the clock's: other programs then do not count.
    start = time.thread_time()
    call()
    return time.thread_time() - start
