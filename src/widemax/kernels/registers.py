"""Whole vector registers in the code of a kernel, where the compiler's own loops are not enough.

A loop that LLVM vectorises by itself first asks whether its arrays overlap, and ends with the
numbers that fill no register; on rows of a hundred numbers that costs more than the work. Code that
is made of these parts reads a row a register at a time, and nothing is asked: every place must be
inside its table, and rows are whole registers (``LANES`` numbers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES: int = 16 if llvm.get_host_cpu_features().get("avx512f") else 8
"""float32 numbers in one register."""

_NUMBER = ir.FloatType()
VECTOR = ir.VectorType(_NUMBER, LANES)
"""The type of a register within the code that is made."""
_INDEX = ir.IntType(32)


def instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of kernels that becomes the instructions that ``function`` generates."""
    return cast(Callable[..., Any], intrinsic(function))


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Return where table[row, column] lies, without a question whether there is such a place."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    stride = cgutils.unpack_tuple(builder, array.strides)[0]  # type: ignore[no-untyped-call]
    start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
    row = builder.gep(start, [builder.mul(arguments[1], stride)])
    return builder.gep(builder.bitcast(row, array.data.type), [arguments[2]])


def spread_out(builder: Any, value: Any) -> Any:
    """Return a vector whose numbers are all ``value``."""
    first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), value, _INDEX(0))
    everywhere = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
    return builder.shuffle_vector(first, first, everywhere)


@instruction
def peek(typing_context: Any, table: Any, row: Any, column: Any) -> Any:
    """Return table[row, column], a number; places are not counted from the end."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature, arguments))

    return table.dtype(table, types.int64, types.int64), generate


def multiplied_and_added(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return the register a·b + c, within the code that is made."""
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, kind, f"llvm.fmuladd.v{LANES}f32"
    )
    return builder.call(function, [a, b, c])


def sums_of_four(builder: Any, registers: Any) -> Any:
    """Return the sums of four registers as one vector of four numbers."""
    a, b, c, d = registers
    half, other = _interleaved_sum(builder, a, b, 1), _interleaved_sum(builder, c, d, 1)
    sums = _interleaved_sum(builder, half, other, 2)
    width = LANES
    while width > 4:
        width //= 2
        low, high = (_part(builder, sums, start, width) for start in (0, width))
        sums = builder.fadd(low, high)
    return sums


def _part(builder: Any, vector: Any, start: int, width: int) -> Any:
    """Return ``width`` numbers of a vector."""
    places = ir.Constant(ir.VectorType(_INDEX, width), list(range(start, start + width)))
    return builder.shuffle_vector(vector, vector, places)


def _interleaved_sum(builder: Any, a: Any, b: Any, width: int) -> Any:
    """Return in every four numbers sums of a's and sums of b's, ``width`` of each in turn.

    Of four numbers in a and in b: with width 1 (a0 + a2, b0 + b2, a1 + a3, b1 + b3), with width 2
    (a0 + a2, a1 + a3, b0 + b2, b1 + b3).
    """
    low, high = [], []
    for four in range(0, LANES, 4):
        if width == 1:
            low += [four, LANES + four, four + 1, LANES + four + 1]
            high += [four + 2, LANES + four + 2, four + 3, LANES + four + 3]
        else:
            low += [four, four + 1, LANES + four, LANES + four + 1]
            high += [four + 2, four + 3, LANES + four + 2, LANES + four + 3]
    kind = ir.VectorType(_INDEX, LANES)
    parts = (builder.shuffle_vector(a, b, ir.Constant(kind, places)) for places in (low, high))
    return builder.fadd(*parts)
