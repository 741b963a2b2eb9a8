"""The encoder of a run, and the tower of its items, as ONNX models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from widemax.declarations import declare
from widemax.encoders import FeatureEncoder
from widemax.encoders.dense import DenseEncoder, last_items
from widemax.heads import ScorerHead
from widemax.models import MIND, Model
from widemax.runs.export.onnx_graph import Input, feature_inputs, traced
from widemax.runs.vectors.indexes import searches_by_product
from widemax.scoring import Scorer
from widemax.scoring.tower import TowerScorer
from widemax.storage.files import atomic_write

if TYPE_CHECKING:
    from widemax.runs.run import Run

CONTEXT, HIDDEN, QUERY, ITEM, VECTOR = "context", "hidden", "query", "item", "vector"


@declare.export("onnx", help="An ONNX model of the encoder.", traits=["run"])
def export_onnx(path: str | Path, run: Run) -> None:
    """Write the encoder of a run as an ONNX model."""
    check_encoder(run, "onnx")
    write_onnx_encoder(path, run.model, reach=run.reach, about=described(run))


def check_encoder(run: Run, format: str) -> None:
    """Refuse a run whose model reads no history by an encoder: baselines, and vectors alone."""
    if getattr(run.model, "encoder", None) is None:
        raise ValueError(
            f"model {run.config.model} cannot be exported to {format}: it has no encoder; "
            "next-item, sasrec, two-tower and others that gradients train have one, and widemax "
            "serve answers for every run"
        )


def described(run: Run) -> dict[str, str]:
    """Return what a file says of the run it comes from."""
    return {
        "run": run.folder.name,
        "model": run.config.model,
        "step": str(run.step),
        "vocabulary": run.vocabulary.numbering,
        "num_classes": str(len(run.vocabulary)),
        # What ``Run`` puts before every history; most runs nothing.
        "before": " ".join(str(each) for each in run.before),
    }


def write_onnx_encoder(
    path: str | Path, model: Model, *, reach: int = 50, about: Mapping[str, str] | None = None
) -> None:
    """Write the encoder of a model as an ONNX model that needs no Python to run.

    Input ``context`` is int64 [B, H], oldest first, padded with any negative number anywhere, of
    which the last ``reach`` classes are read; B ≥ 1 and H are free. For each field of the users'
    features there is an input ``user_…``: texts [B], texts [B, T] where it has tokens ("" is none),
    or float64 [B] (NaN is none). All of an unknown user is "" or NaN.

    Output ``hidden`` is that of the model, float32 [B, D], or [B, K, D] of K interests. Where the
    classes are ranked by vectors, the score of a class is the inner product of ``query`` and its
    row in the Faiss index of the run (``write_faiss_index``), of several interests the best one:
    ``query`` is normalised, divided by the temperature, and ends with a 1 for the bias, all where
    the head does so.

    The file must stay below 2 GB. An id beyond the classes is an error of the runtime.

    >>> import tempfile
    >>> from widemax.models import NextItem
    >>> path = Path(tempfile.mkdtemp()) / "encoder.onnx"
    >>> write_onnx_encoder(path, NextItem.create([5] * 100, dimension=8))
    >>> path.stat().st_size > 100 * 8 * 4
    True
    """
    scorer = scorer_of(model)
    with _asked(model):
        encoder = model.dense_encoder()
        features = _features(getattr(encoder, "user_features", None), "users")
        inputs = [Input(CONTEXT, torch.zeros((1, 2), dtype=torch.int64), ("B", "H"))]
        inputs += feature_inputs(features.schema, "user", "B") if features else []
        module = _Encoder(encoder, features, scorer, reach)
        about = {"max_history": str(reach), "score": _score_of(model, scorer), **(about or {})}
        outputs = [HIDDEN] if scorer is None else [HIDDEN, QUERY]
        data = traced(module, inputs, outputs, about)
    with atomic_write(path) as file:
        file.write(data)


def write_onnx_items(
    path: str | Path, model: Model, *, about: Mapping[str, str] | None = None
) -> None:
    """Write the tower of the items as an ONNX model, for items that come later.

    Input ``item`` is int64 [N], -1 for a new one; for each field of the items' features there is an
    input ``item_…`` as in ``write_onnx_encoder``. Output ``vector`` is float32 [N, D], a row of the
    Faiss index of the run.

    >>> import tempfile
    >>> from widemax.models import TwoTower
    >>> path = Path(tempfile.mkdtemp()) / "items.onnx"
    >>> write_onnx_items(path, TwoTower.create([5] * 100, dimension=8))
    >>> path.stat().st_size > 100 * 8 * 4
    True
    """
    tower = scorer_of(model)
    if not isinstance(tower, TowerScorer):
        raise ValueError(f"{type(model).__name__} has no tower of items: they are a table")
    features = _features(tower.features, "items")
    inputs = [Input(ITEM, torch.zeros(1, dtype=torch.int64), ("N",))]
    inputs += feature_inputs(features.schema, "item", "N") if features else []
    with _asked(model):
        data = traced(_ItemTower(tower, features), inputs, [VECTOR], about or {})
    with atomic_write(path) as file:
        file.write(data)


class _Encoder(nn.Module):
    """What is traced of an encoder."""

    def __init__(
        self,
        encoder: DenseEncoder,
        features: FeatureEncoder | None,
        scorer: Scorer | None,
        reach: int,
    ) -> None:
        super().__init__()
        self.encoder, self.features, self.reach = encoder, features, reach
        # Not as a part: what it scores with is no part of the file.
        self.queries = None if scorer is None else scorer.queries
        self.biased = scorer is not None and scorer.class_biases() is not None

    def forward(self, context: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        features = None if self.features is None else self.features.dense(columns)
        hidden = self.encoder.dense(last_items(context, self.reach), features)
        if self.queries is None:
            return (hidden,)
        query = self.queries(hidden)
        if self.biased:
            query = torch.cat([query, torch.ones_like(query[..., :1])], dim=-1)
        # The same tensor twice would be one output.
        return hidden, query + 0.0


class _ItemTower(nn.Module):
    """What is traced of the tower of the items."""

    def __init__(self, tower: TowerScorer, features: FeatureEncoder | None) -> None:
        super().__init__()
        self.tower, self.features = tower, features

    def forward(self, item: Tensor, *columns: Tensor) -> Tensor:
        features = None if self.features is None else self.features.dense(columns)
        return self.tower.dense(item, features)


def scorer_of(model: Model) -> Scorer | None:
    """Return what ranks the classes of a model by the products of vectors; None if nothing does."""
    return cast("ScorerHead", model.head).scorer if searches_by_product(model) else None


def _score_of(model: Model, scorer: Scorer | None) -> str:
    if scorer is None:
        return f"by {type(model).__name__} with {type(model.head).__name__}, not by vectors"
    best = "the largest over interests of " if isinstance(model, MIND) else ""
    return f"{best}the inner product of {QUERY} and the vector of a class"


def _features(given: Any, whose: str) -> FeatureEncoder | None:
    if given is None or isinstance(given, FeatureEncoder):
        return given
    raise ValueError(
        f"onnx can hold features of {whose} that are columns (FeatureEncoder), not "
        f"{type(given).__name__}"
    )


@contextmanager
def _asked(model: Model) -> Iterator[None]:
    """Put a model into the mode in which it is asked, for a while."""
    modes = {each: each.training for each in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for each, mode in modes.items():
            each.training = mode
