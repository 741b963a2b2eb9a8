"""Numba kernels for the CPU, each beside a plain reference that the tests hold it to."""
