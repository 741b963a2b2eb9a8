"""Training a run: from a source and a configuration to a folder that answers."""
