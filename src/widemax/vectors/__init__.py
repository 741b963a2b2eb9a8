"""Trained vectors and their keys, in and out of the files that other tools read and write."""

import lazy_loader

# The names are in ``__init__.pyi``: who answers writes none of the formats.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
