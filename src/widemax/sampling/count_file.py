"""Counts of classes from a vocabulary file."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from widemax.storage.files import open_to_read

_LONGEST_LINE = 2**20
_LONGEST_SHOWN = 40


def read_counts(path: str | Path, *, separator: str = ",") -> NDArray[np.float64]:
    """Return the counts of a vocabulary file, float64: the last column of each line.

    What stands before the last separator, such as the word, is not read, in whatever encoding it
    is; a line may be the count alone. Empty lines are skipped, as in TensorFlow.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "words.csv"
    >>> _ = path.write_text("the,120\\nroad,7\\n\\nsun,3.5\\n")
    >>> read_counts(path).tolist()
    [120.0, 7.0, 3.5]
    """
    if not isinstance(separator, str) or not separator or set(separator) & set("\r\n"):
        raise ValueError(f"separator must be text without a line break, got {separator!r}")
    counts, between = array("d"), separator.encode()
    with open_to_read(path) as file:
        number = 0
        while line := file.readline(_LONGEST_LINE + 1):
            number += 1
            if len(line) > _LONGEST_LINE:
                raise ValueError(f"{path}, line {number:,}: longer than {_LONGEST_LINE:,} bytes")
            line = line.rstrip(b"\r\n")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")  # the byte order mark of some editors
            if line:
                counts.append(_count(line.split(between)[-1], path, number))
    if not counts:
        raise ValueError(f"{path} holds no counts: it has no line that is not empty")
    return np.frombuffer(counts, np.float64)


def _count(field: bytes, path: str | Path, number: int) -> float:
    """Return the count that the last column of a line holds."""
    try:
        # Python would take 1_000 for a thousand; no other program writes numbers so.
        count = math.nan if b"_" in field else float(field)
    except ValueError:
        count = math.nan
    if not (math.isfinite(count) and count >= 0):
        shown = field.decode("utf-8", "replace")
        shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"
        raise ValueError(
            f"{path}, line {number:,}: the last column must be a finite count of at least 0, "
            f"got {shown!r}"
        )
    return count
