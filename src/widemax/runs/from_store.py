"""What a run answers by the items that it has in a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from widemax.runs.catalogue import Catalogue, Neighbour
from widemax.stores.filters import Filter
from widemax.stores.searching import FoundItem, VectorStore
from widemax.vocabulary.spelling import Key

# Similar items are found without torch.
if TYPE_CHECKING:
    from widemax.runs.run import Run


def recommend_from(
    store: VectorStore,
    run: Run,
    history: Sequence[Key] | None = None,
    *,
    user: Key | None = None,
    search: str = "",
    k: int = 10,
    filters: Sequence[Filter] = (),
    include_seen: bool = False,
) -> list[Neighbour]:
    """Return the ``k`` items of a store that best follow a history, as ``Run.recommend`` does.

    The run makes a query of the history, the database finds the items.
    """
    store.check_run(*run.identity(), run.folder)
    queries, seen = run.store_queries(history, user=user, search=search)
    found = store.recommend(queries, k, exclude=() if include_seen else seen, filters=filters)
    return _neighbours(found)


def similar_from(
    store: VectorStore,
    catalogue: Catalogue,
    key: Key,
    *,
    k: int = 10,
    filters: Sequence[Filter] = (),
) -> list[Neighbour]:
    """Return the ``k`` items of a store most similar to one of them, named by key or title."""
    own = catalogue.ids([key], strict=True)[0]
    found = store.similar(store.vectors([own])[0], k, exclude=[own], filters=filters)
    return _neighbours(found)


def _neighbours(found: Sequence[FoundItem]) -> list[Neighbour]:
    return [Neighbour(key=each.key, score=each.score, title=each.title) for each in found]
