"""Candidates from the batch itself, and from the batches before it."""
