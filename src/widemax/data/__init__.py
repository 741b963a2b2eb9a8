"""From raw records to batches: corpora, interactions, and worlds whose truth is known."""

import lazy_loader

# The names are in ``__init__.pyi``: who answers reads no log and simulates none.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
