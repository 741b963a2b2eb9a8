"""A trained run: what its audit comes to, what a step costs, and what would help."""
