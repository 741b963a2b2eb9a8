"""Worlds whose truth is known: exact probabilities, or a whole shop with its log."""

from widemax.data.simulation.shop import SimulatedShop
from widemax.data.simulation.world import SimulatedWorld

__all__ = ["SimulatedShop", "SimulatedWorld"]
