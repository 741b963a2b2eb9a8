"""Protocols: what is trained on, what validates, what tests."""
