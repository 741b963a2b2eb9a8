"""Kernels of the optimisers."""
