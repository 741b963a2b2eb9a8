"""Class vectors from the spelling of the class: a character CNN and a small correction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from widemax.declarations import Option, Setup, declare
from widemax.scoring.base import BIAS
from widemax.scoring.computed import BLOCK_VALUES, ComputedScorer, in_blocks
from widemax.validation import check_num_classes, check_whole

_BEGIN, _END, _PADDING = 256, 257, 258
"""Marks after the 256 bytes of UTF-8."""

_MAX_WIDTH = 64


@declare.scorer(
    "char-cnn",
    options=[
        BIAS,
        Option("filters", 64, "Output channels of each convolution.", least=1, most=4096),
        Option(
            "correction_dimension",
            16,
            "Length of each class's own vector beside that of its spelling; 0 has none.",
            most=4096,
        ),
    ],
)
class CharCNNScorer(ComputedScorer):
    """Class vectors computed from spellings, corrected by a small vector of each class.

    Formula: F(x, y) = x · v_y + b_y with v_y = A · max_i relu(conv_i(bytes of y)) + C · c_y.
    The convolutions have the given ``widths``, with ``filters`` outputs each; the maximum is over
    the places of the spelling, between a begin and an end mark. ``correction_dimension`` is the
    length of c_y; with 0 there is no correction.

    Shapes: spellings: V strings of at most ``max_length`` bytes in UTF-8; hidden [B, dimension].

    Cost: O(U · L · filters · char_dimension · Σ widths) for the U distinct classes asked for, L the
    longest spelling; then that of a table. In eval mode without gradients the vectors of all
    classes are computed once and kept, and a score costs what it costs a table. Memory: blocks of
    32 MB beside the result; (V + dimension) · correction_dimension and the CNN's parameters.

    Reference: Jozefowicz et al. 2016 (CNN softmax).

    Use when: V is so large that a table is too big, words share stems and endings, or words unseen
    in training must be scored (``vectors_of``). Avoid when: spelling says nothing about the class.

    Two classes of one spelling differ by their corrections only. Parameters changed through
    ``.data`` while in eval mode are not noticed: ``eval()`` or ``train()`` drops what was kept.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> scorer = CharCNNScorer(["walk", "walked", "talk"], 8, correction_dimension=0)
    >>> scorer(torch.randn(2, 8), torch.tensor([0, 2])).shape
    torch.Size([2, 2])
    >>> torch.equal(scorer.vectors_of(["walked"])[0], scorer.class_vectors(torch.tensor([1]))[0])
    True
    """

    characters: Tensor
    """Bytes and marks of each class, int16 [V, L], padded."""

    lengths: Tensor
    """How many of them are not padding, int16 [V]."""

    def __init__(
        self,
        spellings: Sequence[str],
        dimension: int,
        *,
        char_dimension: int = 16,
        widths: Sequence[int] = (1, 2, 3, 4, 5),
        filters: int = 64,
        correction_dimension: int = 16,
        max_length: int = 64,
        bias: bool = False,
    ) -> None:
        if isinstance(spellings, str):
            raise ValueError("spellings must be a sequence of strings, got one string")
        check_num_classes(len(spellings))
        _check_sizes(dimension, char_dimension, widths, filters, correction_dimension, max_length)
        encoded = _encode(spellings, max_length)
        super().__init__()
        self.num_classes, self.dimension = len(spellings), dimension
        self.max_length = max_length
        self.widths = tuple(widths)
        self.character_vectors = nn.Embedding(_PADDING + 1, char_dimension, padding_idx=_PADDING)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(char_dimension, filters, width) for width in self.widths
        )
        self.projection = nn.Linear(filters * len(self.widths), dimension, bias=False)
        self.correction: nn.Embedding | None = None
        if correction_dimension:
            self.correction = nn.Embedding(self.num_classes, correction_dimension)
            self.correction_projection = nn.Linear(correction_dimension, dimension, bias=False)
            # At first a class is what its spelling says.
            nn.init.zeros_(self.correction.weight)
        self.bias = nn.Parameter(torch.zeros(self.num_classes)) if bias else None
        # Part of the state: weights mean nothing with other spellings.
        characters, lengths = _pad(encoded, max(self.widths))
        self.register_buffer("characters", characters)
        self.register_buffer("lengths", lengths)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the scorer of a run: the keys of its classes are their spellings."""
        spellings = [str(key) for key in setup.vocabulary.keys]
        return cls(
            spellings,
            setup.dimension,
            filters=setup.options.filters,
            correction_dimension=setup.options.correction_dimension,
            max_length=max(len(each.encode()) for each in spellings),
            bias=setup.options.bias,
        )

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return dict.fromkeys(("correction.weight", "bias"), range(self.num_classes))

    def class_biases(self, ids: Tensor | None = None) -> Tensor | None:
        """Return the biases of the given classes, or of all."""
        return self.bias if self.bias is None or ids is None else self.bias[ids]

    def vectors_of(self, spellings: Sequence[str]) -> Tensor:
        """Return vectors of any spellings, known or not, from the CNN alone, [N, D]."""
        encoded = _encode(spellings, self.max_length)
        device = self.characters.device
        characters, lengths = (part.to(device) for part in _pad(encoded, max(self.widths)))
        return self._from_spellings(characters, lengths)

    def _vectors(self, ids: Tensor) -> Tensor:
        """Return the vectors of distinct classes, [N, D]."""
        vectors = self._from_spellings(self.characters[ids], self.lengths[ids])
        if self.correction is None:
            return vectors
        corrections: Tensor = self.correction_projection(self.correction(ids))
        return vectors + corrections

    def _from_spellings(self, characters: Tensor, lengths: Tensor) -> Tensor:
        """Return the CNN's vectors of spellings [N, L], [N, D], block by block."""
        outputs = self.projection.in_features + self.character_vectors.embedding_dim
        size = max(1, BLOCK_VALUES // (characters.shape[1] * outputs))
        return in_blocks(self._convolved, size, characters, lengths)

    def _convolved(self, characters: Tensor, lengths: Tensor) -> Tensor:
        """Return the CNN's vectors of one block, [N, D]."""
        sequence = self.character_vectors(characters.int()).transpose(1, 2)
        pooled = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            found = convolution(sequence)
            first = torch.arange(found.shape[-1], device=found.device)
            # Windows over the padding do not count: a vector depends on its own spelling only. A
            # spelling shorter than the window has one window, which ends in padding.
            beyond = (first > 0) & (first + width > lengths[:, None])
            pooled.append(found.masked_fill(beyond[:, None], -torch.inf).amax(-1))
        vectors: Tensor = self.projection(relu(torch.cat(pooled, dim=-1)))
        return vectors


def _encode(spellings: Sequence[str], max_length: int) -> list[bytes]:
    encoded = []
    for index, spelling in enumerate(spellings):
        if not isinstance(spelling, str):
            raise ValueError(f"spellings[{index}] must be a string, got {spelling!r}")
        try:
            encoded.append(spelling.encode())
        except UnicodeEncodeError as error:
            raise ValueError(f"spellings[{index}] is not valid Unicode: {error}") from None
        if len(encoded[-1]) > max_length:
            raise ValueError(
                f"spellings[{index}] must have at most max_length = {max_length:,} bytes, got "
                f"{len(encoded[-1]):,}: {spelling[:20]!r}…"
            )
    return encoded


def _pad(encoded: Sequence[bytes], least: int) -> tuple[Tensor, Tensor]:
    """Return bytes between marks as int16 [N, L], L at least ``least``, and the lengths [N]."""
    lengths = np.array([len(spelling) + 2 for spelling in encoded], dtype=np.int64)
    longest = max(least, int(lengths.max(initial=2)))
    characters = np.full((len(encoded), longest), _PADDING, dtype=np.int16)
    place = np.arange(longest)
    characters[:, 0] = _BEGIN
    inside = (place > 0) & (place < lengths[:, None] - 1)
    characters[inside] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    characters[np.arange(len(encoded)), lengths - 1] = _END
    return torch.from_numpy(characters), torch.from_numpy(lengths.astype(np.int16))


def _check_sizes(
    dimension: int,
    char_dimension: int,
    widths: Sequence[int],
    filters: int,
    correction_dimension: int,
    max_length: int,
) -> None:
    for name, value, least, most in (
        ("dimension", dimension, 1, 2**20),
        ("char_dimension", char_dimension, 1, 2**16),
        ("filters", filters, 1, 2**16),
        ("correction_dimension", correction_dimension, 0, 2**20),
        ("max_length", max_length, 1, 2**14),
        *((f"widths[{index}]", width, 1, _MAX_WIDTH) for index, width in enumerate(widths)),
    ):
        check_whole(name, value, least, most)
    if not widths:
        raise ValueError("widths must hold at least one width, got none")
