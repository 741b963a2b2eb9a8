"""Kernels of the objectives."""
