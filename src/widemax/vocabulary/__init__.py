"""Keys and ids: which class each key is, and how often it was seen."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from widemax.vocabulary.vocabulary import Vocabulary

    __all__ = ["Vocabulary"]
else:
    # A run names its words without polars, which the vocabulary is made of.
    __getattr__, __dir__, __all__ = lazy_loader.attach(
        __name__, submod_attrs={"vocabulary": ["Vocabulary"]}
    )
