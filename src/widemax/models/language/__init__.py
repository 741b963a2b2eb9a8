"""Language models: the next word from the words before it."""
