"""From raw records to batches: corpora, interactions, and worlds whose truth is known."""

from widemax.data.holdout import Holdout
from widemax.data.phrases import join_phrases
from widemax.data.python_reference import python_reference
from widemax.data.sequences import Sequences, WindowBatch, Windows
from widemax.data.simulation import SimulatedWorld
from widemax.data.source import Source, read_source
from widemax.data.text import encode_corpus, encode_text, read_corpus

__all__ = [
    "Holdout",
    "Sequences",
    "SimulatedWorld",
    "Source",
    "WindowBatch",
    "Windows",
    "encode_corpus",
    "encode_text",
    "join_phrases",
    "python_reference",
    "read_corpus",
    "read_source",
]
