"""Heads: the last layer of a model, which owns the output parameters."""

import lazy_loader

# The names are in ``__init__.pyi``: a run that answers loads its own head and no other.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
