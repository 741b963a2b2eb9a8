"""Adaptive softmax: clusters of rare classes."""
