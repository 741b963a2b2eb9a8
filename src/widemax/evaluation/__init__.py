"""Evaluation: exact metrics over the whole catalogue, of words and of language models."""

import lazy_loader

# The names are in ``__init__.pyi``: who answers judges nothing.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
