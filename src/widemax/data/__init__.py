"""From raw records to batches: corpora, interactions, and worlds whose truth is known."""

from widemax.data.python_reference import python_reference
from widemax.data.sequences import Sequences, WindowBatch, Windows
from widemax.data.simulation import SimulatedWorld
from widemax.data.source import Source, read_source

__all__ = [
    "Sequences",
    "SimulatedWorld",
    "Source",
    "WindowBatch",
    "Windows",
    "python_reference",
    "read_source",
]
