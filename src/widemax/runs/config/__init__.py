"""The configuration of a run, put together from what the methods declare."""

from widemax.runs.config.config import Config
from widemax.runs.config.resolved import ResolvedConfig, read_config, show_config

__all__ = ["Config", "ResolvedConfig", "read_config", "show_config"]
