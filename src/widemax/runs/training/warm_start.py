"""Starting a run from what was learned before: vectors of a file, or another run."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch
from torch import Tensor, nn

from widemax.encoders import BagEncoder, YouTubeDNNEncoder
from widemax.heads import ScorerHead
from widemax.models import Model
from widemax.runs.folder.description import holds_run
from widemax.runs.run import Run
from widemax.scoring import TableScorer
from widemax.storage.files import open_to_read
from widemax.vectors import KeyedVectors, read_word2vec_binary, read_word2vec_text
from widemax.vectors.rows import read_header
from widemax.vocabulary import Vocabulary

_LONGEST_LINE = 2**25
_PARTS = ("encoder", "head.scorer")
"""What of a model learns something about its classes that another run can start from."""
_NO_INPUT = "{} has no input vectors that could be initialised"

Learned = KeyedVectors | Run | str | Path
"""What a run may start from: vectors, a run, or the path of either."""


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """How many of the classes start from a vector that was given."""

    found: int
    """Classes with a vector."""
    classes: int
    """All classes."""


def as_learned(learned: Learned) -> KeyedVectors | Run:
    """Return vectors or a run, read from a word2vec file or a folder if it is a path."""
    if isinstance(learned, KeyedVectors | Run):
        return learned
    if holds_run(Path(learned)):
        return Run(learned)
    if Path(learned).is_dir():
        raise ValueError(
            f"vectors must be a word2vec file or the folder of a run, and {learned} is a folder "
            "without a run.json"
        )
    return read_word2vec_text(learned) if _is_text(learned) else read_word2vec_binary(learned)


def _is_text(path: str | Path) -> bool:
    """Return whether the line after the header ends with as many decimal numbers as it states.

    One number is not enough: the key may be one, and a byte of the next a line break.
    """
    with open_to_read(path) as file:
        _, dimension = read_header(path, file)
        fields = file.readline(_LONGEST_LINE).split()
    try:
        numbers = [float(field) for field in fields[-dimension:]]
    except ValueError:
        return False
    return len(numbers) == dimension < len(fields)


@torch.no_grad()
def warm_start(model: Model, vocabulary: Vocabulary, learned: KeyedVectors | Run) -> WarmStart:
    """Copy what was learned about known keys: vectors into each table, or a run's own tables.

    Of a run of the same model everything that its encoder and scorer have learned is copied. What
    was not given stays as it is: classes of other keys, and the inner nodes of a tree. ``learned``
    must have the dimension of the model.

    >>> import widemax as wm
    >>> head = wm.FullHead(wm.TableScorer(2, 2))
    >>> model, vocabulary = wm.models.CBOW(BagEncoder(2, 2), head), Vocabulary.count(["tea", "rum"])
    >>> warm_start(model, vocabulary, KeyedVectors(["gin", "rum"], torch.eye(2)))
    WarmStart(found=1, classes=2)
    >>> model.encoder.weight[vocabulary.encode(["rum"])].tolist()
    [[0.0, 1.0]]
    """
    if isinstance(learned, Run) and type(learned.model) is type(model):
        return _continue(model, vocabulary, learned)
    tables = _tables(model)
    keys, given = _given(learned, tables)
    dimension, wanted = given["input"].shape[1], tables["input"].shape[1]
    if dimension != wanted:
        raise ValueError(
            f"vectors must have the dimension of the run, {wanted}, got {dimension}: "
            f"train with dimension = {dimension}, or give others"
        )
    found, taken = _matched(vocabulary, keys)
    for name in tables.keys() & given.keys():
        tables[name][found] = given[name][taken].to(tables[name].dtype)
    return WarmStart(found=len(found), classes=len(vocabulary))


def _continue(model: Model, vocabulary: Vocabulary, learned: Run) -> WarmStart:
    """Copy what another run of the same model has learned, class tables by their keys."""
    found, taken = _matched(vocabulary, learned.vocabulary.keys.cast(pl.String))
    same_ids = vocabulary.keys.equals(learned.vocabulary.keys)
    copied = False
    for part in _PARTS:
        own, theirs = _part(model, part), _part(learned.model, part)
        if own is None or theirs is None or type(own) is not type(theirs):
            continue
        tables, their_tables = _class_tables(own), _class_tables(theirs)
        others = theirs.state_dict()
        for name, value in own.state_dict(keep_vars=True).items():
            if not _is_learned(part, value):
                continue
            if name in tables:
                for their_name in _same_table(own, name, their_tables.keys() & others.keys()):
                    other = others[their_name]
                    _check_width(f"{part}.{name}", value, other)
                    rows = _rows_in(tables[name], found)
                    their_rows = _rows_in(their_tables[their_name], taken)
                    # A class that is in another block than before starts anew.
                    both = (rows >= 0) & (their_rows >= 0)
                    value.data[rows[both]] = other[their_rows[both]].to(value.dtype)
                    copied = True
            elif (
                (other := others.get(name)) is not None
                and value.shape == other.shape
                and (same_ids or _is_shared(f"{part}.{name}", own, value, len(vocabulary)))
            ):
                value.data.copy_(other)
    if not copied:
        raise ValueError(_NO_INPUT.format(type(model).__name__))
    return WarmStart(found=len(found), classes=len(vocabulary))


def _part(model: Model, name: str) -> nn.Module | None:
    part: object = model
    for each in name.split("."):
        part = getattr(part, each, None)
    return part if isinstance(part, nn.Module) else None


def _class_tables(part: nn.Module) -> Mapping[str, range]:
    """Return the tensors of an encoder or a scorer that have rows for classes, as it says."""
    tables = getattr(part, "class_tables", None)
    return {} if tables is None else tables()


def _same_table(part: nn.Module, name: str, names: Set[str]) -> list[str]:
    """Return which tensors of another run have rows that mean what those of ``name`` do."""
    if not getattr(part, "tables_are_shards", False):
        return [name] if name in names else []
    table = name.rpartition(".")[0]
    return [each for each in names if each.rpartition(".")[0] == table]


def _rows_in(classes: range, ids: Tensor) -> Tensor:
    """Return the rows of classes in a table of these classes, -1 where they are in another."""
    rows = (ids - classes.start).div(classes.step, rounding_mode="floor")
    inside = (ids >= classes.start) & (ids < classes.stop)
    return torch.where(inside & (rows * classes.step + classes.start == ids), rows, -1)


def _is_learned(part: str, value: Tensor) -> bool:
    """Return whether a tensor is what an encoder or a scorer learns, not what it is told."""
    return part == "encoder" or isinstance(value, nn.Parameter)


def _is_shared(name: str, part: nn.Module, value: Tensor, num_classes: int) -> bool:
    """Return whether a tensor that is no class table can be copied as it is.

    If it has as many rows as there are classes, a buffer is what the part was told about them, and
    stays; a parameter may be a table that nobody declared, unless the part's own class declares.
    """
    if num_classes not in value.shape:
        return True
    if not isinstance(value, nn.Parameter):
        return False
    if "class_tables" in vars(type(part)):
        return True
    raise ValueError(
        f"{name} has {num_classes:,} rows or columns, as many as there are classes, and "
        f"{type(part).__name__} does not say whether they are classes, whose ids differ in the "
        "other run: give it a method class_tables"
    )


def _check_width(name: str, own: Tensor, other: Tensor) -> None:
    if own.shape[1:] != other.shape[1:]:
        raise ValueError(
            f"vectors must have the dimension of the run, {own.shape[-1]}, got {other.shape[-1]} "
            f"in {name}: train with dimension = {other.shape[-1]}, or give others"
        )


def _matched(vocabulary: Vocabulary, keys: pl.Series) -> tuple[Tensor, Tensor]:
    """Return the classes that are among the keys, and the rows of these."""
    rows = _rows_of(vocabulary, keys)
    found = torch.tensor(rows.is_not_null().arg_true().to_numpy(), dtype=torch.int64)
    if not len(found):
        raise ValueError(
            f"vectors must hold keys of the source, got none of its {len(vocabulary):,} classes "
            f"(such as {vocabulary.keys[0]!r}) among {len(keys):,} keys "
            f"(such as {keys[0]!r})"
        )
    return found, torch.tensor(rows.drop_nulls().to_numpy())


def _given(
    learned: KeyedVectors | Run, tables: dict[str, Tensor]
) -> tuple[pl.Series, dict[str, Tensor]]:
    """Return the keys, and what there is for each table."""
    if isinstance(learned, Run):
        return learned.vocabulary.keys.cast(pl.String), _tables(learned.model)
    matrices = [name for name, table in tables.items() if table.dim() == 2]
    return learned.keys, dict.fromkeys(matrices, learned.vectors)


def _tables(model: Model) -> dict[str, Tensor]:
    """Return all of a model that has one row a class, by what it is for."""
    inputs = model.input_table()
    if inputs is None or not isinstance(model.encoder, BagEncoder | YouTubeDNNEncoder):
        raise ValueError(_NO_INPUT.format(type(model).__name__))
    tables: dict[str, Tensor] = {"input": inputs}
    if isinstance(model.head, ScorerHead) and isinstance(model.head.scorer, TableScorer):
        if model.head.scorer.weight is not inputs:
            tables["class"] = model.head.scorer.weight
        if model.head.scorer.bias is not None:
            tables["bias"] = model.head.scorer.bias
    return tables


def _rows_of(vocabulary: Vocabulary, keys: pl.Series) -> pl.Series:
    """Return the row of each class among the keys, null where it is not there."""
    # Files hold text: keys that are whole numbers are matched by their decimal digits.
    own = vocabulary.keys.cast(pl.String)
    rows = pl.int_range(len(keys), eager=True)
    return own.replace_strict(keys, rows, default=None, return_dtype=pl.Int64)
