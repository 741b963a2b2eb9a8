"""Trained vectors and their keys, in and out of the files that other tools read and write."""

from widemax.vectors.keyed import KeyedVectors
from widemax.vectors.numpy_pair import read_numpy_vectors, write_numpy_vectors
from widemax.vectors.projector import read_projector_vectors, write_projector_vectors
from widemax.vectors.safetensors_file import read_safetensors_vectors, write_safetensors_vectors
from widemax.vectors.word2vec_binary import read_word2vec_binary, write_word2vec_binary
from widemax.vectors.word2vec_text import read_word2vec_text, write_word2vec_text

__all__ = [
    "KeyedVectors",
    "read_numpy_vectors",
    "read_projector_vectors",
    "read_safetensors_vectors",
    "read_word2vec_binary",
    "read_word2vec_text",
    "write_numpy_vectors",
    "write_projector_vectors",
    "write_safetensors_vectors",
    "write_word2vec_binary",
    "write_word2vec_text",
]
