"""The configuration of a run."""

from widemax.runs.config.config import Config

__all__ = ["Config"]
