"""One learned vector per class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from widemax.candidates import ClassBlock
from widemax.declarations import Option, Setup, declare
from widemax.scoring.base import BIAS, SIMILARITY, TEMPERATURE, Scorer
from widemax.scoring.made_dense import check_ddp, watch
from widemax.scoring.pages import ask_for_huge_pages
from widemax.scoring.rows import HALF, gather_rows, widened
from widemax.validation import check_hidden, check_num_classes, check_positive, check_whole

if TYPE_CHECKING:
    from widemax.scoring.mapped import MappedTableScorer

MAX_ENTRIES = 2**38
"""Most values a table may hold: a terabyte in float32."""

SPARSE_ENTRIES = 2**22
"""Values from which a table has sparse gradients by itself, 16 MB in float32.

There a step with Adam on all rows takes some 15 times that on the rows of a batch.
"""

_SCALED_ENTRIES = 2**20
"""Values of a table that are scaled to length 1 at once where nothing is learned: 4 MB."""

_TINY_LENGTH = 1e-12
"""What a shorter vector is divided by when it is scaled to length 1, as torch has it."""

_DTYPES = (*HALF, torch.float32, torch.float64)

Similarity = Literal["dot", "cosine"]
Initial = Literal["zeros", "normal"]


BIAS_START = Option(
    "bias_start",
    0.0,
    "Share of its log count that the bias of a class starts with.",
    most=2.0,
    only_with="bias",
)


@declare.scorer("table", options=[BIAS, BIAS_START, SIMILARITY, TEMPERATURE], traits=["kernel"])
class TableScorer(Scorer):
    """A table with one vector, and if wanted one bias, per class.

    Formula: F(x, y) = x·v_y / τ + b_y, with x and v_y scaled to length 1 when ``similarity`` is
    "cosine". τ (``temperature``) divides the similarity only, never the bias or a correction.

    Shapes: ``weight`` [V, D], ``bias`` [V] or None; see ``Scorer``.

    Cost: O(B·S·D) time, V·D parameters. With ``sparse=True``, and without it from 2^22 values on,
    the gradients of ``weight`` and ``bias`` hold only the rows of the given ids (as in
    ``nn.Embedding``). ``wm.optimizer_for(model)`` takes them, as do all of ``wm.optim``, torch's
    SparseAdam, and its SGD and Adagrad without momentum or weight decay. Others of torch, such as
    AdamW, refuse them if you asked for them; where they came by size, those get a dense gradient,
    for all rows move by their rule, and a warning says so once. With ``dtype=torch.bfloat16`` the
    table takes V·D·2 bytes; rows, products, biases and the gradients of given ids stay float32. All
    classes of a cosine table are scaled in a copy, at least float32.

    Reference: nn.Embedding, whose layout and sparse gradients it keeps.

    Use when: classes are known and each is seen often enough; ``tied`` shares the table with an
    embedding, ``mapped`` keeps it in a file. Avoid when: new classes must be scored from their
    features; or updates are smaller than the rounding of a bfloat16 table (2^-8 of a value).

    >>> import torch
    >>> scorer = TableScorer(1000, 64, bias=True)
    >>> scorer(torch.randn(8, 64), torch.tensor([5, 7])).shape
    torch.Size([8, 2])
    """

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        *,
        bias: bool = False,
        similarity: Similarity = "dot",
        temperature: float = 1.0,
        sparse: bool | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        num_classes, dimension = check_table_size(num_classes, dimension)
        if dtype is not None and dtype not in _DTYPES:
            names = ", ".join(str(each) for each in _DTYPES)
            raise ValueError(f"dtype must be one of {names} or None, got {dtype!r}")
        weight = nn.Parameter(torch.empty(num_classes, dimension, dtype=dtype))
        ask_for_huge_pages(weight)
        nn.init.normal_(weight, std=initial_deviation(dimension))
        self._set_up(weight, bias, similarity, temperature, sparse)

    @classmethod
    def build(cls, setup: Setup) -> TableScorer:
        """Return the scorer of a run, on the encoder's own item vectors where it has some."""
        options = {
            name: getattr(setup.options, name) for name in ("bias", "similarity", "temperature")
        }
        if setup.items is not None:
            scorer = cls.tied(setup.items, sparse=setup.sparse, **options)
        else:
            scorer = cls(setup.num_classes, setup.dimension, sparse=setup.sparse, **options)
        scorer.start_with_counts(setup)
        return scorer

    @torch.no_grad()
    def start_with_counts(self, setup: Setup) -> None:
        """Let biases start with a share of the log counts, as far as a run says so."""
        if setup.options.bias_start:
            # One more of each: a class that was never seen has a logarithm, too.
            log_counts = (setup.counts + 1).double().log()
            self.set_class_biases(setup.options.bias_start * (log_counts - log_counts.mean()))

    @classmethod
    def tied(
        cls,
        embedding: nn.Embedding,
        *,
        bias: bool = False,
        similarity: Similarity = "dot",
        temperature: float = 1.0,
        sparse: bool | None = None,
    ) -> TableScorer:
        """Return a scorer whose class vectors are the embedding's own, learned together.

        Its gradients are sparse where those of the embedding are, unless ``sparse`` says otherwise.

        >>> embedding = nn.Embedding(10, 4, sparse=True)
        >>> scorer = TableScorer.tied(embedding)
        >>> scorer.weight is embedding.weight, scorer.sparse
        (True, True)
        """
        if not isinstance(embedding, nn.Embedding):
            raise ValueError(f"embedding must be an nn.Embedding, got {type(embedding).__name__}")
        if embedding.padding_idx is not None:
            raise ValueError(
                f"embedding must not have a padding_idx, got {embedding.padding_idx}: it would be "
                "scored and recommended like any class"
            )
        scorer = cls.__new__(cls)
        if not isinstance(embedding.weight, nn.Parameter):
            raise ValueError("embedding must own its weight as a parameter, not compute it")
        sparse = embedding.sparse if sparse is None else sparse
        scorer._set_up(embedding.weight, bias, similarity, temperature, sparse)
        return scorer

    @staticmethod
    def mapped(
        path: str | Path,
        num_classes: int,
        dimension: int,
        *,
        bias: bool = False,
        similarity: Similarity = "dot",
        temperature: float = 1.0,
        initial: Initial = "zeros",
        reserve: bool = False,
    ) -> MappedTableScorer:
        """Return a scorer whose table is a file, for tables larger than memory.

        See ``widemax.scoring.mapped.MappedTableScorer``, which it makes.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "vectors.npy"
        >>> scorer = TableScorer.mapped(path, 1_000_000, 64)
        >>> path.stat().st_size, scorer(torch.randn(2, 64), torch.tensor([5, 7])).shape
        (256000128, torch.Size([2, 2]))
        """
        # Here, because the kind of table it makes builds on this one.
        from widemax.scoring.mapped import MappedTableScorer

        return MappedTableScorer(
            path,
            num_classes,
            dimension,
            bias=bias,
            similarity=similarity,
            temperature=temperature,
            initial=initial,
            reserve=reserve,
        )

    def _set_up(
        self,
        weight: nn.Parameter,
        bias: bool | nn.Parameter,
        similarity: Similarity,
        temperature: float,
        sparse: bool | None,
    ) -> None:
        check_similarity(similarity, temperature)
        super().__init__()
        self.num_classes, self.dimension = weight.shape
        self.similarity = similarity
        self.temperature = temperature
        self.sparse = weight.numel() >= SPARSE_ENTRIES if sparse is None else sparse
        self.weight = weight
        if not isinstance(bias, nn.Parameter) and bias:
            # One value per class: half precision would save little and round every score.
            bias = nn.Parameter(widened(weight.new_zeros(self.num_classes)))
        self.bias = bias if isinstance(bias, nn.Parameter) else None
        self._sparse_by_size = self.sparse and sparse is None
        if self._sparse_by_size:
            watch(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of a copy, which has parameters of its own to watch."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self._sparse_by_size:
            watch(self)

    def queries(self, hidden: Tensor) -> Tensor:
        """Return hidden / τ in at least float32, scaled to length 1 first where cosine."""
        return scaled_queries(hidden, self.similarity, self.temperature)

    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return rows of the table in at least float32, or the table as it is stored.

        Where the similarity is cosine both are scaled to length 1, in at least float32.
        """
        vectors = self.weight if ids is None else self._rows(self.weight, ids)
        return scaled_vectors(vectors, self.similarity)

    def blocks(self, hidden: Tensor) -> Sequence[ClassBlock]:
        """Return all classes as blocks; a large table is not copied to be scaled as a whole."""
        scaled = self.similarity == "cosine" and not torch.is_grad_enabled()
        if not scaled or self.weight.numel() <= _SCALED_ENTRIES:
            return super().blocks(hidden)
        return _ScaledBlocks(self, self.queries(check_hidden(hidden, self.dimension)))

    def _rows(self, table: nn.Parameter, ids: Tensor) -> Tensor:
        sparse = self.sparse and check_ddp(self, table, by_size=self._sparse_by_size)
        return gather_rows(table, ids, sparse=sparse)

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return dict.fromkeys(("weight", "bias"), range(self.num_classes))

    def class_biases(self, ids: Tensor | None = None) -> Tensor | None:
        """Return the biases of the given classes, or of all."""
        if self.bias is None or ids is None:
            return self.bias
        return self._rows(self.bias, ids)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Move or cast the table; what its gradient may be follows the new dtype."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for parameter in self.parameters(recurse=False):
            if parameter.grad is None:
                parameter.grad_dtype = parameter.dtype  # where half, gather_rows widens it again
        return self

    def extra_repr(self) -> str:
        """Return what ``print(scorer)`` shows."""
        return (
            f"num_classes={self.num_classes}, dimension={self.dimension}, "
            f"bias={self.bias is not None}, similarity={self.similarity!r}, "
            f"temperature={self.temperature}, sparse={self.sparse}, dtype={self.weight.dtype}"
        )


def check_table_size(num_classes: int, dimension: int) -> tuple[int, int]:
    """Return both if a table of that size may be made."""
    num_classes = check_num_classes(num_classes, limit=MAX_ENTRIES)
    return num_classes, check_whole("dimension", dimension, 1, MAX_ENTRIES // num_classes)


class _ScaledBlocks(Sequence[ClassBlock]):
    """The classes of a table by blocks, each scaled to length 1 when it is asked for."""

    def __init__(self, scorer: TableScorer, queries: Tensor) -> None:
        self._scorer, self._queries = scorer, queries
        self._rows = max(1, _SCALED_ENTRIES // scorer.dimension)

    def __len__(self) -> int:
        return -(-self._scorer.num_classes // self._rows)

    @overload
    def __getitem__(self, place: int) -> ClassBlock: ...
    @overload
    def __getitem__(self, place: slice) -> list[ClassBlock]: ...
    def __getitem__(self, place: int | slice) -> ClassBlock | list[ClassBlock]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(f"there are {len(self)} blocks, not {place}")
        first = place % len(self) * self._rows
        classes = slice(first, first + self._rows)
        biases = self._scorer.class_biases()
        return ClassBlock(
            self._queries,
            scaled_vectors(self._scorer.weight[classes], self._scorer.similarity),
            None if biases is None else biases[classes],
        )


def check_similarity(similarity: Similarity, temperature: float) -> None:
    """Refuse an unknown similarity, or a temperature that is not above 0."""
    if similarity not in ("dot", "cosine"):
        raise ValueError(f"similarity must be 'dot' or 'cosine', got {similarity!r}")
    check_positive("temperature", temperature)


def scaled_queries(hidden: Tensor, similarity: Similarity, temperature: float) -> Tensor:
    """Return hidden / τ in at least float32, scaled to length 1 first where cosine."""
    hidden = widened(hidden)
    if similarity == "cosine":
        # As ``normalize``, without the layers around it, which cost a single row twice as much.
        lengths = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True)
        hidden = hidden / lengths.clamp_min(_TINY_LENGTH)
    return hidden if temperature == 1 else hidden / temperature


def scaled_vectors(vectors: Tensor, similarity: Similarity) -> Tensor:
    """Return class vectors as they are, or scaled to length 1 in at least float32 where cosine."""
    return normalize(widened(vectors), dim=-1) if similarity == "cosine" else vectors


def initial_deviation(dimension: int) -> float:
    """Return D^-½: scores of hidden states with entries of size 1 start at size 1 too."""
    return float(dimension**-0.5)
