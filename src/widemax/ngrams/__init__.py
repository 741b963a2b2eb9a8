"""N-gram language models, fitted in seconds and exchanged with other tools as ARPA files."""

from widemax.ngrams.model import NGramModel

__all__ = ["NGramModel"]
