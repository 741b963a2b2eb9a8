"""Runs: the configuration that a training run is started from and stored with."""
