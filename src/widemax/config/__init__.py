"""The configuration of a run, put together from what the methods declare."""

from widemax.config.config import Config
from widemax.config.resolved import ResolvedConfig, read_config, show_config

__all__ = ["Config", "ResolvedConfig", "read_config", "show_config"]
