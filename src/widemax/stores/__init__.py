"""Stores: databases that a log is read from, and that vectors are written to and searched in."""
