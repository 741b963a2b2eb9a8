"""From raw records to batches: corpora, interactions, and worlds whose truth is known."""

from widemax.data.core import core_of
from widemax.data.feature_inference import infer_fields
from widemax.data.feature_reading import read_features
from widemax.data.feature_schema import FeatureSchema
from widemax.data.feature_table import FeatureTable
from widemax.data.features import FeatureField
from widemax.data.graph import ItemGraph
from widemax.data.holdout import Holdout
from widemax.data.log_split import LogSplit
from widemax.data.phrases import join_phrases
from widemax.data.python_reference import python_reference
from widemax.data.sequences import Sequences, WindowBatch, Windows
from widemax.data.sessions import sessions_of
from widemax.data.shop import SimulatedShop
from widemax.data.simulation import SimulatedWorld
from widemax.data.source import Source, encoded_again, read_source
from widemax.data.split_files import read_split
from widemax.data.splits import leave_one_out, split_at_times, split_by_time, split_by_user
from widemax.data.text import encode_corpus, encode_text, read_corpus

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
