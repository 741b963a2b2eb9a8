"""Heads whose probabilities are mostly 0."""
