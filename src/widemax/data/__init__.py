"""From raw records to batches: corpora, interactions, and worlds whose truth is known."""
