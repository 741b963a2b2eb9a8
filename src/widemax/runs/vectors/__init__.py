"""The vectors of a run: which are near, indexes to search them in, and a map."""
