"""Training: the loop, its checkpoints, and what it is held to."""

import lazy_loader

# Checkpoints are looked at where torch is not wanted.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"guard": ["NonFiniteError", "check_finite"], "loop": ["Interrupted"]},
)
