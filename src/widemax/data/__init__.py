"""From raw records to batches: corpora, interactions, and worlds whose truth is known."""

from widemax.data.features.fields import FeatureField
from widemax.data.features.inference import infer_fields
from widemax.data.features.reading import read_features
from widemax.data.features.schema import FeatureSchema
from widemax.data.features.table import FeatureTable
from widemax.data.graph import ItemGraph
from widemax.data.phrases import join_phrases
from widemax.data.python_reference import python_reference
from widemax.data.reading import (
    Source,
    core_of,
    encode_corpus,
    encode_text,
    encoded_again,
    read_corpus,
    read_source,
)
from widemax.data.sequences import Sequences, WindowBatch, Windows
from widemax.data.sessions import sessions_of
from widemax.data.simulation.shop import SimulatedShop
from widemax.data.simulation.world import SimulatedWorld
from widemax.data.splitting.holdout import Holdout
from widemax.data.splitting.log_split import LogSplit
from widemax.data.splitting.split_files import read_split
from widemax.data.splitting.splits import (
    leave_one_out,
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
    "split_at_times",
    "split_by_time",
    "split_by_user",
]
