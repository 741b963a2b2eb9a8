"""The command line: one file per verb."""

from widemax.cli.app import app, main

__all__ = ["app", "main"]
