"""The formats that a log may lie in, one file each: how it is recognised, how its table is read."""

from widemax.data.reading.formats.base import (
    ITEM,
    TIME,
    USER,
    USUAL_NAMES,
    FileHead,
    QueriedFormat,
    TableFormat,
    plain_name,
)

__all__ = [
    "ITEM",
    "TIME",
    "USER",
    "USUAL_NAMES",
    "FileHead",
    "QueriedFormat",
    "TableFormat",
    "plain_name",
]
