"""A run at one checkpoint, as the server answers for it: items, users, and what it is."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from widemax.config.flags import as_flags, minimal_settings
from widemax.declarations import Value
from widemax.evaluation.list_metrics import BUCKETS, popularity_buckets
from widemax.runs.answering.questions import Question, RecommendQuestion
from widemax.runs.folder.catalogue import Neighbour
from widemax.runs.from_store import answer_from, similar_from
from widemax.runs.judging.kept_evaluation import stored_evaluation
from widemax.runs.run import Run
from widemax.runs.vectors.map import MapMethod
from widemax.serving.runs.store_pool import StorePool, TablePlace
from widemax.serving.schemas import HistoryQuery, RecommendQuery
from widemax.storage.json_text import finite
from widemax.stores.searching import OtherTableError, VectorStore
from widemax.vocabulary.spelling import Key

POPULARITY = "popularity"
"""What every map can be coloured by."""

_MOST_VALUES, _MOST_VALIDATIONS, _MOST_HISTORY = 100, 1000, 100
_MOST_REASONS = 200
_MOST_COLOURS, _LONGEST_COLOUR = 20, 40
_KINDS = {"categorical": "category", "numeric": "number", "tokens": "tokens"}


class ServedRun:
    """Answers for one checkpoint of a run, from as many threads as there are.

    All that it returns is what JSON holds. Keys are texts: a whole number may be larger than what a
    browser can hold.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        checkpoint: str = "best",
        place: TablePlace | None = None,
        map_by: MapMethod = "pca",
    ) -> None:
        self.name, self.folder, self._map_by = name, folder, map_by
        self.run = Run(folder, checkpoint=checkpoint)
        self.run.prepare()
        self._pool = None if place is None else StorePool(place, self.run)
        self.step = self.run.step
        self._catalogue, self._recommender = self.run.catalogue, self.run.recommender
        self._lock = Lock()
        counts = self.run.vocabulary.counts.numpy()
        # Ids stand in falling count, but for classes that joined an older run.
        self._by_rank = np.argsort(-counts, kind="stable")
        self._ranks = np.empty(len(counts), np.int64)
        self._ranks[self._by_rank] = np.arange(1, len(counts) + 1)
        self._counts = counts
        self._texts = self.run.vocabulary.keys.cast(pl.String)
        self._keys: list[str] = self._texts.to_list()
        self._features = list(self.run.columns.columns.items())
        self._ask_once()
        if map_by != "pca" and self.run.has_vectors:
            # Now: it takes longer than an answer may.
            _ = self._map

    def _ask_once(self) -> None:
        """Ask what clients will, so that none waits for what is compiled or computed once."""
        first = self._keys[int(self._by_rank[0])]
        for ask in (
            lambda: self.recommend(RecommendQuery(history=[first])),
            lambda: self.similar(first, 1),
            lambda: self.search_items(first, 1),
            lambda: self.recommend(RecommendQuery(user=self.users("", 1)[0]["user"])),
        ):
            # A model without vectors has no neighbours, a text no users: whoever asks is told.
            with suppress(ValueError):
                ask()

    def __len__(self) -> int:
        return len(self._counts)

    # Items

    def item(self, row: int) -> dict[str, Any]:
        """Return what is known of a class."""
        titles = self._catalogue.titles
        return {
            "key": self._keys[row],
            "title": (titles[row] or None) if titles is not None else None,
            "count": self._counts.item(row),
            "rank": self._ranks.item(row),
            "row": int(row),
            "features": {
                name: value
                for name, column in self._features
                if (value := column.at(row)) is not None
            },
        }

    def row_of(self, key: str) -> int:
        """Return the class that a key names, or the title of one item alone."""
        return self._catalogue.ids([key], strict=True)[0]

    def items_at(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return some classes; one that there is not is a ValueError."""
        for row in rows:
            if not 0 <= row < len(self):
                raise ValueError(f"rows must be between 0 and {len(self) - 1:,}, got {row:,}")
        return [self.item(row) for row in rows]

    def search_items(self, text: str, k: int) -> list[dict[str, Any]]:
        """Return items whose keys or titles begin with a text, then those that have it in them."""
        rows = _matches(text, self._lowered, self._by_rank, k)
        return [self.item(row) for row in rows]

    def nearest_items(self, text: str, k: int) -> list[dict[str, Any]]:
        """Return the items whose titles, or else keys, are spelt most like a text."""
        names = self._catalogue.nearest(text)[:k]
        keys = [found.key for name in names for found in self._catalogue.find(name, k=1)]
        return [self.item(row) for row in self._catalogue.rows_of(keys) if row is not None]

    @cached_property
    def _lowered(self) -> list[pl.Series]:
        titles = self._catalogue.titles
        columns = [self._texts] if titles is None else [self._texts, pl.Series(titles)]
        return [column.str.to_lowercase() for column in columns]

    # Questions

    def recommend(self, asked: RecommendQuery) -> dict[str, Any]:
        """Return what best follows a history, each item with the nearest one of the history."""
        question = RecommendQuestion(
            history=asked.history,
            user=asked.user,
            search=asked.search or "",
            features=asked.features,
            filters=asked.filters or None,
            leave_out=asked.leave_out,
            k=asked.k,
            include_seen=asked.include_seen,
            exact=asked.exact,
        )
        items = None
        if not asked.exact:
            found = self._from_store(lambda store: answer_from(store, self.run, question))
            items = None if found is None else self._scored(found)
        if items is None:
            items = self._items(*self._recommender.rows(question))
        history: Sequence[Key] = asked.history or []
        if asked.history is None and asked.user is not None:
            history = [each.key for each in self.run.history(asked.user)]
        last = list(dict.fromkeys(history[-_MOST_REASONS:]))
        seen = self._catalogue.ids(last) if items and self.run.has_vectors else []
        reasons = self.run.reasons_of_rows([each["row"] for each in items], seen)
        for item, reason in zip(items, reasons, strict=True):
            item["reason"] = None if reason is None else self._reason(*reason)
        return {"run": self.name, "step": self.step, "items": items}

    def similar(
        self,
        key: str,
        k: int,
        filters: dict[str, Any] | None = None,
        leave_out: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return what is most like an item."""
        filters, catalogue = filters or None, self._catalogue
        found = self._from_store(
            lambda store: similar_from(
                store, catalogue, key, filters=filters, leave_out=leave_out, k=k
            )
        )
        if found is None:
            found = self.run.similar(key, filters=filters, leave_out=leave_out, k=k)
        own = self._keys[self.row_of(key)]
        return {"run": self.name, "step": self.step, "key": own, "items": self._scored(found)}

    def _from_store(self, ask: Callable[[VectorStore], list[Neighbour]]) -> list[Neighbour] | None:
        """Return what the database finds; None: the run itself must be asked.

        It is also while the table is already that of a newer checkpoint, which is being loaded.
        """
        if self._pool is None:
            return None
        try:
            with self._pool.store() as store:
                return ask(store)
        except OtherTableError:
            return None

    def close(self) -> None:
        """Give connections to a database back; what is under way is still answered."""
        if self._pool is not None:
            self._pool.close()

    def score(self, items: Sequence[str], asked: HistoryQuery) -> dict[str, Any]:
        """Return how the model scores given items after a history."""
        question = Question(
            history=asked.history,
            user=asked.user,
            search=asked.search or "",
            features=asked.features,
        )
        scores = [
            {
                "key": str(each.key),
                "title": each.title or None,
                "score": finite(each.score),
                "log_probability": each.log_probability,
            }
            for each in self._recommender.scores(items, question)
        ]
        return {"run": self.name, "step": self.step, "scores": scores}

    def _scored(self, found: Sequence[Neighbour]) -> list[dict[str, Any]]:
        rows = self._catalogue.rows_of([each.key for each in found])
        there = [
            (row, each.score) for row, each in zip(rows, found, strict=True) if row is not None
        ]
        return self._items([row for row, _ in there], [score for _, score in there])

    def _items(self, rows: Sequence[int], scores: Sequence[float]) -> list[dict[str, Any]]:
        items = [self.item(row) for row in rows]
        for item, score in zip(items, scores, strict=True):
            item["score"] = score
        return items

    def _reason(self, row: int, similarity: float) -> dict[str, Any]:
        titles = self._catalogue.titles
        return {
            "key": self._keys[row],
            "title": (titles[row] or None) if titles is not None else None,
            "similarity": similarity,
        }

    # Users

    def users(self, text: str, k: int) -> list[dict[str, Any]]:
        """Return users whose names begin with a text, then those that have it in them."""
        if self._users is None:
            raise ValueError(f"{self.name} has no users: give a history instead")
        names, lengths, lowered = self._users
        order = np.arange(len(names))
        rows = _matches(text, [lowered], order, k)
        return [{"user": names[int(row)], "length": int(lengths[int(row)])} for row in rows]

    @cached_property
    def _users(self) -> tuple[pl.Series, pl.Series, pl.Series] | None:
        if not self.run.has_users:
            return None
        names, lengths = self.run.users()
        texts = names.cast(pl.String)
        return texts, lengths, texts.str.to_lowercase()

    def history(self, user: str) -> dict[str, Any]:
        """Return the last items that a user had."""
        found = self.run.history(user)[-_MOST_HISTORY:]
        rows = self._catalogue.rows_of([each.key for each in found])
        return {"user": user, "history": [self.item(row) for row in rows if row is not None]}

    # The map

    @cached_property
    def _map(self) -> bytes:
        with self._lock:
            return self.run.map(self._map_by).astype("<f4").tobytes()

    def map(self) -> bytes:
        """Return where each class stands, as little-endian float32 pairs."""
        if not self.run.has_vectors:
            raise ValueError(f"{self.name} has no map: its model has no vectors")
        return self._map

    def colours(self, feature: str) -> tuple[bytes, list[str]]:
        """Return a number for each class by a feature, 255 for none of the names, and the names."""
        if feature == POPULARITY:
            buckets = popularity_buckets(self.run.vocabulary.counts).numpy()
            return buckets.astype(np.uint8).tobytes(), list(BUCKETS)
        colours, names = self.run.columns.column(feature).groups(_MOST_COLOURS)
        return colours.tobytes(), [name[:_LONGEST_COLOUR] for name in names]

    # What it is

    @cached_property
    def _about(self) -> dict[str, Any]:
        run, config = self.run, self.run.config
        dimension = run.dimension
        supported = {
            "recommend": True,
            "similar": dimension is not None,
            "score": True,
            "user": run.has_users,
            "filter": bool(len(run.columns)),
            "map": dimension is not None,
            "features": run.data.user_features is not None,
            "search": bool(config.get("search_column", "")),
        }
        settings = minimal_settings(config, run.description["kind"])
        # The names of files, and not where they lie: that is no business of whoever asks.
        plain = {name: _file_name(value) for name, value in settings.items()}
        flags = as_flags(plain)
        words = ["train", Path(run.description["source"]).name, "--folder", self.folder.name]
        return {
            "name": self.name,
            "model": config.model,
            "kind": run.data.source,
            "step": self.step,
            "num_items": len(self),
            "num_users": 0 if self._users is None else len(self._users[0]),
            "dimension": dimension,
            "has_titles": self._catalogue.titles is not None,
            "features": [
                {"name": name, "kind": column.kind, "values": column.values[:_MOST_VALUES]}
                for name, column in self._features
            ],
            "user_features": self._user_features(),
            "supports": [name for name, there in supported.items() if there],
            "metric": config.metric,
            "command": shlex.join(["widemax", *words, *flags]),
            "trained": run.saved_at.isoformat(timespec="seconds"),
        }

    def _user_features(self) -> list[dict[str, Any]]:
        table = self.run.data.user_features
        return (
            []
            if table is None
            else [
                {
                    "name": each.field.name,
                    "kind": _KINDS[each.field.kind],
                    "values": []
                    if each.values is None
                    else each.values.keys.head(_MOST_VALUES).to_list(),
                }
                for each in table.schema.fields
            ]
        )

    def about(self) -> dict[str, Any]:
        """Return what the run is, with what was found of it since it was trained."""
        evaluation, audit = stored_evaluation(self.folder), self.run.stored_audit()
        found = {
            **self._about,
            "validations": self.run.metrics[-_MOST_VALIDATIONS:],
            "evaluation": evaluation,
            "audit": audit,
        }
        about: dict[str, Any] = finite(found)
        return about


def _file_name(value: Value) -> Value:
    return Path(value).name if isinstance(value, str) and "/" in value else value


def _matches(
    text: str, columns: Sequence[pl.Series], order: NDArray[np.int64], k: int
) -> list[int]:
    """Return the first k rows, in an order of all, that begin with a text or else have it."""
    wanted = text.strip().lower()
    if not wanted:
        return [int(row) for row in order[:k]]
    begin = np.any([each.str.starts_with(wanted) for each in columns], axis=0)[order]
    within = np.any([each.str.contains(wanted, literal=True) for each in columns], axis=0)[order]
    first = order[np.flatnonzero(begin)[:k]]
    rest = order[np.flatnonzero(within & ~begin)[: k - len(first)]]
    return [int(row) for row in (*first, *rest)]
