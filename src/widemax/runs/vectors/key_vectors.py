"""The vectors that stand for the keys of a run: of words as input, of items as classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.heads import ScorerHead, class_vectors_of
from widemax.models import Model


class KeyVectors:
    """The vectors of the keys as a model has them now, or as it had them when they were kept."""

    def __init__(self, model: Model, name: str) -> None:
        self._model, self._name = model, name
        self._kept: Tensor | None = None
        self._lengths: NDArray[Any] | None = None

    def keep(self) -> None:
        """Compute them now, once for all questions."""
        with torch.no_grad():
            self._kept = self._computed()
        self._lengths = _lengths(self._kept.numpy())

    @property
    def there(self) -> bool:
        """Whether the model has any."""
        try:
            self.table()
        except ValueError:
            return False
        return True

    def table(self) -> Tensor:
        """Return them all, float32 [V, D]; a model that has none is an error."""
        return self._computed() if self._kept is None else self._kept

    def unit(self, rows: Sequence[int]) -> NDArray[Any]:
        """Return those of some classes, each of length 1, or of 0 if it was."""
        own = self.table().numpy().take(rows, axis=0)
        lengths = _lengths(own) if self._lengths is None else self._lengths.take(rows, axis=0)
        unit: NDArray[Any] = own / lengths
        return unit

    def _computed(self) -> Tensor:
        model = self._model
        own = model.key_vectors()
        if own is None and isinstance(model.head, ScorerHead):
            own = class_vectors_of(model.head)
        if own is None:
            # Trees and clusters have no class vectors: those of the classes as input stand in.
            own = model.input_table()
        if own is None:
            raise ValueError(
                f"model {self._name} has no vectors to compare: it is fitted in one go; recommend "
                "says what goes with a key"
            )
        return own.detach().float()


def _lengths(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return the lengths of vectors [N, D], [N, 1], what is divided by: never 0."""
    squares = np.einsum("nd,nd->n", vectors, vectors)[:, None]
    lengths: NDArray[Any] = np.maximum(np.sqrt(squares), 1e-12)
    return lengths
