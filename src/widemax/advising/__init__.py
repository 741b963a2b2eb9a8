"""Advising: which model and output layer for some data, a machine and a need."""

from widemax.advising.advice import Advice, Alternative, advise
from widemax.advising.choosing import Reason
from widemax.advising.machine import Machine
from widemax.advising.popularity import Popularity

__all__ = ["Advice", "Alternative", "Machine", "Popularity", "Reason", "advise"]
