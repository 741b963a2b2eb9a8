"""From raw records to batches: corpora, interactions, and worlds whose truth is known."""

from widemax.data.features import (
    FeatureField,
    FeatureSchema,
    FeatureTable,
    infer_fields,
    read_features,
)
from widemax.data.graph import ItemGraph
from widemax.data.phrases import join_phrases
from widemax.data.reading import (
    Source,
    core_of,
    encode_corpus,
    encode_text,
    encoded_again,
    read_corpus,
    read_source,
)
from widemax.data.sample_corpus import python_reference
from widemax.data.sequences import Sequences, WindowBatch, Windows
from widemax.data.sessions import sessions_of
from widemax.data.simulation.shop import SimulatedShop
from widemax.data.simulation.world import SimulatedWorld
from widemax.data.skip_gram_pairs import skipgrams, zipf_sampling_table
from widemax.data.splitting import (
    Holdout,
    LogSplit,
    leave_one_out,
    read_split,
    split_at_times,
    split_by_time,
    split_by_user,
)

__all__ = [
    "FeatureField",
    "FeatureSchema",
    "FeatureTable",
    "Holdout",
    "ItemGraph",
    "LogSplit",
    "Sequences",
    "SimulatedShop",
    "SimulatedWorld",
    "Source",
    "WindowBatch",
    "Windows",
    "core_of",
    "encode_corpus",
    "encode_text",
    "encoded_again",
    "infer_fields",
    "join_phrases",
    "leave_one_out",
    "python_reference",
    "read_corpus",
    "read_features",
    "read_source",
    "read_split",
    "sessions_of",
    "skipgrams",
    "split_at_times",
    "split_by_time",
    "split_by_user",
    "zipf_sampling_table",
]
