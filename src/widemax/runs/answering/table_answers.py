"""What follows a history, answered from the tables of a checkpoint, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from widemax.config.toml import read_toml
from widemax.limits import check_whole
from widemax.runs.folder.catalogue import Catalogue, Neighbour
from widemax.runs.folder.chosen_checkpoint import BEST, chosen_because, trained_checkpoint
from widemax.runs.folder.description import CONFIG, check_run, check_unchanged
from widemax.runs.folder.histories import UserHistories, max_history
from widemax.runs.vectors.nearest import best_rows
from widemax.storage.arrays import Array, map_arrays
from widemax.training.checkpoint_files import Checkpoint
from widemax.vocabulary.spelling import Key

# polars takes time to load, and most questions have no filter.
if TYPE_CHECKING:
    from widemax.filters import Filters

Scores = NDArray[Any]


class TableAnswers:
    """What a run recommends whose model is a table: the answers of ``Run``, which has the model."""

    def __init__(self, folder: Path, found: Checkpoint, chosen: str, reach: int) -> None:
        self.folder, self.step, self.chosen = folder, found.step, chosen
        self.catalogue, self._histories = Catalogue(folder), UserHistories(folder)
        self._reach = reach
        self._recipe: dict[str, Any] = dict(found.answers)
        self._arrays = map_arrays(found.model_file())[0]

    @classmethod
    def open(cls, folder: Path, checkpoint: str | int = BEST) -> TableAnswers | None:
        """Return what answers for a run; None if only its model can."""
        check_run(folder)
        settings = read_toml(check_unchanged(folder, CONFIG))
        found = trained_checkpoint(folder, checkpoint)
        if found.answers.get("rule") not in RULES or settings.get("across_lines"):
            return None
        chosen = chosen_because(folder, found, checkpoint, str(settings.get("metric", "")))
        opened = cls(folder, found, chosen, max_history(settings))
        return opened if all(name in opened._arrays for name in opened._names()) else None

    def recommend(
        self,
        history: Sequence[Key] | None = None,
        *,
        user: Key | None = None,
        filters: Filters | None = None,
        leave_out: Sequence[Key] = (),
        k: int = 10,
        include_seen: bool = False,
    ) -> list[Neighbour]:
        """Return the ``k`` classes that best follow a history, or that of a user.

        Only those that pass the ``filters``, and none of ``leave_out`` nor, unless
        ``include_seen``, of the history.
        """
        ids = self._histories.of(user) if history is None else self.catalogue.ids(history)
        k = min(check_whole("k", k, 1, 2**31), len(self.catalogue.keys))
        given = {name: self._arrays[value] for name, value in self._tables()}
        context = np.array(ids[-self._reach :], np.int64)
        scores = RULES[self._recipe["rule"]](context, given, self._recipe)
        left_out = self.catalogue.ids(leave_out, strict=True)
        scores[left_out if include_seen else [*ids, *left_out]] = -np.inf
        if filters:
            scores[~self.catalogue.columns.allowed(filters)] = -np.inf
        rows, found = best_rows(scores, k)
        there = found > -np.inf
        return self.catalogue.neighbours(rows[there].tolist(), found[there].tolist())

    def _tables(self) -> list[tuple[str, str]]:
        """Return what the rule calls its tables, with their names in the checkpoint."""
        return [
            (name.removeprefix("table."), value)
            for name, value in self._recipe.items()
            if name.startswith("table.")
        ]

    def _names(self) -> list[str]:
        return [value for _, value in self._tables()]


def _mean(context: Array, tables: Mapping[str, Array], recipe: Mapping[str, Any]) -> Scores:
    """F = mean of u(i) · v(y) / τ + b(y), both of length 1 where the similarity is cosine."""
    inputs, classes = tables["inputs"], tables["classes"]
    hidden = (
        inputs[context].astype(np.float32).mean(axis=0)
        if len(context)
        else np.zeros(inputs.shape[1], np.float32)
    )
    scores: Scores
    if recipe["similarity"] == "cosine":
        lengths = np.sqrt(np.einsum("ij,ij->i", classes, classes, dtype=np.float32))
        hidden = hidden / max(float(np.linalg.norm(hidden)), 1e-12)
        scores = (classes @ hidden) / np.maximum(lengths, 1e-12)
    else:
        scores = (classes @ hidden).astype(np.float32, copy=False)
    scores = scores / np.float32(recipe["temperature"])
    return scores + tables["biases"] if "biases" in tables else scores


def _counts(context: Array, tables: Mapping[str, Array], recipe: Mapping[str, Any]) -> Scores:
    """F = log((n + 1) / Σ (n + 1))."""
    smoothed = tables["counts"] + 1
    scores: Scores = np.log(smoothed / smoothed.sum()).astype(np.float32)
    return scores


def _sum(context: Array, tables: Mapping[str, Array], recipe: Mapping[str, Any]) -> Scores:
    """F = Σ of the rows of the items."""
    scores: Scores = tables["rows"][np.unique(context)].sum(axis=0)
    return scores


def _neighbours(context: Array, tables: Mapping[str, Array], recipe: Mapping[str, Any]) -> Scores:
    """F = Σ of the similarities of the items to their neighbours."""
    items, neighbours = np.unique(context), tables["neighbours"]
    scores = np.zeros(len(neighbours), np.float32)
    # Where an item has fewer neighbours, it adds 0 to the first class.
    np.add.at(scores, np.maximum(neighbours[items], 0), tables["similarities"][items])
    return scores


def _solve(context: Array, tables: Mapping[str, Array], recipe: Mapping[str, Any]) -> Scores:
    """F = x · v(y), x solved from the items as it is in training."""
    vectors, confidence = tables["vectors"], float(recipe["confidence"])
    chosen = vectors[np.unique(context)]
    system = vectors.T @ vectors + confidence * (chosen.T @ chosen)
    total = len(vectors) + confidence * len(chosen)
    penalty = float(recipe["regularisation"]) * total ** float(recipe["penalty_power"])
    system[np.diag_indices(len(system))] += penalty
    scores: Scores = vectors @ np.linalg.solve(system, (1 + confidence) * chosen.sum(axis=0))
    return scores


RULES: Mapping[str, Callable[[Array, Mapping[str, Array], Mapping[str, Any]], Scores]] = {
    "mean": _mean,
    "counts": _counts,
    "sum": _sum,
    "neighbours": _neighbours,
    "solve": _solve,
}
"""How the tables of a model answer: ``Model.table_answers`` names one of these."""
