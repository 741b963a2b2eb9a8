"""Indexes: the best classes of a head, exactly or by Faiss, in memory and on disk."""

from widemax.index.base import Index
from widemax.index.building import build_index
from widemax.index.exact import ExactIndex
from widemax.index.faiss_index import FaissIndex, HNSWIndex, IVF8Index, IVFIndex
from widemax.index.recall import IndexReport, measure_recall
from widemax.index.stored import load_index, save_index

__all__ = [
    "ExactIndex",
    "FaissIndex",
    "HNSWIndex",
    "IVF8Index",
    "IVFIndex",
    "Index",
    "IndexReport",
    "build_index",
    "load_index",
    "measure_recall",
    "save_index",
]
