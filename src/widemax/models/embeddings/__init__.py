"""The skip-gram family: vectors from what stands together."""
