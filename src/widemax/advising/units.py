"""Numbers as people write them: 50e6, 8GB, 10Gbit, 50us."""

from __future__ import annotations

import re

from widemax.limits import check_positive, check_whole

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?) *"


def whole(name: str, value: float, least: int, most: int) -> int:
    """Return a whole number that may be written like 50e6."""
    number = float(value)
    if not number.is_integer():
        raise ValueError(
            f"{name} must be a whole number between {least:,} and {most:,}, got {value!r}"
        )
    return check_whole(name, int(number), least, most)


def bytes_of(text: str | float) -> float:
    """Return a size of memory in bytes; 0 or nothing sets no limit.

    >>> bytes_of("8GB"), bytes_of("512 MB"), bytes_of("")
    (8000000000.0, 512000000.0, 0.0)
    """
    if not isinstance(text, str):
        return 0.0 if not text else check_positive("memory", text)
    if not text.strip():
        return 0.0
    found = re.fullmatch(rf"{_NUMBER}([kmgt]?)b?", text.strip().lower())
    if found is None or not float(found[1]):
        raise ValueError(f"memory must be a size such as 8GB or 512MB, got {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def bandwidth_of(text: str) -> float:
    """Return bytes a second; networks are sold in bits.

    >>> bandwidth_of("10Gbit"), bandwidth_of("1.25 GB")
    (1250000000.0, 1250000000.0)
    """
    found = re.fullmatch(rf"{_NUMBER}([kmgt]?)(bit|b)(?:/s)?", text.strip().lower())
    if found is None or not float(found[1]):
        raise ValueError(f"bandwidth must be a rate such as 10Gbit or 1.25GB, got {text!r}")
    bits = 8 if found[3] == "bit" else 1
    return float(found[1]) * _UNITS[found[2]] / bits


def latency_of(text: str) -> float:
    """Return seconds.

    >>> latency_of("50us"), latency_of("0.5 ms")
    (4.9999999999999996e-05, 0.0005)
    """
    found = re.fullmatch(rf"{_NUMBER}(us|µs|ms|s)", text.strip().lower())
    if found is None:
        raise ValueError(f"latency must be a time such as 50us or 0.5ms, got {text!r}")
    return float(found[1]) * _SECONDS[found[2]]
