"""What a run keeps of its data, so that it answers without them: histories and a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from widemax.data import Holdout, Sequences, Source, Windows
from widemax.data.reading.tables import table_errors
from widemax.data.sequences import offsets_of
from widemax.data.splitting.holding_out import Split
from widemax.data.summary import DataSummary
from widemax.runs.folder.description import check_run, check_unchanged, stored_vocabulary
from widemax.runs.folder.features import ITEMS, USERS, stored_features
from widemax.runs.folder.histories import HISTORIES, ITEMS_OF, USER, kept_histories, num_users
from widemax.storage.files import atomic_write
from widemax.storage.tensors import read_tensors, serialize_tensors
from widemax.vocabulary import Vocabulary

TEST = "test.safetensors"

_REFIT_COUNTS = "refit_counts"
_AT_ONCE = 2048


@dataclass(frozen=True, kw_only=True)
class KeptTest:
    """What was held out of training and had no say in it."""

    counts: Tensor
    """How often each class was trained on, int64 [V]."""
    holdout: Holdout | None = None
    """Of a log: users, what they had, and what they chose next."""
    windows: Windows | None = None
    """Of a text: words, each with those around it."""

    @classmethod
    def of(cls, split: Split, counts: Tensor) -> KeptTest:
        """Take what a split asks in its test."""
        if isinstance(split.test, Holdout):
            return cls(counts=counts, holdout=split.test)
        return cls(counts=counts, windows=split.test)


def keep_data(
    folder: Path,
    source: Source,
    split: Split,
    *,
    refit_counts: Tensor | None = None,
    earlier: pl.DataFrame | None = None,
) -> None:
    """Write the histories of a log's users, what is held out for the test, and counts.

    What they had before the log (``earlier_histories``) stands before what they have in it.
    """
    names = source.sequences.names
    if source.kind != "text" and names is not None:
        table = pl.DataFrame({USER: names, ITEMS_OF: _as_lists(source.sequences)})
        table = (table if earlier is None else joined_histories(earlier, table)).sort(USER)
        with atomic_write(folder / HISTORIES) as file:
            # Small groups of rows, sorted: one user is found without reading the others.
            table.write_parquet(file, row_group_size=4096)
    tensors = {"counts": torch.bincount(split.sequences.values, minlength=len(source.vocabulary))}
    if refit_counts is not None:
        tensors[_REFIT_COUNTS] = refit_counts
    if isinstance(split.test, Windows):
        tensors |= _window_tensors(split.test)
    elif split.test is not None:
        tensors |= {
            "users": split.test.users,
            **_sequence_tensors("histories", split.test.histories),
            **_sequence_tensors("targets", split.test.targets),
        }
    with atomic_write(folder / TEST) as file:
        for chunk in serialize_tensors(tensors):
            file.write(chunk)


def histories_among(path: Path, users: pl.Series) -> Sequences:
    """Return what each of some users had in the log of a run; nothing of those it has not."""
    with table_errors(path):
        table = pl.read_parquet(path, glob=False, hive_partitioning=False)
    places = places_of(users, table[USER])
    lengths = table[ITEMS_OF].list.len().to_torch().long()
    values = table[ITEMS_OF].explode().drop_nulls().to_torch()
    # A row behind all others has nothing in it, for those who are not there.
    kept = Sequences(values, offsets_of(torch.cat([lengths, torch.zeros(1, dtype=torch.int64)])))
    return kept.chosen(places.where(places >= 0, len(lengths)))


def places_of(keys: pl.Series, among: pl.Series) -> Tensor:
    """Return where each key stands among others, int64 [N]; -1 where it does not.

    Whole numbers may be written as text in one of them.

    >>> places_of(pl.Series(["7", "tea", "3"]), pl.Series([3, 7])).tolist()
    [1, -1, 0]
    """
    table = pl.DataFrame({"key": among}).with_row_index("place")
    sought = pl.DataFrame({"key": keys.cast(among.dtype, strict=False)})
    found = sought.join(table, on="key", how="left", maintain_order="left")["place"]
    return found.cast(pl.Int64).fill_null(-1).to_torch()


def histories_of(path: Path) -> Iterator[tuple[pl.Series, Sequences]]:
    """Yield all users with what they had, some thousand at a time."""
    with table_errors(path):
        table = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        for start in range(0, num_users(path), _AT_ONCE):
            part = table.slice(start, _AT_ONCE).collect()
            lists = part[ITEMS_OF]
            values = torch.from_numpy(lists.explode().drop_nulls().to_numpy(writable=True))
            lengths = torch.from_numpy(lists.list.len().to_numpy(writable=True).astype("int64"))
            yield part[USER], Sequences(values, offsets_of(lengths))


def earlier_histories(folder: Path, old: Vocabulary, new: Vocabulary) -> pl.DataFrame | None:
    """Return what the users of another run had, by the ids of a new one; None if it has no users.

    A class of the old run that the new one does not have is left out.
    """
    path = kept_histories(folder)
    if path is None:
        return None
    with table_errors(path):
        table = pl.read_parquet(path, glob=False, hive_partitioning=False)
    ids = pl.Series(new.encode(old.keys, missing="mark").numpy())
    single = table.explode(ITEMS_OF).drop_nulls()
    single = single.with_columns(ids.gather(single[ITEMS_OF]).alias(ITEMS_OF))
    return single.filter(pl.col(ITEMS_OF) >= 0).group_by(USER, maintain_order=True).agg(ITEMS_OF)


def joined_histories(earlier: pl.DataFrame, later: pl.DataFrame) -> pl.DataFrame:
    """Return the histories of all users, those of the earlier table before those of the later.

    A later history that begins with the whole earlier one is of a log that was continued.

    >>> earlier = pl.DataFrame({"user": ["ann", "bob"], "items": [[1, 2], [3]]})
    >>> later = pl.DataFrame({"user": ["bob", "ann", "cyd"], "items": [[3, 4], [5], [6]]})
    >>> joined_histories(earlier, later).sort("user")["items"].to_list()
    [[1, 2, 5], [3, 4], [6]]
    """
    if earlier[USER].dtype != later[USER].dtype:
        earlier, later = (each.cast({USER: pl.String}) for each in (earlier, later))
    both = earlier.join(later, on=USER, how="full", coalesce=True, suffix="_later")
    before, after = (
        pl.coalesce(name, pl.lit([], dtype=pl.List(pl.Int64))) for name in (ITEMS_OF, "items_later")
    )
    repeats = after.list.head(before.list.len()) == before
    joined = pl.when(repeats).then(after).otherwise(pl.concat_list(before, after))
    return both.select(USER, joined.alias(ITEMS_OF))


def stored_summary(folder: Path) -> DataSummary:
    """Return what the model of a run is built from."""
    description = check_run(folder)
    return DataSummary(
        kind=description["kind"],
        days=float(description["days"]),
        vocabulary=stored_vocabulary(folder),
        item_features=stored_features(folder, ITEMS),
        user_features=stored_features(folder, USERS),
    )


def refit_summary(folder: Path, data: DataSummary) -> DataSummary:
    """Return what a model is built from that is fitted on training and validation data together.

    It has the same classes by the same ids; only the counts differ.
    """
    counts = read_tensors(check_unchanged(folder, TEST)).get(_REFIT_COUNTS)
    if counts is None:  # those of the vocabulary are of all data
        return data
    table = data.vocabulary.table.with_columns(pl.Series("count", counts.numpy()))
    return replace(data, vocabulary=replace(data.vocabulary, table=table))


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
    table = pl.DataFrame({"row": rows.numpy(), ITEMS_OF: sequences.values.numpy()})
    lists = table.group_by("row", maintain_order=True).agg(ITEMS_OF)
    every = pl.DataFrame({"row": torch.arange(len(sequences)).numpy()})
    empty = pl.lit([], dtype=pl.List(pl.Int64))
    return every.join(lists, on="row", how="left", maintain_order="left").select(
        pl.coalesce(ITEMS_OF, empty)
    )[ITEMS_OF]


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
