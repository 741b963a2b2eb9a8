"""Where compiled code is kept: Numba's cache on disk, which here may fail without harm."""

from __future__ import annotations

from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator

from widemax.kernels.compiling import temporary_folder
from widemax.kernels.linking import SelfContainedCompiler


class ForgivingCache(FunctionCache):
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

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        # With the compiler: code that another one left for the same source has other bits.
        key: tuple[Any, ...] = super()._index_key(sig, codegen)  # type: ignore[no-untyped-call]
        return (*key, SelfContainedCompiler.__name__)


class _Temporary(UserProvidedCacheLocator):
    """A folder of the user's own among the temporary files."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        part = self.get_suitable_cache_subpath(file)  # type: ignore[no-untyped-call]
        self._cache_path = str(temporary_folder() / part)

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        """Return the place of a function of a file; None if nothing can be written there."""
        # Past the parent's own, which asks whether a folder was named.
        parent: Any = super(UserProvidedCacheLocator, cls)
        return parent.from_function(function, file)


class _TemporaryImpl(CompileResultCacheImpl):
    _locator_classes = [_Temporary]  # noqa: RUF012  # as its base has it


class TemporaryCache(ForgivingCache):
    """The cache for an installation where neither package nor home can be written to."""

    _impl_class: Any = _TemporaryImpl
