"""Comparison: output layers in a fair race on one's own data."""

import lazy_loader

# The verb's help is shown without torch, which the trials need.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "contenders": ["Contender", "contenders_of"],
        "race": ["Race", "Terms", "stored_race"],
        "standings": ["Standing"],
    },
)
