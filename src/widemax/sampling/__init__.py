"""Proposals: which classes compete with the targets, and how likely each was to be drawn."""

import lazy_loader

# The names are in ``__init__.pyi``: who answers draws from none of them.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
