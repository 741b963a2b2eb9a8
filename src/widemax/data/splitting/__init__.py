"""Splits of a log: what a model learns from, and the questions it is judged by."""

from widemax.data.splitting.holdout import Holdout
from widemax.data.splitting.log_split import LogSplit, split_by_parts
from widemax.data.splitting.splits import (
    leave_one_out,
    read_split,
    split_at_times,
    split_by_time,
    split_by_user,
)

__all__ = [
    "Holdout",
    "LogSplit",
    "leave_one_out",
    "read_split",
    "split_at_times",
    "split_by_parts",
    "split_by_time",
    "split_by_user",
]
