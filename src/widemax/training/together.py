"""What several processes that train one model must agree on; one process agrees with itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from widemax.training.checkpoint_files import RowsOf


class Together:
    """How a process takes its part in each step of a training: here, all of it.

    ``widemax.distributed`` has the one for several processes. All of them take the same steps in
    the same order; the first writes the folder of the run.

    >>> rows = torch.tensor([4, 0, 2])
    >>> Together().own_rows(rows, step=0).tolist()
    [4, 0, 2]
    """

    writes = True
    """Whether this process writes the folder of the run."""
    size = 1
    """How many processes there are."""

    def attach(self, steps: Any) -> None:
        """Have the steps of a training taken together."""

    def own_rows(self, rows: Tensor, *, step: int) -> Tensor:
        """Return which rows of the batch of a step this process computes; at least one."""
        return rows

    def own_jobs(self, jobs: list[int]) -> list[int]:
        """Return which jobs of a step this process does; there may be none."""
        return jobs

    def average(self, table: Tensor, before: Tensor) -> None:
        """Make a table the same everywhere, that all had as ``before`` and trained apart."""

    def own_generator(self, shared: torch.Generator) -> torch.Generator:
        """Return what a model draws from that draws for each of its rows."""
        return shared

    def mean(self, losses: Tensor, count: Tensor | None = None) -> Tensor:
        """Return this process' part of the mean of all losses; ``count`` of them are counted."""
        return losses.mean() if count is None else losses.sum() / count.clamp(min=1)

    def total(self, value: float) -> float:
        """Return the sum of what all processes have."""
        return value

    def exchange(self, model: nn.Module) -> None:
        """Make the gradients those of the whole batch."""

    def agreed(self, seconds: float, signal: int) -> float:
        """Return the time that has passed, having said which signal this process got; 0: none."""
        return seconds

    def stops(self, signal: int) -> bool:
        """Return whether to stop after this step, as a signal asks for."""
        return signal != 0

    def validated(self, validate: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Return what a validation found."""
        return validate()

    def decided(self, value: bool) -> bool:
        """Return what the writing process decided."""
        return value

    @contextmanager
    def whole(
        self, folder: Path, model: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> Iterator[tuple[Mapping[str, Tensor], Mapping[str, Tensor]]]:
        """Yield the tensors of a model and of its state to the process that writes them.

        Where they are divided over processes, they pass through files in ``folder``.
        """
        yield model, state

    @property
    def rows_of(self) -> RowsOf | None:
        """Which rows of the tensors of a checkpoint this process holds; None: all of all."""
        return None

    over: Any = None
    """What tables of classes are divided over; None: this process holds them whole."""

    def wait(self) -> None:
        """Wait for the writing process, however long it takes."""


ALONE = Together()
