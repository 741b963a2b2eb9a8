"""What a run keeps of its data, so that it answers without them: histories, a test, titles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from widemax.data import Holdout, Sequences, Source, Windows
from widemax.data.splitting.holding_out import Split
from widemax.runs.folder import check_unchanged
from widemax.storage.files import atomic_write
from widemax.storage.tensors import read_tensors, serialize_tensors
from widemax.vocabulary.keys import Key

HISTORIES, TEST = "histories.parquet", "test.safetensors"

_USER, _ITEMS = "user", "items"


@dataclass(frozen=True, kw_only=True)
class KeptTest:
    """What was held out of training and had no say in it."""

    counts: Tensor
    """How often each class was trained on, int64 [V]."""
    holdout: Holdout | None = None
    """Of a log: users, what they had, and what they chose next."""
    windows: Windows | None = None
    """Of a text: words, each with those around it."""


def keep_data(folder: Path, source: Source, split: Split) -> None:
    """Write the histories of a log's users and what is held out for the test."""
    names = source.sequences.names
    if source.kind != "text" and names is not None:
        items = _as_lists(source.sequences)
        table = pl.DataFrame({_USER: names, _ITEMS: items}).sort(_USER)
        with atomic_write(folder / HISTORIES) as file:
            # Small groups of rows, sorted: one user is found without reading the others.
            table.write_parquet(file, row_group_size=4096)
    tensors = {"counts": torch.bincount(split.sequences.values, minlength=len(source.vocabulary))}
    if source.kind == "text" and split.test is not None:
        tensors |= _window_tensors(split.test)
    if split.holdout is not None:
        tensors |= {
            "users": split.holdout.users,
            **_sequence_tensors("histories", split.holdout.histories),
            **_sequence_tensors("targets", split.holdout.targets),
        }
    with atomic_write(folder / TEST) as file:
        for chunk in serialize_tensors(tensors):
            file.write(chunk)


def history_of(folder: Path, user: Key) -> list[int] | None:
    """Return the ids of all that a user of the log had, oldest first; None: there is no such user.

    Only the part of the file that can hold the user is read.
    """
    path = folder / HISTORIES
    if not path.is_file():
        return None
    table = pl.scan_parquet(path, glob=False, hive_partitioning=False)
    dtype = table.collect_schema()[_USER]
    wanted: Any = user
    if dtype.is_integer():
        text = str(user)
        if not text.removeprefix("-").isdecimal() or len(text) > 19:
            return None
        wanted = int(text)
    else:
        wanted = str(user)
    found = table.filter(pl.col(_USER) == wanted).select(_ITEMS).collect()
    return None if not found.height else list(found[_ITEMS][0])


def num_users(folder: Path) -> int:
    """Return how many users the log of a run has; 0 for a text."""
    path = folder / HISTORIES
    if not path.is_file():
        return 0
    return int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())


def kept_test(folder: Path) -> KeptTest:
    """Return what was held out, if it is still what was written."""
    tensors = read_tensors(check_unchanged(folder, TEST))
    holdout = None
    if "users" in tensors:
        holdout = Holdout(
            _sequences("histories", tensors), _sequences("targets", tensors), tensors["users"]
        )
    return KeptTest(counts=tensors["counts"], holdout=holdout, windows=_windows(tensors))


def _as_lists(sequences: Sequences) -> pl.Series:
    rows = torch.arange(len(sequences)).repeat_interleave(sequences.lengths)
    table = pl.DataFrame({"row": rows.numpy(), _ITEMS: sequences.values.numpy()})
    lists = table.group_by("row", maintain_order=True).agg(_ITEMS)
    every = pl.DataFrame({"row": torch.arange(len(sequences)).numpy()})
    empty = pl.lit([], dtype=pl.List(pl.Int64))
    return every.join(lists, on="row", how="left", maintain_order="left").select(
        pl.coalesce(_ITEMS, empty)
    )[_ITEMS]


def _window_tensors(windows: Windows) -> dict[str, Tensor]:
    """Return the examples of some windows with no more of their sequences than they are in."""
    positions = windows.positions
    if positions is None:
        positions = torch.arange(len(windows.sequences.values))
    offsets = windows.sequences.offsets
    owners = torch.searchsorted(offsets, positions, right=True) - 1
    rows, place = torch.unique(owners, return_inverse=True)
    chosen = windows.sequences.chosen(rows)
    moved = positions - offsets[owners] + chosen.offsets[place]
    reach = torch.tensor([windows.before, windows.after])
    return {
        "positions": moved,
        "reach": reach,
        **_sequence_tensors("windows", chosen),
    }


def _windows(tensors: Mapping[str, Tensor]) -> Windows | None:
    if "reach" not in tensors:
        return None
    before, after = tensors["reach"].tolist()
    return Windows(_sequences("windows", tensors), before, after, tensors["positions"])


def _sequence_tensors(name: str, sequences: Sequences) -> dict[str, Tensor]:
    return {f"{name}.values": sequences.values, f"{name}.offsets": sequences.offsets}


def _sequences(name: str, tensors: Mapping[str, Tensor]) -> Sequences:
    return Sequences(tensors[f"{name}.values"], tensors[f"{name}.offsets"])
