"""A table of class vectors in shards, laid out as in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, Self

import torch
from torch import Tensor, nn

from widemax.declarations import Option, Setup, declare
from widemax.scoring.base import BIAS, Scorer
from widemax.scoring.rows import gather_rows
from widemax.scoring.table import check_table_size, initial_deviation
from widemax.validation import check_ids, check_tensor, check_whole

ShardBy = Literal["mod", "div"]
MAX_SHARDS = 1024


def shard_classes(num_classes: int, num_shards: int, shard_by: ShardBy = "mod") -> list[range]:
    """Return the classes of each shard, in the order of its rows.

    By "mod" class y is row y // n of shard y mod n; by "div" the shards are V / n consecutive
    classes each, and where n does not divide V the first V mod n shards have one more. These are
    the strategies of ``tf.nn.embedding_lookup``.

    >>> [list(classes) for classes in shard_classes(7, 3)]
    [[0, 3, 6], [1, 4], [2, 5]]
    >>> [list(classes) for classes in shard_classes(7, 3, "div")]
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    num_shards = check_whole("num_shards", num_shards, 1, min(num_classes, MAX_SHARDS))
    if shard_by == "mod":
        return [range(shard, num_classes, num_shards) for shard in range(num_shards)]
    if shard_by != "div":
        raise ValueError(f"shard_by must be 'mod' or 'div', got {shard_by!r}")
    size, longer = divmod(num_classes, num_shards)
    starts = [shard * size + min(shard, longer) for shard in range(num_shards + 1)]
    return [range(start, stop) for start, stop in pairwise(starts)]


def sharded_rows(
    shards: Sequence[Tensor], ids: Tensor, *, shard_by: ShardBy = "mod", sparse: bool = False
) -> Tensor:
    """Return the rows of given classes from a table in shards, [*ids.shape, D].

    It is ``tf.nn.embedding_lookup(shards, ids, partition_strategy=shard_by)``; gradients are as in
    ``gather_rows``, for each shard of its own rows.

    >>> table = torch.arange(7.0)[:, None]
    >>> shards = [table[classes.start : classes.stop : classes.step]
    ...           for classes in shard_classes(7, 3)]
    >>> sharded_rows(shards, torch.tensor([[6, 1], [0, 6]]))[..., 0].tolist()
    [[6.0, 1.0], [0.0, 6.0]]
    """
    num_classes = _check_shards(shards, shard_by)
    ids = check_ids("ids", ids, num_classes)
    if len(shards) == 1:
        return gather_rows(shards[0], ids, sparse=sparse)
    flat = ids.reshape(-1)
    owners, rows = _places(flat, num_classes, len(shards), shard_by)
    parts, places = [], []
    for shard, table in enumerate(shards):
        place = (owners == shard).nonzero()[:, 0]
        parts.append(gather_rows(table, rows[place], sparse=sparse))
        places.append(place)
    # The parts are ordered by shard: back into the order of the ids.
    order = torch.empty_like(flat)
    order[torch.cat(places)] = torch.arange(len(flat), device=flat.device)
    return torch.cat(parts).index_select(0, order).view(ids.shape + shards[0].shape[1:])


