"""Hierarchical softmax: trees over the classes."""
