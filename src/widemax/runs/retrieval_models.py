"""From a configuration to a model of users and items."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data import FeatureTable, Source
from widemax.encoders import (
    FeatureEncoder,
    MINDEncoder,
    SASRecEncoder,
    SDMEncoder,
    TwoTowerEncoder,
    YouTubeDNNEncoder,
)
from widemax.heads import ScorerHead
from widemax.models import (
    EASE,
    EGES,
    IALS,
    MIND,
    SDM,
    Airbnb,
    Item2Vec,
    ItemKNN,
    Model,
    Popularity,
    SASRec,
    TwoTower,
    YouTubeDNN,
)
from widemax.runs.config.config import Config
from widemax.runs.heads import build_head, head_on, similarity_of
from widemax.scoring import TowerScorer

_FEATURE_DIMENSION = 16
_ID_DROPOUT = 0.1
_ANY_AGE = 1.0


def build_youtube_dnn(config: Config, source: Source) -> Model:
    """Return a YouTubeDNN."""
    counts = source.vocabulary.counts
    encoder = YouTubeDNNEncoder(
        len(counts),
        config.dimension,
        config.tower,
        user_features=_user_features(source),
        oldest_age=_oldest_age(source) if config.example_age else None,
        dropout=config.dropout,
    )
    return YouTubeDNN(encoder, build_head(config, counts, config.dimension, items=encoder.items))


def build_mind(config: Config, source: Source) -> Model:
    """Return a MIND."""
    counts = source.vocabulary.counts
    encoder = MINDEncoder(
        len(counts),
        config.dimension,
        config.tower,
        num_interests=config.num_interests,
        user_features=_user_features(source),
        dropout=config.dropout,
    )
    return MIND(encoder, build_head(config, counts, config.dimension, items=encoder.items))


def build_sdm(config: Config, source: Source) -> Model:
    """Return an SDM."""
    counts = source.vocabulary.counts
    encoder = SDMEncoder(
        len(counts),
        config.dimension,
        short=min(_SHORT, config.max_history),
        num_heads=config.num_attention_heads,
        item_codes=side_codes(source.item_features)[0],
        user_features=_user_features(source),
        dropout=config.dropout,
    )
    return SDM(encoder, build_head(config, counts, config.dimension, items=encoder.items))


_SHORT = 10
"""The last items of a history that SDM takes for the present session."""


def build_sasrec(config: Config, source: Source) -> Model:
    """Return a SASRec."""
    counts = source.vocabulary.counts
    encoder = SASRecEncoder(
        len(counts),
        config.dimension,
        config.max_history,
        num_blocks=config.num_blocks,
        num_heads=config.num_attention_heads,
        dropout=config.dropout,
        sparse=config.head in ("sampled", "importance"),
    )
    return SASRec(encoder, build_head(config, counts, config.dimension, items=encoder.items))


def build_two_tower(config: Config, source: Source) -> Model:
    """Return a two-tower model; items that were never chosen stand by their features."""
    counts = source.vocabulary.counts
    items = source.item_features
    scorer = TowerScorer(
        len(counts),
        config.dimension,
        features=None if items is None else FeatureEncoder(items, _FEATURE_DIMENSION, sparse=True),
        id_dimension=config.dimension,
        hidden_sizes=config.tower,
        similarity=similarity_of(config),
        temperature=config.temperature,
        id_dropout=0.0 if items is None else _ID_DROPOUT,
        cold=counts == 0,
        sparse=True,
    )
    encoder = TwoTowerEncoder(
        scorer.input_dimension,
        config.dimension,
        features=_user_features(source),
        hidden_sizes=config.tower,
    )
    head = head_on(config, scorer, counts)
    assert isinstance(head, ScorerHead)
    return TwoTower(encoder, head)


def build_item2vec(config: Config, source: Source) -> Model:
    """Return an Item2Vec."""
    return Item2Vec.with_negatives(
        source.vocabulary.counts,
        dimension=config.dimension,
        negatives=config.num_samples,
        subsample=config.subsample,
        distortion=config.distortion,
    )


def build_airbnb(config: Config, source: Source) -> Model:
    """Return an Airbnb model; the market of an item is its first feature."""
    counts = source.vocabulary.counts
    codes, _ = side_codes(source.item_features)
    markets = torch.zeros(len(counts), dtype=torch.int64) if codes is None else codes[:, 0]
    half = max(1, config.num_samples // 2)
    return Airbnb.create(
        counts,
        markets,
        dimension=config.dimension,
        negatives=half,
        market_negatives=half,
        subsample=config.subsample,
        distortion=config.distortion,
    )


def build_eges(config: Config, source: Source) -> Model:
    """Return an EGES model; without features, each item has one unknown field."""
    counts = source.vocabulary.counts
    codes, num_values = side_codes(source.item_features)
    if codes is None:
        codes, num_values = torch.zeros(len(counts), 1, dtype=torch.int64), [1]
    return EGES.create(
        counts,
        codes,
        num_values,
        dimension=config.dimension,
        negatives=config.num_samples,
        distortion=config.distortion,
    )


def build_popularity(config: Config, source: Source) -> Model:
    """Return the baseline of what all have."""
    return Popularity(len(source.vocabulary))


def build_item_knn(config: Config, source: Source) -> Model:
    """Return the baseline of the items that users had together."""
    return ItemKNN(len(source.vocabulary))


def build_ease(config: Config, source: Source) -> Model:
    """Return EASE."""
    return EASE(len(source.vocabulary))


def build_ials(config: Config, source: Source) -> Model:
    """Return iALS."""
    return IALS(len(source.vocabulary), dimension=config.dimension, seed=config.seed)


def side_codes(table: FeatureTable | None) -> tuple[Tensor | None, list[int]]:
    """Return a code of each item for each of its features but numbers, and how many there are.

    Of a feature of tokens the first one stands for all.
    """
    if table is None:
        return None, []
    categorical, tokens = (table.schema.of_kind(kind) for kind in ("categorical", "tokens"))
    firsts = [lists.values[lists.offsets[:-1]] for lists in table.tokens]
    columns = [*table.codes.unbind(1), *firsts]
    if not columns:
        return None, []
    return torch.stack(columns, 1), [each.num_codes for each in (*categorical, *tokens)]


def _user_features(source: Source) -> FeatureEncoder | None:
    table = source.user_features
    return None if table is None else FeatureEncoder(table, _FEATURE_DIMENSION, sparse=True)


def _oldest_age(source: Source) -> float:
    """Return the days from the first interaction to the last; any number if nobody is asked."""
    times = source.sequences.times
    if times is None:
        if len(source.sequences):
            raise ValueError("example_age needs times, and the log has none")
        return _ANY_AGE
    return max(float(times.max() - times.min()) / 86_400, 1e-6)
