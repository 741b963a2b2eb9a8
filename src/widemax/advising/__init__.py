"""Advising: which model and output layer for some data, a machine and a need."""

import lazy_loader

# The names are in ``__init__.pyi``: a plan asks for the popularity of classes alone, without torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