@declare.scorer(
    "sharded",
    options=[
        BIAS,
        Option(
            "num_shards",
            2,
            "Tables that the class vectors are divided into.",
            least=1,
            most=MAX_SHARDS,
        ),
        Option(
            "shard_by",
            "mod",
            "How classes are divided: in turn (mod), or in consecutive blocks (div).",
            choices=("mod", "div"),
        ),
    ],
)
class ShardedTableScorer(Scorer):
    """A table with one vector per class that is stored in several smaller ones.

    Formula: F(x, y) = x·v_y + b_y; by "mod" v_y is row y // n of table y mod n, by "div" the tables
    are V / n consecutive classes each, the first V mod n of them one more.

    Shapes: ``weights`` n tables [V_s, D], Σ V_s = V, and ``biases`` as many [V_s]; see ``Scorer``.

    Cost: O(B·S·D) time and V·D parameters as in ``TableScorer``, and a sort of the given ids by
    shard. All classes are a copy, [V, D]. With ``sparse=True`` gradients hold only the rows of the
    given ids, in their shards.

    Reference: TensorFlow's ``embedding_lookup`` and ``nce_loss``, whose partition strategies these
    are.

    Use when: weights come from or go to shards of TensorFlow, or no tensor may be as large as the
    table. Avoid when: one tensor will do (``TableScorer``): all shards are in this process.

    >>> _ = torch.manual_seed(0)
    >>> scorer = ShardedTableScorer(1000, 8, num_shards=3, shard_by="div")
    >>> [len(weight) for weight in scorer.weights], scorer(torch.randn(2, 8)).shape
    ([334, 333, 333], torch.Size([2, 1000]))
    """

    tables_are_shards = True

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        *,
        num_shards: int = 2,
        shard_by: ShardBy = "mod",
        bias: bool = False,
        sparse: bool = False,
    ) -> None:
        num_classes, dimension = check_table_size(num_classes, dimension)
        classes = shard_classes(num_classes, num_shards, shard_by)
        super().__init__()
        self.num_classes, self.dimension = num_classes, dimension
        self.shard_by: ShardBy = shard_by
        self.sparse = sparse
        self.weights = nn.ParameterList(torch.empty(len(each), dimension) for each in classes)
        for weight in self.weights:
            nn.init.normal_(weight, std=initial_deviation(dimension))
        biases = (torch.zeros(len(each)) for each in classes)
        self.biases = nn.ParameterList(biases) if bias else None

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the scorer of a run."""
        options = setup.options
        return cls(
            setup.num_classes,
            setup.dimension,
            num_shards=options.num_shards,
            shard_by=options.shard_by,
            bias=options.bias,
            sparse=setup.sparse,
        )

    @classmethod
    @torch.no_grad()
    def from_table(
        cls,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        num_shards: int = 2,
        shard_by: ShardBy = "mod",
        sparse: bool = False,
    ) -> Self:
        """Return a scorer with copies of the rows of one table [V, D], and of its biases [V].

        >>> ShardedTableScorer.from_table(torch.eye(3), num_shards=2).weights[0].tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
        """
        if check_tensor("weight", weight).dim() != 2 or not weight.is_floating_point():
            raise ValueError(
                f"weight must be floating point [V, D], got {weight.dtype} {list(weight.shape)}"
            )
        if bias is not None and check_tensor("bias", bias).shape != weight.shape[:1]:
            raise ValueError(f"bias must be [{len(weight):,}], got {list(bias.shape)}")
        scorer = cls(
            *weight.shape,
            num_shards=num_shards,
            shard_by=shard_by,
            bias=bias is not None,
            sparse=sparse,
        )
        scorer.to(device=weight.device, dtype=weight.dtype)
        scorer._set(scorer.weights, weight)
        if bias is not None:
            scorer.set_class_biases(bias)
        return scorer

    @torch.no_grad()
    def set_class_biases(self, biases: Tensor) -> None:
        """Set the biases of all classes, [V], in their shards."""
        if self.biases is not None:
            self._set(self.biases, biases)

    def _set(self, shards: nn.ParameterList, rows: Tensor) -> None:
        for shard, classes in zip(shards, self._classes(), strict=True):
            shard.copy_(rows[classes.start : classes.stop : classes.step])

    def _classes(self) -> list[range]:
        return shard_classes(self.num_classes, len(self.weights), self.shard_by)

    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return rows of the shards in at least float32, or a copy of all in the order of ids."""
        return self._rows(self.weights, ids)

    def class_biases(self, ids: Tensor | None = None) -> Tensor | None:
        """Return the biases of the given classes, or of all."""
        return None if self.biases is None else self._rows(self.biases, ids)

    def _rows(self, shards: nn.ParameterList, ids: Tensor | None) -> Tensor:
        if ids is not None:
            return sharded_rows(list(shards), ids, shard_by=self.shard_by, sparse=self.sparse)
        joined = torch.cat(list(shards))
        if self.shard_by == "div":
            return joined
        every = torch.arange(self.num_classes, device=joined.device)
        owners, rows = _places(every, self.num_classes, len(shards), self.shard_by)
        sizes = torch.tensor([len(each) for each in shards], device=joined.device)
        return joined.index_select(0, (sizes.cumsum(0) - sizes)[owners] + rows)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        names = ("weights",) if self.biases is None else ("weights", "biases")
        return {
            f"{name}.{place}": classes
            for name in names
            for place, classes in enumerate(self._classes())
        }

    def extra_repr(self) -> str:
        """Return what ``print(scorer)`` shows."""
        return (
            f"num_classes={self.num_classes}, dimension={self.dimension}, "
            f"num_shards={len(self.weights)}, shard_by={self.shard_by!r}, "
            f"bias={self.biases is not None}, sparse={self.sparse}"
        )


def _check_shards(shards: Sequence[Tensor], shard_by: ShardBy) -> int:
    """Return how many classes there are, if the shards can be parts of one table."""
    if not shards:
        raise ValueError("shards must hold at least one table")
    num_classes = sum(len(each) for each in shards)
    wanted = [len(each) for each in shard_classes(num_classes, len(shards), shard_by)]
    found = [len(each) for each in shards]
    if found != wanted:
        place = next(at for at, size in enumerate(found) if size != wanted[at])
        raise ValueError(
            f"shards of {num_classes:,} classes by {shard_by!r} must have {wanted[place]:,} rows "
            f"at place {place}, got {found[place]:,}"
        )
    widths = {tuple(each.shape[1:]) for each in shards}
    if len(widths) > 1:
        raise ValueError(f"shards must have rows of one shape, got {sorted(widths)}")
    return num_classes


def _places(
    ids: Tensor, num_classes: int, num_shards: int, shard_by: ShardBy
) -> tuple[Tensor, Tensor]:
    """Return the shard of each class, and its row there."""
    if shard_by == "mod":
        return ids % num_shards, ids.div(num_shards, rounding_mode="floor")
    size, longer = divmod(num_classes, num_shards)
    of_longer = ids.div(size + 1, rounding_mode="floor")
    of_others = (ids - longer).div(size, rounding_mode="floor")
    owners = torch.where(ids < longer * (size + 1), of_longer, of_others)
    return owners, ids - owners * size - owners.clamp(max=longer)
