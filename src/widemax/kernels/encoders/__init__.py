"""Kernels of the encoders."""
