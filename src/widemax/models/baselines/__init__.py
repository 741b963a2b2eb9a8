"""Recommenders that are fitted in one go, which models are judged by."""
