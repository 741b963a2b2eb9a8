"""Compiled kernels: Numba is loaded when the first is called, and what it compiles is kept.

A kernel is compiled once for each installation. Its code is kept in the first of these folders that
can be written: ``NUMBA_CACHE_DIR``, the one beside the source, the user's cache, one of the user's
own among the temporary files. The cache is a help and never a condition: where nothing can be kept,
or what was kept is damaged, every process compiles what it calls.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])

Watcher = Callable[[str], None]
"""Told the name of each kernel when it begins to be compiled, and "" when it is."""

_watchers: list[Watcher] = []

_making = threading.RLock()


class prange:  # stands for Numba's, which is called so
    """The range of a loop whose rounds may run at the same time; in a kernel it is Numba's.

    >>> list(prange(3))
    [0, 1, 2]
    """

    def __new__(cls, *limits: int) -> range:  # type: ignore[misc]
        """Return a plain range, which it is where nothing is compiled."""
        return range(*limits)


class Kernel:
    """A function that Numba compiles when it is first called.

    To load Numba takes half a second, which a program that calls no kernel does without.
    """

    def __init__(self, function: FunctionType, options: dict[str, Any], *, cache: bool) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options, self._keeps = function, options, cache
        self._made: Any = None
        self._is_whole = False

    @property
    def dispatcher(self) -> Any:
        """What Numba makes of the function: it compiles it for each type of arguments."""
        if not self._is_whole:
            # One thread makes it; others that call it meanwhile wait until it is whole.
            with _making:
                if self._made is None:
                    self._make()
        return self._made

    def _make(self) -> None:
        import numba

        from widemax.kernels.linking import SelfContainedCompiler

        _load_without_scipy()
        # Before what it calls is looked at: functions may call each other.
        options = {**self._options, "pipeline_class": SelfContainedCompiler}
        made: Any = numba.njit(**options)(self._function)
        self._made = made
        _put_numba_in_place(self._function)
        if hasattr(made, "enable_caching"):  # without it, NUMBA_DISABLE_JIT is set
            _watch_compiling()
            if self._keeps:
                made._cache = _cache_of(self._function) or made._cache
        self._is_whole = True

    def __call__(self, *arguments: Any) -> Any:
        """Compile what is not compiled for such arguments yet, and call it."""
        return self.dispatcher(*arguments)

    @property
    def py_func(self) -> FunctionType:
        """The function as it is written."""
        return self._function


class Intrinsic:
    """A function that emits code of its own within a kernel, known to Numba once that is loaded."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @functools.cached_property
    def known(self) -> Any:
        """What Numba calls an intrinsic."""
        from numba.extending import intrinsic

        return intrinsic(self._function)


def njit(*, cache: bool = False, **options: Any) -> Callable[[_Function], _Function]:
    """Return what makes a function a kernel, compiled by ``numba.njit`` with these options.

    ``cache`` keeps the code on disk, where that can be.

    >>> njit(cache=True)(lambda x: x + 1)(41)
    42
    """

    def compiled(function: _Function) -> _Function:
        return cast(_Function, Kernel(cast(FunctionType, function), options, cache=cache))

    return compiled


def plain(kernel: _Function) -> _Function:
    """Return the function that a kernel is made of, to be run as it is written.

    >>> plain(njit()(lambda x: x + 1))(41)
    42
    """
    return cast(_Function, cast(Kernel, kernel).py_func)


def is_loaded() -> bool:
    """Return whether Numba is loaded: where it is not, a little work is done without it."""
    return "numba" in sys.modules


def watch_compiling(watcher: Watcher) -> None:
    """Have a function told what is compiled: the name of a kernel, then "" when it is done."""
    _watchers.append(watcher)


def ignore_compiling(watcher: Watcher) -> None:
    """Tell a function of ``watch_compiling`` no more."""
    _watchers.remove(watcher)


def _put_numba_in_place(function: FunctionType) -> None:
    """Let the names that a kernel uses mean what Numba knows: its own range, other kernels."""
    import numba

    names = function.__globals__
    for name in _used_names(function.__code__):
        value = names.get(name)
        if value is prange:
            names[name] = numba.prange
        elif isinstance(value, Kernel):
            names[name] = value.dispatcher
        elif isinstance(value, Intrinsic):
            names[name] = value.known


def _used_names(code: CodeType) -> set[str]:
    """Return the names that a function uses, those within its comprehensions too."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_used_names, inner))


@functools.cache
def _load_without_scipy() -> None:
    """Have Numba load what it knows of NumPy, but not SciPy's algebra to see whether it is there.

    A kernel that multiplies matrices loads it when it is compiled. For all others it would be a
    tenth of a second in every program, and two where the machine is busy.
    """
    if importlib.util.find_spec("scipy") is None:
        return
    from numba.core.registry import cpu_target
    from numba.np import linalg

    asked = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        cpu_target.target_context.refresh()
    finally:
        linalg.ensure_blas = asked


@functools.cache
def _watch_compiling() -> None:
    """Pass on what Numba says of its compiling; code that is read from a cache is not compiled."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, happened: Any) -> None:
            for watcher in _watchers:
                watcher(happened.data["dispatcher"].py_func.__name__)

        def on_end(self, happened: Any) -> None:
            for watcher in _watchers:
                watcher("")

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]


def _cache_of(function: FunctionType) -> Any:
    """Return where the code of a function is kept; None if there is no such place."""
    from widemax.kernels.keeping import ForgivingCache, TemporaryCache

    for kind in (ForgivingCache, TemporaryCache):
        try:
            return kind(function)  # type: ignore[no-untyped-call]
        except (RuntimeError, OSError):  # Numba found no folder, or may not write there
            continue
    return None


def temporary_folder() -> Path:
    """Return a folder among the temporary files that is this user's alone; raise OSError if not.

    What is kept there is code: whoever could write to it could have it executed.
    """
    name = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"widemax-kernels-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if os.name == "posix" and not (private and found.st_uid == os.getuid()):
        raise OSError(f"{folder} is not a folder that only this user can write to")
    return folder
