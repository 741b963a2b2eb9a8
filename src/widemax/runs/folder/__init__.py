"""What the folder of a run keeps, and what of it can be read without torch."""
