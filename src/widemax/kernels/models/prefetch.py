"""Asking for a row of a table before it is needed, so that memory works while the core does."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from widemax.kernels.compiling import Intrinsic, njit

LINE = 16
"""float32 numbers in one cache line of 64 bytes."""


def prefetch(builder: Any, address: Any) -> None:
    """Emit LLVM's prefetch of an address, for writing, kept in all caches."""
    from llvmlite import ir
    from numba.core import cgutils

    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, kind, "llvm.prefetch.p0i8"
    )
    builder.call(function, [builder.bitcast(address, byte), number(1), number(3), number(1)])


@Intrinsic
def _prefetch_line(typing_context: Any, table: Any, row: Any, column: Any) -> Any:
    """Emit LLVM's prefetch of table[row, column], for writing, kept in all caches."""
    # Here and not above: they load Numba.
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        strides = cgutils.unpack_tuple(builder, array.strides)  # type: ignore[no-untyped-call]
        offset = builder.add(
            builder.mul(arguments[1], strides[0]), builder.mul(arguments[2], strides[1])
        )
        byte = ir.IntType(8).as_pointer()
        prefetch(builder, builder.gep(builder.bitcast(array.data, byte), [offset]))
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64), generate


@njit(inline="always")
def prefetch_row(table: NDArray[Any], row: int, dimension: int) -> None:
    """Start to fetch a row of a float32 table; nothing is read, so a wrong row does no harm."""
    for column in range(0, dimension, LINE):
        _prefetch_line(table, row, column)  # type: ignore[operator]


@njit(inline="always")
def prefetch_part(table: NDArray[Any], row: int, start: int, length: int) -> None:
    """Start to fetch ``length`` numbers of 8 bytes of a row, from ``start`` on."""
    for column in range(start, start + length, LINE // 2):
        _prefetch_line(table, row, column)  # type: ignore[operator]
