"""Checkpoints of divided tables: written slice by slice, stored as those of one process.

``torch.distributed.checkpoint`` writes the slices as safetensors and puts them together; the store
of a run then takes them in as whole tensors. So a run goes on with any number of processes, or
with one, and answers as any other.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor, nn

from widemax.distributed.dividing import slices_of
from widemax.distributed.slices import Slices
from widemax.storage.files import temporary_name

if TYPE_CHECKING:
    from widemax.distributed.ranks import Ranks

_MODEL, _STATE = "model.", "state."


@dataclass(frozen=True)
class DividedTensors:
    """Which tensors of a model and of its optimiser have rows of this process alone."""

    model: Mapping[str, Slices] = field(default_factory=dict)
    """Parameters, by name."""
    state: Mapping[str, Slices] = field(default_factory=dict)
    """How the names of their states begin, such as "optimizer.state.0."."""

    @classmethod
    def of(cls, model: nn.Module, optimizer: torch.optim.Optimizer) -> DividedTensors:
        """Find them."""
        named = slices_of(model)
        slices = {id(each): named[name] for name, each in model.named_parameters() if name in named}
        learned = [each for group in optimizer.param_groups for each in group["params"]]
        state = {
            f"optimizer.state.{place}.": slices[id(each)]
            for place, each in enumerate(learned)
            if id(each) in slices
        }
        return cls(named, state | {f"trained.{name}": each for name, each in named.items()})

    def slices(self, name: str) -> Slices | None:
        """Return how a tensor of the model or of the state is divided; None: it is not."""
        if name in self.model:
            return self.model[name]
        found = [each for start, each in self.state.items() if name.startswith(start)]
        return found[0] if found else None

    def rows_of(self, name: str, shape: list[int]) -> range | None:
        """Return which rows of a whole tensor this process holds; None: all."""
        slices = self.slices(name)
        return slices.own if slices is not None and shape[:1] == [slices.num_rows] else None

    def divided(self, tensors: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Slices]]:
        """Return those of some tensors that have the rows of this process alone."""
        found = {}
        for name, tensor in tensors.items():
            slices = self.slices(name)
            if slices is not None and tensor.dim() and len(tensor) == len(slices.own):
                found[name] = (tensor, slices)
        return found


@contextmanager
def whole_tensors(
    folder: Path,
    parts: DividedTensors,
    model: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    ranks: Ranks,
) -> Iterator[tuple[Mapping[str, Tensor], Mapping[str, Tensor]]]:
    """Yield whole tensors to rank 0, read from a file as they are used; to others what they have.

    All processes see ``folder``. What is written there has a temporary name, which the next writer
    removes if this one is killed.
    """
    own = {_MODEL + name: each for name, each in parts.divided(model).items()}
    own |= {_STATE + name: each for name, each in parts.divided(state).items()}
    told = ranks.shared({"name": temporary_name()})
    place = folder / str(told["name"])
    try:
        _write(place, own, ranks)
        if not ranks.writes:
            yield model, state
            return
        found = _read(place, own)
        yield (
            {name: found.get(_MODEL + name, each) for name, each in model.items()},
            {name: found.get(_STATE + name, each) for name, each in state.items()},
        )
        del found
    finally:
        if ranks.writes:
            shutil.rmtree(place, ignore_errors=True)


def _write(place: Path, own: Mapping[str, tuple[Tensor, Slices]], ranks: Ranks) -> None:
    """Write slices and what they make together."""
    # Here, because they take a second to load, and few trainings divide tables.
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    group = ranks.wire.group or dist.group.WORLD
    assert group is not None
    mesh = DeviceMesh.from_group(group, "cpu")
    divided = {
        name: DTensor.from_local(
            _as_floating(tensor.detach().contiguous()),
            mesh,
            [Shard(0)],
            run_check=False,
            shape=torch.Size([slices.num_rows, *tensor.shape[1:]]),
            stride=torch.empty(0, *tensor.shape[1:]).stride(),
        )
        for name, (tensor, slices) in own.items()
    }
    writer = HuggingFaceStorageWriter(
        path=str(place), save_distributed=True, enable_consolidation=True
    )
    save(divided, storage_writer=writer, process_group=ranks.wire.group)


def _read(place: Path, own: Mapping[str, tuple[Tensor, Slices]]) -> dict[str, Tensor]:
    """Return the tensors of the files that were put together, mapped: none is in memory yet."""
    found: dict[str, Tensor] = {}
    for path in sorted(place.glob("*.safetensors")):
        with safe_open(str(path), framework="pt") as file:
            names = file.keys()
            found |= {name: file.get_tensor(name) for name in names}
    missing = own.keys() - found.keys()
    if missing:
        raise OSError(f"{place} must hold all divided tensors, {min(missing)} is not there")
    return {name: found[name].view(tensor.dtype) for name, (tensor, _) in own.items()}


def _as_floating(tensor: Tensor) -> Tensor:
    """Return the bits of whole numbers as if they were fractions; of fractions as they are.

    torch puts slices together for floating types alone, and only copies their bits.
    """
    if tensor.is_floating_point():
        return tensor
    return tensor.view({8: torch.float64, 4: torch.float32, 2: torch.float16}[tensor.itemsize])
