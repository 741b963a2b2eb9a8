"""Processes that torchrun started, and what they agree on while they train one model."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from widemax.distributed.averaging import average_rows
from widemax.distributed.checkpoints import DividedTensors, whole_tensors
from widemax.distributed.gradients import add_gradients
from widemax.distributed.joined import JoinedBatches
from widemax.distributed.wire import Wire
from widemax.heads.base import SamplerHead, learns
from widemax.storage.state_dicts import flatten_state, unflatten_state
from widemax.training.checkpoint_files import RowsOf
from widemax.training.gradients.steps import GradientSteps
from widemax.training.steps import Steps
from widemax.training.stopping import Validation
from widemax.training.together import ALONE, Together

DEFAULT_TIMEOUT = 45.0
"""Seconds after which a process that does not answer has failed: all end within a minute."""

_PATIENCE = timedelta(days=1)
_ROLL_CALL = 2.0
_MULTIPLIER = 1_000_003
_LOST = re.compile(
    r"gloo|connection (closed|reset|refused)|timed? ?out|broken pipe|socket", re.IGNORECASE
)


class RankFailedError(ConnectionError):
    """Another process of the training ended, or did not answer in time."""


class Ranks(Together):
    """This process among those of its group: it computes its part of each batch.

    The rows of a batch are cut into consecutive parts in the order of the ranks, so that joined
    they are the batch of one process. A process for which none is left computes the first row
    again, with weight 0, so that all meet in the same collectives. The losses are divided by the
    number of all, the gradients added up: a step is that of one process on the joined batch.

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> Ranks().own_rows(torch.tensor([4, 0, 2]), step=0).tolist()
    [4, 0, 2]
    >>> dist.destroy_process_group()
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, *, vocabulary_parallel: bool = False
    ) -> None:
        """Join a group, or all processes; with ``vocabulary_parallel`` tables are divided too."""
        self.wire = Wire(group)
        self.over = self.wire if vocabulary_parallel else None
        self.rank, self.size, self.seed = self.wire.rank, self.wire.size, 0
        self.writes = self.rank == 0
        # Writing a checkpoint, or judging a model, may take longer than an answer.
        self._patient = dist.new_group(timeout=_PATIENCE) if group is None else group
        self._own = torch.Generator()
        self._joined: JoinedBatches | None = None
        self._is_padding = False
        self._stops = False
        self._parts = DividedTensors()

    def attach(self, steps: Any) -> None:
        """Have the steps of a training taken by all processes."""
        if getattr(steps, "takes_jobs", False):
            if self.over is not None:
                raise ValueError("trainer kernel holds whole tables: leave --vocabulary-parallel")
            steps.together, self._joined, self._parts = self, None, DividedTensors()
            return
        _check_divisible(steps)
        assert isinstance(steps, GradientSteps)
        heads = [each for each in steps.model.modules() if isinstance(each, SamplerHead)]
        steps.together, self._joined = self, None
        self._parts = DividedTensors.of(steps.model, steps.optimizer)
        if self._parts.model and steps.clip_norm:
            raise ValueError(
                f"clip_norm must be 0 where tables are divided over processes, got "
                f"{steps.clip_norm}: none of them has all gradients"
            )
        self.seed = steps.seed
        for head in heads:
            if getattr(head, "num_groups", 1) > 1:
                raise ValueError(
                    f"num_groups must be 1 with several processes, got {head.num_groups}: each of "
                    "them is a part of the batch already"
                )
            gathers = head.sampler.from_batch or learns(head.sampler)
            if gathers and not getattr(steps.model, "asks_head_once", True):
                raise ValueError(
                    f"{type(steps.model).__name__} with {type(head.sampler).__name__} cannot be "
                    "divided over processes: how often a batch asks its head depends on the batch"
                )
            self._joined = head.joined = JoinedBatches(self.wire, steps.generator)

    def own_rows(self, rows: Tensor, *, step: int) -> Tensor:
        """Return this process' part of a batch; where there is none, the first row, to weigh 0."""
        own = torch.tensor_split(rows, self.size)[self.rank]
        self._is_padding = not len(own)
        if self._joined is not None:
            self._joined.is_padding = self._is_padding
        # By step and rank: no two processes drop the same units, and a resumed one drops these.
        place = (self.seed * _MULTIPLIER + step) * self.size + self.rank
        self._own.manual_seed(place % 2**63)
        torch.manual_seed((place + _MULTIPLIER**2) % 2**63)
        return rows[:1] if self._is_padding else own

    def own_jobs(self, jobs: list[int]) -> list[int]:
        """Return every n-th job of a step, from this process' own on."""
        return jobs[self.rank :: self.size]

    def average(self, table: Tensor, before: Tensor) -> None:
        """Move each row by the mean of what it moved where it was touched."""
        average_rows(table, before, self.wire)

    def own_generator(self, shared: torch.Generator) -> torch.Generator:
        """Return what this process draws from for its own rows."""
        return self._own

    def mean(self, losses: Tensor, count: Tensor | None = None) -> Tensor:
        """Return this process' part of the mean of the losses of all."""
        number = torch.tensor(len(losses)) if count is None else count
        if self._is_padding:
            losses, number = losses * 0.0, torch.zeros_like(number)
        total = self.wire.sum_(number.double().reshape(1)).clamp(min=1)
        return losses.sum() / total.to(losses.dtype).squeeze()

    def total(self, value: float) -> float:
        """Return the sum of what all processes have."""
        return float(self.wire.sum_(torch.tensor([value], dtype=torch.float64)))

    def exchange(self, model: nn.Module) -> None:
        """Add up the gradients of all processes."""
        named = model.named_parameters()
        add_gradients([each for name, each in named if name not in self._parts.model], self.wire)

    def agreed(self, seconds: float, signal: int) -> float:
        """Return the longest time that has passed; who was asked to stop asks all."""
        seconds, number = self.wire.max_(torch.tensor([seconds, float(signal)]).double()).tolist()
        self._stops = number != 0
        return seconds

    def stops(self, signal: int) -> bool:
        """Return whether any process was asked to stop before this step ended."""
        return self._stops

    def validated(self, validate: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Return what rank 0 found; the others wait, or have their slices of tables asked."""
        asked = self.writes or bool(self._parts.model)
        found: Mapping[str, float] = validate() if asked else {}
        values = getattr(found, "per_question", None)
        kept = {} if values is None else {"values": values}
        state = self.shared({"metrics": dict(found), **kept})
        return Validation(state["metrics"], state.get("values"))

    def decided(self, value: bool) -> bool:
        """Return what rank 0 decided."""
        told = torch.tensor([int(value)])
        dist.broadcast(told, group_src=0, group=self._patient)
        return bool(told)

    def wait(self) -> None:
        """Wait until all are here, however long rank 0 takes."""
        dist.barrier(group=self._patient)

    @contextmanager
    def whole(
        self, folder: Path, model: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> Iterator[tuple[Mapping[str, Tensor], Mapping[str, Tensor]]]:
        """Yield the tensors of all processes: those of rank 0, and slices put together."""
        if not self._parts.model:
            yield model, state
            return
        with whole_tensors(folder, self._parts, model, state, self) as found:
            yield found

    @property
    def rows_of(self) -> RowsOf | None:
        """Which rows of the tensors of a checkpoint this process holds."""
        return self._parts.rows_of if self._parts.model else None

    def shared(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the nested state of rank 0, as JSON and tensors: nothing is pickled."""
        tensors, rest = flatten_state(state)
        shapes = {name: [str(each.dtype), list(each.shape)] for name, each in tensors.items()}
        text = json.dumps({"rest": rest, "tensors": shapes}).encode()
        told = json.loads(bytes(self._bytes_of_first(text)))
        found = {}
        for name, (dtype, shape) in told["tensors"].items():
            kind = getattr(torch, dtype.removeprefix("torch."))
            given = tensors[name].contiguous() if self.writes else torch.empty(shape, dtype=kind)
            dist.broadcast(given, group_src=0, group=self._patient)
            found[name] = given
        return unflatten_state(found, told["rest"])

    def _bytes_of_first(self, text: bytes) -> list[int]:
        size = torch.tensor([len(text)])
        dist.broadcast(size, group_src=0, group=self._patient)
        given = torch.zeros(int(size), dtype=torch.uint8)
        if self.writes:
            given.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        dist.broadcast(given, group_src=0, group=self._patient)
        numbers: list[int] = given.tolist()
        return numbers


def _check_divisible(steps: Steps) -> None:
    """Raise if the steps of a training cannot be divided over processes."""
    if not isinstance(steps, GradientSteps):
        raise ValueError(
            f"several processes train models by gradients (trainer torch) or word2vec, not by "
            f"{type(steps).__name__}: start one process"
        )
    if steps.device.type != "cpu":
        raise ValueError(f"device must be cpu with several processes, got {steps.device.type!r}")
    if getattr(steps.examples, "in_order", False):
        raise ValueError(
            f"{type(steps.model).__name__} reads its streams in order, all in each step: it cannot "
            "be divided over processes"
        )


def launched() -> bool:
    """Return whether torchrun, or what sets the same variables, started this process.

    >>> launched()
    False
    """
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def restarted() -> bool:
    """Return whether torchrun started this process anew after a failure."""
    return launched() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@contextmanager
def joined_ranks(
    *, timeout: float = DEFAULT_TIMEOUT, vocabulary_parallel: bool = False
) -> Iterator[Together]:
    """Join the processes that torchrun started, and leave them at the end; one process is alone.

    A process that ends or does not answer within ``timeout`` seconds ends the others with a
    ``RankFailedError`` that names it. With ``vocabulary_parallel`` the rows of tables of classes
    are divided over the processes too; one process holds them all.

    >>> with joined_ranks() as together:
    ...     together.writes
    True
    """
    if not launched():
        yield ALONE
        return
    if dist.is_initialized():  # by who called: they end it, too
        with naming_who_failed():
            yield Ranks(vocabulary_parallel=vocabulary_parallel)
        return
    with naming_who_failed():
        _join(timedelta(seconds=timeout))
    try:
        # Inside: once the group is gone, nobody can be asked any more.
        with naming_who_failed():
            yield Ranks(vocabulary_parallel=vocabulary_parallel)
    finally:
        dist.destroy_process_group()


def _join(timeout: timedelta) -> None:
    """Join the process group that the environment describes."""
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun with a given address keeps its store over restarts, and with it the addresses of
        # processes that are gone. Several machines may count their restarts differently.
        store = PrefixStore(f"widemax/{attempt}", store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timeout)


@contextmanager
def naming_who_failed() -> Iterator[None]:
    """Turn what a broken connection raises into an error that names the ranks that are gone."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    try:
        yield
    except RuntimeError as error:
        if not _LOST.search(str(error)) and not isinstance(error, dist.DistError):
            raise
        gone = _gone(rank, size)
        who = "another rank" if not gone else f"rank {', '.join(map(str, gone))} of {size}"
        reason = " ".join(str(error).split())
        raise RankFailedError(
            f"rank {rank} stops, for {who} has ended or does not answer; the last checkpoint is "
            f"whole, --resume goes on from it ({_shortened(reason)})"
        ) from error


def _shortened(reason: str) -> str:
    plain = re.sub(r"\[[^\]]*\.cc:\d+\]\s*", "", reason)
    return plain if len(plain) <= 80 else plain[:77] + "..."


def _gone(rank: int, size: int) -> list[int]:
    """Return the ranks that do not answer a call of names within two seconds."""
    missing: list[int] = []
    # In a thread: of a host that is cut off the store itself may never answer.
    call = Thread(target=_call_names, args=(rank, size, missing), daemon=True)
    call.start()
    call.join(_ROLL_CALL + 1)
    return missing


def _call_names(rank: int, size: int, missing: list[int]) -> None:
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    names = [f"widemax/alive/{attempt}/{each}" for each in range(size)]
    try:
        store = dist.distributed_c10d._get_default_store()
        store.set(names[rank], "1")
        end = time.monotonic() + _ROLL_CALL
        while time.monotonic() < end:
            missing[:] = [each for each, name in enumerate(names) if not store.check([name])]
            time.sleep(0.1)
    except (RuntimeError, ValueError, OSError):
        # The store has gone with its host: that of torchrun, or rank 0 where there is none.
        if not missing and "TORCHELASTIC_RUN_ID" not in os.environ:
            missing[:] = [0]
