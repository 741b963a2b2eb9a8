"""What an evaluation of recommendations found: means with their errors, ready to print."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

_MUCH = 0.1
"""The share of targets out of reach from which a report says how they are ranked."""
_EXPLAINED = (
    "coverage: share of all items that are on some list",
    "gini: how unevenly lists share them out, from 0 (all alike) to 1 (always the same few)",
    "popularity: how often what is recommended was chosen in training, on average",
)


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over users, and how far it may be off.

    Two models on the same users are compared by the error of their differences, from ``per_user``.

    >>> import torch
    >>> Mean.of(torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64))
    Mean(value=0.5, standard_error=0.28867513459481287)
    """

    value: float
    """The mean."""
    standard_error: float | None
    """s / √n, s² = Σ (x − mean)² / (n − 1); None for one user."""

    @classmethod
    def of(cls, values: Tensor) -> Mean:
        """Take one value for each user, [N]."""
        error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(value=float(values.mean()), standard_error=error)

    def __str__(self) -> str:
        if self.standard_error is None:
            return f"{self.value:.4f}"
        return f"{self.value:.4f} ± {self.standard_error:.4f}"


@dataclass(frozen=True, kw_only=True)
class PopularityBucket:
    """How well targets of one popularity are found."""

    name: str
    """"head", "torso" or "tail"."""
    classes: int
    """How many classes it holds."""
    users: int
    """How many users have such a target."""
    targets: int
    """How many targets there are."""
    means: Mapping[str, Mean]
    """Means over these users and targets alone, like "recall@20"; empty without a user."""


@dataclass(frozen=True, kw_only=True)
class RecommendationReport:
    """What ``evaluate_recommendations`` found: means over the users, for each length k of list.

    For a user with n distinct targets, of which the first k places hold h: recall = h / n;
    hit_rate = [h > 0]; precision = h / k; ndcg = Σ over hits of 1 / log2(place + 1), by the same
    sum over places 1 … min(k, n); mrr = 1 / place of the first hit, 0 without one; map = Σ over
    hits of (hits up to there / place), by min(k, n) (Järvelin & Kekäläinen 2002). All are taken
    over the whole catalogue (Krichene & Rendle 2020: why not over sampled classes).

    >>> report = RecommendationReport(ks=(20,), users=2, targets=3, unreachable=0,
    ...                               means={"recall@20": Mean(value=0.5, standard_error=0.25)})
    >>> report.metrics(), report.table()
    ({'recall@20': 0.5}, [('recall', '0.5000 ± 0.2500')])
    """

    ks: tuple[int, ...]
    """The lengths of list, rising."""
    users: int
    """How many were asked about."""
    targets: int
    """How many distinct targets they have together."""
    unreachable: int
    """Targets that were left out of the lists, as their users had them before."""
    new: int = 0
    """Targets that nobody chose in training; 0 without counts."""
    means: Mapping[str, Mean]
    """Means over the users by names like "recall@20"."""
    catalogue: Mapping[str, float] = field(default_factory=dict)
    """"coverage@20", "gini@20", "popularity@20" (``exposure_figures``); empty without counts."""
    buckets: tuple[PopularityBucket, ...] = ()
    """The same by the popularity of the targets; empty without counts."""
    per_user: Mapping[str, Tensor] | None = None
    """float64 [N] for each name of ``means``, in the order of the holdout, if asked for."""

    def metrics(self) -> dict[str, float]:
        """Return every figure by its name; those of a bucket are like "tail_recall@20"."""
        figures = {name: mean.value for name, mean in self.means.items()}
        figures |= self.catalogue
        for bucket in self.buckets:
            for name, mean in bucket.means.items():
                figures[f"{bucket.name}_{name}"] = mean.value
        return figures

    def standard_errors(self) -> dict[str, float | None]:
        """Return the standard error of every mean by its name; None for one user."""
        errors = {name: mean.standard_error for name, mean in self.means.items()}
        for bucket in self.buckets:
            for name, mean in bucket.means.items():
                errors[f"{bucket.name}_{name}"] = mean.standard_error
        return errors

    def table(self) -> list[tuple[str, ...]]:
        """Return a row for each kind of figure: its name, and a cell for each of ``ks``."""
        cells = {name: str(mean) for name, mean in self.means.items()}
        cells |= {name: f"{value:.4f}" for name, value in self.catalogue.items()}
        for bucket in self.buckets:
            cells |= {f"{bucket.name}_{name}": str(mean) for name, mean in bucket.means.items()}
        kinds = dict.fromkeys(name.partition("@")[0] for name in cells)
        return [(kind, *(cells[f"{kind}@{k}"] for k in self.ks)) for kind in kinds]

    def __str__(self) -> str:
        text = f"{self.users:,} users, {self.targets:,} targets"
        if self.unreachable:
            text += f", {self.unreachable:,} of them seen before and so out of reach"
            if self.unreachable >= _MUCH * self.targets:
                text += " (a run trained with --seen-items ranked is asked for them, too)"
        if self.new:
            text += f", {self.new:,} of them items that nobody chose in training"
        lines = [text]
        if self.buckets:
            parts = (f"{part.name} {part.targets:,}" for part in self.buckets)
            lines.append(f"targets by popularity: {', '.join(parts)}")
        head = ("", *(f"@{k}" for k in self.ks))
        for name, *row in (head, *self.table()):
            lines.append(f"{_printed(name):<14}" + "".join(f"{cell:>18}" for cell in row))
        if self.catalogue:
            lines += _EXPLAINED
        return "\n".join(lines)


_PRINTED = {"hit_rate": "HR", "recall": "Recall", "precision": "Precision"} | {
    name: name.upper() for name in ("ndcg", "mrr", "map")
}


def _printed(name: str) -> str:
    """Return the name of a metric as the literature prints it, behind that of its bucket.

    >>> _printed("hit_rate"), _printed("tail_ndcg"), _printed("coverage")
    ('HR', 'tail NDCG', 'coverage')
    """
    bucket, _, rest = name.partition("_")
    if name in _PRINTED or rest not in _PRINTED:
        return _PRINTED.get(name, name)
    return f"{bucket} {_PRINTED[rest]}"
