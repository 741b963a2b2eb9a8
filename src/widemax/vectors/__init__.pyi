"""The names of the room: each is imported when it is first asked for."""

from .keyed import KeyedVectors as KeyedVectors
from .numpy_pair import read_numpy_vectors as read_numpy_vectors
from .numpy_pair import write_numpy_vectors as write_numpy_vectors
from .projector import read_projector_vectors as read_projector_vectors
from .projector import write_projector_vectors as write_projector_vectors
from .safetensors_file import read_safetensors_vectors as read_safetensors_vectors
from .safetensors_file import write_safetensors_vectors as write_safetensors_vectors
from .word2vec_binary import read_word2vec_binary as read_word2vec_binary
from .word2vec_binary import write_word2vec_binary as write_word2vec_binary
from .word2vec_text import read_word2vec_text as read_word2vec_text
from .word2vec_text import write_word2vec_text as write_word2vec_text
