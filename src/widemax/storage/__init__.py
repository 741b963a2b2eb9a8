"""Files that no failure can tear: atomic writes, locks, tensors without pickle."""
