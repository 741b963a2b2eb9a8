"""Runs: a configuration, a folder, and what a trained model answers."""

import lazy_loader

# The configuration is asked for where torch is not wanted.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"api": ["load", "train"], "folder.catalogue": ["Neighbour"], "run": ["Run"]},
)
