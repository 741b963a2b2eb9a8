"""Compiled kernels whose cache may fail: then they are compiled again, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _ForgivingCache(FunctionCache):
    """Numba's cache of compiled code on disk, which is a help and never a condition."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled before; None if there is nothing, or if it is damaged."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:
            # A torn or foreign pickle raises anything, and compiling replaces it.
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, if the disk takes it."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except Exception:
            # The disk is full, the folder was closed, or what lies there is damaged.
            return


def njit(*, cache: bool = False, **options: Any) -> Callable[[_Function], _Function]:
    """Return ``numba.njit`` with these options; ``cache`` keeps the code on disk where it can.

    Numba looks for a folder it may write to: ``NUMBA_CACHE_DIR``, the one beside the source, the
    user's cache. Where there is none (a container, another user's installation) it refuses to
    define the function; here every process compiles what it calls, which takes seconds.

    >>> njit(cache=True)(lambda x: x + 1)(41)
    42
    """

    def compiled(function: _Function) -> _Function:
        kernel: Any = numba.njit(**options)(function)
        if cache and hasattr(kernel, "enable_caching"):  # without it, NUMBA_DISABLE_JIT is set
            with suppress(RuntimeError, OSError):  # no folder: the kernel stays without a cache
                kernel._cache = _ForgivingCache(function)  # type: ignore[no-untyped-call]
        return cast(_Function, kernel)

    return compiled
