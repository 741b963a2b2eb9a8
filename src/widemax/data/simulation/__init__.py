"""Worlds with a known truth."""
