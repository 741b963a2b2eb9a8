"""Keys and ids: which class each key is, and how often it was seen."""

from widemax.vocabulary.vocabulary import Vocabulary

__all__ = ["Vocabulary"]
