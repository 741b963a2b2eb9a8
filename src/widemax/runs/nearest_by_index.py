"""Which keys have the nearest vectors, by an index of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from widemax.filters import Filters
from widemax.index import Index
from widemax.runs.catalogue import Catalogue, Neighbour
from widemax.runs.recommending import first_row
from widemax.validation import check_whole
from widemax.vocabulary.spelling import Key


def similar_by_index(
    index: Index,
    vectors: Tensor,
    catalogue: Catalogue,
    key: Key,
    *,
    filters: Filters | None,
    leave_out: Sequence[Key],
    k: int,
) -> list[Neighbour]:
    """Return what ``NearestKeys.similar`` does, as far as an index of the vectors finds it."""
    own = catalogue.ids([key], strict=True)[0]
    left_out = [own, *catalogue.ids(leave_out, strict=True)]
    found = index.search(
        vectors[[own]],
        min(check_whole("k", k, 1, 2**31), len(vectors)),
        exclude=torch.tensor([left_out]),
        allowed=torch.from_numpy(catalogue.columns.allowed(filters)) if filters else None,
    )
    return catalogue.neighbours(*first_row(found))
