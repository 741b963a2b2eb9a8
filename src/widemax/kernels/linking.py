"""How a kernel is joined with those it calls, so that its bits never depend on what else is loaded.

Numba copies what a kernel calls into its code, and optimises the copy once more there. The copies
are weak symbols: of all that a process holds under one name, the first that was loaded serves
every caller. That would be the original where it was compiled or called before, and the caller's
own copy where only the caller came from the cache. Where sums may be reordered, the two round
differently: a run that compiles its kernels would train another model than the runs after it.
"""

from __future__ import annotations

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _SelfContained(JITCodeLibrary):
    """The code of a kernel, which calls its own copies of what it is linked with."""

    def _optimize_final_module(self) -> None:
        super()._optimize_final_module()  # type: ignore[no-untyped-call]
        # Afterwards, not before: the code itself stays what it is with weak symbols.
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.internal


class SelfContainedCompiler(Compiler):
    """Numba's compiler, for kernels that use nothing of one another's at run time."""

    def define_pipelines(self) -> list[object]:
        """Return Numba's own passes; what they fill is a library of the kind above."""
        library = _SelfContained(  # type: ignore[no-untyped-call]
            self.state.targetctx.codegen(), self.state.func_id.func_qualname
        )
        library.enable_object_caching()  # type: ignore[no-untyped-call]
        self.state.library = library
        passes: list[object] = super().define_pipelines()  # type: ignore[no-untyped-call]
        return passes
