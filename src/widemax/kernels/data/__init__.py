"""Kernels of reading, splitting and walking."""
