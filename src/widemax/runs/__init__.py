"""Runs: a configuration, a folder, and what a trained model answers (``widemax.runs.api``)."""
