"""Why an item may be recommended: the one of the history that is most like it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from widemax.runs.folder.catalogue import Catalogue, Neighbour
from widemax.runs.vectors.key_vectors import KeyVectors
from widemax.vocabulary.spelling import Key


def reasons_for(
    items: Sequence[Key], history: Sequence[Key], catalogue: Catalogue, vectors: KeyVectors
) -> list[Neighbour | None]:
    """Return, for each item, that of the history with the nearest vector; None: there is none."""
    if not len(items) or not len(history) or not vectors.there:
        return [None] * len(items)
    own = catalogue.ids(items, strict=True)
    seen = catalogue.ids(list(dict.fromkeys(history)))
    found = reasons_for_rows(own, seen, vectors)
    return [
        each if each is None else catalogue.neighbours([each[0]], [each[1]])[0] for each in found
    ]


def reasons_for_rows(
    own: Sequence[int], seen: Sequence[int], vectors: KeyVectors
) -> list[tuple[int, float] | None]:
    """Return the same for class ids, those of the history each once: an id and the cosine."""
    if not len(own) or not len(seen) or not vectors.there:
        return [None] * len(own)
    unit = vectors.unit([*own, *seen])
    cosines = unit[: len(own)] @ unit[len(own) :].T
    if not set(own).isdisjoint(seen):
        # An item may be in the history itself: another one is its reason.
        cosines[np.equal.outer(own, seen)] = -np.inf
    best, scores = cosines.argmax(axis=1).tolist(), cosines.max(axis=1).tolist()
    return [
        (seen[place], score) if math.isfinite(score) else None
        for place, score in zip(best, scores, strict=True)
    ]
