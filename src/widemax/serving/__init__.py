"""Runs behind HTTP: what they answer, the limits they are asked within, and the page."""
