"""Proposals that depend on the example: its context, its target or its hidden state."""
