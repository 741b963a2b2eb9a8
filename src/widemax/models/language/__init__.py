"""Language models: the next word from the words before it."""

from widemax.models.language.neural import NNLM, LSTMLanguageModel
from widemax.models.language.ngram import NGram, NGramHead

__all__ = ["NNLM", "LSTMLanguageModel", "NGram", "NGramHead"]
