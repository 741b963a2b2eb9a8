"""How good a run is: asked what it held out, or what another file asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from widemax.config import Config
from widemax.data import Holdout, WindowBatch
from widemax.data.summary import DataSummary
from widemax.evaluation import RankingReport, RecommendationReport
from widemax.models import Model
from widemax.runs.folder.creating import describe_source
from widemax.runs.folder.histories import max_history
from widemax.runs.folder.kept_data import KeptTest, kept_test
from widemax.runs.judging.held_out import asked_first, judge_next, judge_users, judge_words
from widemax.runs.judging.protocol import PROTOCOLS, looks_ahead
from widemax.runs.source.other_data import OtherData
from widemax.runs.source.reading import read_again
from widemax.runs.source.splitting import split_source
from widemax.runs.vectors.indexes import searches_by_product


class RunTest:
    """What a run was not trained on, and what its model is asked of it."""

    def __init__(
        self, folder: Path, config: Config, data: DataSummary, description: Mapping[str, Any]
    ) -> None:
        self._folder, self._config, self._data = folder, config, data
        self._description = description
        self._max_history = max_history(config)
        self._ranks_seen = description.get("ranks_seen") is True

    @cached_property
    def kept(self) -> KeptTest:
        """What the run keeps of what was held out, read once."""
        return kept_test(self._folder)

    @property
    def exists(self) -> bool:
        """Whether anything was held out."""
        return self.kept.holdout is not None or self.kept.windows is not None

    @property
    def protocol(self) -> str:
        """What is asked for, and among which items it is ranked, in words."""
        return f"{PROTOCOLS[self._config.split]}, {self.ranking}"

    @property
    def ranking(self) -> str:
        """Among which items is ranked, in words."""
        had = ", those the user had, too" if self._ranks_seen else " but those the user had"
        return f"ranked among all {len(self._data.vocabulary):,} items{had}"

    @property
    def looks_ahead(self) -> str:
        """A warning if what was trained on is later than what is asked for; else empty."""
        shares = self._description.get("later")
        return looks_ahead(*shares) if isinstance(shares, list) and len(shares) == 2 else ""

    def rank_next(self, model: Model, path: str | Path | None) -> RankingReport:
        """Return exact metrics of the next item of each user, or of each word."""
        test = self._held_out(path)
        if test.holdout is not None:
            return judge_next(model, test.holdout, max_history=self._max_history)
        if test.windows is None:
            raise ValueError(f"nothing was held out to evaluate on: {self._why_none()}")
        return judge_words(model, test.windows)

    def recommend(
        self, model: Model, path: str | Path | None, ks: Sequence[int]
    ) -> RecommendationReport:
        """Return how good the recommendations are for the users who were held out."""
        test = self._held_out(path)
        if test.holdout is None:
            raise ValueError(f"no user was held out to be recommended to: {self._why_none()}")
        return self._judged(model, test.holdout, test, ks)

    def on_other(
        self, model: Model, other: OtherData, ks: Sequence[int]
    ) -> RecommendationReport | RankingReport:
        """Return the metrics on other data: of a log as for its users, of a text."""
        if other.windows is not None:
            return judge_words(model, other.windows)
        assert other.holdout is not None
        return self._judged(model, other.holdout, self.kept, ks)

    def queries(self, model: Model, count: int) -> WindowBatch | None:
        """Return what users had who were held out; None if the model has no use for it."""
        held = self.kept.holdout
        if held is None or not searches_by_product(model):
            return None
        return asked_first(held, count, max_history=self._max_history)

    def _held_out(self, path: str | Path | None) -> KeptTest:
        """Return what the run keeps, or what is held out of its data in another place."""
        if path is None:
            return self.kept
        vocabulary = self._data.vocabulary
        source = read_again(path, self._config, self._description, vocabulary, self._folder)
        if describe_source("", source)["sha256"] != self._description["sha256"]:
            raise ValueError(f"{path} is not what the run was trained on: the content differs")
        split = split_source(self._config, source)
        counts = torch.bincount(split.sequences.values, minlength=len(vocabulary))
        return KeptTest.of(split, counts)

    def _judged(
        self, model: Model, asked: Holdout, trained: KeptTest, ks: Sequence[int]
    ) -> RecommendationReport:
        return judge_users(
            model,
            asked,
            ks=tuple(ks),
            max_history=self._max_history,
            counts=trained.counts,
            with_seen=self._ranks_seen,
        )

    def _why_none(self) -> str:
        if self._data.source == "text":
            return "the text is too short, or test_size = 0"
        return "the log has too few users with two items, or test_size = 0"
