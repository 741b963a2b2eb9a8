"""From a question to what a model is asked: classes in place of keys, rows in place of users."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from widemax.config import Config
from widemax.data import Sequences, WindowBatch
from widemax.data.reading.searches import words_of
from widemax.data.summary import DataSummary
from widemax.declarations.options import shortened
from widemax.models import Model
from widemax.runs.answering.newcomers import encode_newcomer, model_for
from widemax.runs.answering.questions import Question
from widemax.runs.folder.catalogue import Catalogue
from widemax.runs.folder.histories import UserHistories, max_history
from widemax.validation import ABSENT
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.spelling import Key, key_like

# What no question has: made once, for a tensor costs as much as a step of the model.
_NO_TARGET, _NOBODY, _NO_AGE = torch.tensor([ABSENT]), torch.tensor([ABSENT]), torch.zeros(1)


class ModelQuestion(NamedTuple):
    """What a model is asked."""

    model: Model
    """The model of the run, or one that shares its weights and knows somebody new."""
    batch: WindowBatch
    """One row: the classes of the history, and the row of the user."""
    seen: Tensor
    """The classes of the whole history, int64 [N]."""


class QuestionReader:
    """Makes of a question what the model of a run is asked."""

    def __init__(
        self,
        model: Model,
        config: Config,
        data: DataSummary,
        catalogue: Catalogue,
        histories: UserHistories,
    ) -> None:
        self.model, self.catalogue, self.histories = model, catalogue, histories
        self.reach = reach_of(model, config)
        self.vocabulary, self._users = data.vocabulary, data.user_features
        self._has_searches = bool(config.get("search_column", ""))
        # Before the history comes nothing, which some models have a vector of their own for.
        self._padding = [ABSENT] * (self.reach if model.causal else 1)
        self._padding += classes_before(config, data.vocabulary)

    def read(self, question: Question) -> ModelQuestion:
        """Return what the model is asked, with what was seen, and the model that is asked."""
        question.check()
        ids = self._history(question)
        if question.search:
            ids = [*ids, *self._typed(question.search)]
        model, row = self.model, self.row_of(question.user)
        if question.features is not None:
            newcomer = encode_newcomer(self._users, question.features)
            assert self._users is not None
            model, row = model_for(self.model, self._users, newcomer), 0
        batch = WindowBatch(
            context=_whole_numbers([[*self._padding, *ids][-self.reach :]]),
            targets=_NO_TARGET,
            users=_NOBODY if row == ABSENT else torch.tensor([row]),
            ages=_NO_AGE,
        )
        return ModelQuestion(model, batch, _whole_numbers(ids))

    def row_of(self, user: Key | None) -> int:
        """Return the row of a user among those with features; -1 if they have none."""
        users = self._users
        if user is None or users is None:
            return ABSENT
        wanted = key_like(user, whole=users.keys.dtype.is_integer())
        if wanted is None:
            return ABSENT
        rows = (users.keys == wanted).arg_true()
        return int(rows[0]) if len(rows) else ABSENT

    def _history(self, question: Question) -> list[int]:
        if question.history is not None:
            return self.catalogue.ids(question.history)
        return [] if question.user is None else self.histories.of(question.user)

    def _typed(self, text: str) -> list[int]:
        """Return the classes of the words of a search, those that were typed in training."""
        if not self._has_searches:
            raise ValueError(
                "search is for a run that was trained with search_column (--search-column)"
            )
        keys = words_of(pl.Series([text])).explode()
        found = self.vocabulary.encode(keys, missing="mark") if keys[0] is not None else None
        if found is None or not bool((found >= 0).any()):
            raise ValueError(
                f"search must have a word that was typed in training, got {shortened(repr(text))}"
            )
        return found[found >= 0].tolist()


def _whole_numbers(values: list[int] | list[list[int]]) -> Tensor:
    """Return whole numbers as a tensor, by NumPy: of lists torch makes one in thrice the time."""
    return torch.from_numpy(np.array(values, np.int64))


def reach_of(model: Model, config: Config) -> int:
    """Return how many of the last classes of a history a model is asked with."""
    return words_before(model, config) if model.causal else max_history(config)


def words_before(model: Model, config: Config) -> int:
    """Return how many words before another one a model reads."""
    return type(model).windows_of(Sequences.from_lists([[]]), config).before


def classes_before(config: Config, vocabulary: Vocabulary) -> list[int]:
    """Return what stands before a sentence: the end of another one, where lines are one stream."""
    end = str(config.get("end", ""))
    across = bool(config.get("across_lines", False))
    return [vocabulary.id_of(end)] if across and end else []
