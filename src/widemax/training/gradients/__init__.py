"""Training by gradients: batches, steps of an optimiser, and a running mean of the weights."""
