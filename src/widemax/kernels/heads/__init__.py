"""Kernels of the heads."""
