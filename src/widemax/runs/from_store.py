"""What a run answers by the items that it has in a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from widemax.filters import Filters
from widemax.runs.answering.questions import RecommendQuestion
from widemax.runs.folder.catalogue import Catalogue, Neighbour
from widemax.stores.searching import FoundItem, VectorStore
from widemax.vocabulary.spelling import Key

# Similar items are found without torch.
if TYPE_CHECKING:
    from widemax.runs.answering.newcomers import FeatureValue
    from widemax.runs.run import Run


def recommend_from(
    store: VectorStore,
    run: Run,
    history: Sequence[Key] | None = None,
    *,
    user: Key | None = None,
    search: str = "",
    features: Mapping[str, FeatureValue] | None = None,
    filters: Filters | None = None,
    leave_out: Sequence[Key] = (),
    k: int = 10,
    include_seen: bool = False,
) -> list[Neighbour]:
    """Return the ``k`` items of a store that best follow a history, as ``Run.recommend`` does.

    The run makes a query of the history, the database finds the items.
    """
    asked = RecommendQuestion(
        history=history,
        user=user,
        search=search,
        features=features,
        filters=filters,
        leave_out=leave_out,
        k=k,
        include_seen=include_seen,
    )
    return answer_from(store, run, asked)


def answer_from(store: VectorStore, run: Run, asked: RecommendQuestion) -> list[Neighbour]:
    """Return the items of a store that best follow a history, of a question made before."""
    store.check_run(*run.identity(), run.folder)
    _check_values(run.catalogue, asked.filters)
    left_out = run.catalogue.ids(asked.leave_out, strict=True)
    queries, seen = run.recommender.store_queries(asked)
    left_out += [] if asked.include_seen else seen
    return _neighbours(store.recommend(queries, asked.k, exclude=left_out, filters=asked.filters))


def similar_from(
    store: VectorStore,
    catalogue: Catalogue,
    key: Key,
    *,
    filters: Filters | None = None,
    leave_out: Sequence[Key] = (),
    k: int = 10,
) -> list[Neighbour]:
    """Return the ``k`` items of a store most similar to one of them, named by key or title."""
    _check_values(catalogue, filters)
    own = catalogue.ids([key], strict=True)[0]
    left_out = [own, *catalogue.ids(leave_out, strict=True)]
    found = store.similar(store.vectors([own])[0], k, exclude=left_out, filters=filters)
    return _neighbours(found)


def _check_values(catalogue: Catalogue, filters: Filters | None) -> None:
    """Raise if filters name what no item has: a database would find nothing, and not say why."""
    if filters:
        catalogue.columns.allowed(filters)


def _neighbours(found: Sequence[FoundItem]) -> list[Neighbour]:
    return [Neighbour(key=each.key, score=each.score, title=each.title) for each in found]
