"""Gradients of a head, sampled and exact, and how far apart they are."""
