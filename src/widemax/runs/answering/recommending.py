"""What best follows a history: the classes that the model of a run ranks first after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from widemax.runs.answering.asking import QuestionReader
from widemax.runs.answering.questions import Question, RecommendQuestion
from widemax.runs.folder.catalogue import Neighbour, ScoredItem
from widemax.runs.vectors.indexes import RunIndexes, first_row, searches_by_product
from widemax.runs.vectors.points import query_points
from widemax.validation import check_whole
from widemax.vocabulary.spelling import Key


class Recommender:
    """Answers questions by a model, or by an index of its classes."""

    def __init__(self, reader: QuestionReader, indexes: RunIndexes) -> None:
        self.reader, self._indexes = reader, indexes
        self._catalogue = reader.catalogue

    def neighbours(self, asked: RecommendQuestion) -> list[Neighbour]:
        """Return the keys that best follow a history, best first."""
        return self._catalogue.neighbours(*self.rows(asked))

    @torch.no_grad()
    def rows(self, asked: RecommendQuestion) -> tuple[list[int], list[float]]:
        """Return the same as class ids and their scores."""
        model, batch, seen = self.reader.read(asked)
        k = min(check_whole("k", asked.k, 1, 2**31), len(self._catalogue.keys))
        left_out = seen[:0] if asked.include_seen else seen
        if len(asked.leave_out):
            others = self._catalogue.ids(asked.leave_out, strict=True)
            left_out = torch.cat([left_out, torch.tensor(others, dtype=torch.int64)])
        exclude = left_out[None] if left_out.numel() else None
        filters = asked.filters
        allowed = torch.from_numpy(self._catalogue.columns.allowed(filters)) if filters else None
        index = None if asked.exact else self._indexes.to_recommend(self.reader.model)
        if index is not None:
            found = index.search(model.hidden(batch), k, exclude=exclude, allowed=allowed)
            return first_row(found)
        if allowed is not None:
            exclude = torch.cat([left_out, (~allowed).nonzero()[:, 0]])[None]
        return first_row(model.topk(batch, k, exclude=exclude))

    @torch.no_grad()
    def scores(self, items: Sequence[Key], asked: Question) -> list[ScoredItem]:
        """Return how the model scores given items after a history, in their order."""
        model, batch, _ = self.reader.read(asked)
        ids = self._catalogue.ids(items, strict=True)
        columns = torch.tensor(ids, dtype=torch.int64)
        scores = model.scores(batch)[0, columns].tolist()
        log_probs = model.log_prob(batch)[0, columns].tolist()
        found = self._catalogue.neighbours(ids, scores)
        return [
            ScoredItem(
                key=each.key,
                title=each.title,
                score=each.score,
                log_probability=log_prob if math.isfinite(log_prob) else None,
            )
            for each, log_prob in zip(found, log_probs, strict=True)
        ]

    @torch.no_grad()
    def store_queries(self, asked: Question) -> tuple[NDArray[Any], list[int]]:
        """Return what a ``VectorStore`` of the run is searched by, [K, P], and the classes seen."""
        own = self.reader.model
        if not searches_by_product(own):
            raise ValueError(
                f"{type(own).__name__} does not rank items by products of vectors, so that a "
                "database cannot search them"
            )
        model, batch, seen = self.reader.read(asked)
        return query_points(own, model.hidden(batch).flatten(0, -2)), seen.tolist()
