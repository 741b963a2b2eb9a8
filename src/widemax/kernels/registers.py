"""Whole vector registers in the code of a kernel, where the compiler's own loops are not enough.

A loop that LLVM vectorises by itself first asks whether its arrays overlap, and ends with the
numbers that fill no register; on rows of a hundred numbers that costs more than the work. Code that
is made of these parts reads a row a register at a time, and nothing is asked: every place must be
inside its table, rows are whole registers (``LANES`` numbers), and a column to load or store is a
multiple of ``LANES``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import PrimitiveModel
from numba.extending import intrinsic, register_model

LANES: int = 16 if llvm.get_host_cpu_features().get("avx512f") else 8
"""float32 numbers in one register."""

_NUMBER = ir.FloatType()
VECTOR = ir.VectorType(_NUMBER, LANES)
"""The type of a register within the code that is made."""
_INDEX = ir.IntType(32)


def instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of kernels that becomes the instructions that ``function`` generates."""
    return cast(Callable[..., Any], intrinsic(function))


class Register(types.Type):
    """The type of ``LANES`` float32 numbers."""

    def __init__(self) -> None:
        super().__init__(name=f"Register({LANES})")


@register_model(Register)
class _RegisterModel(PrimitiveModel):
    """Kept as a vector of LLVM, which becomes a register of the processor."""

    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, VECTOR)  # type: ignore[no-untyped-call]


_register = Register()


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


@instruction
def unowned(typing_context: Any, *tables: Any) -> Any:
    """Return arrays of which no references are counted, for a function that got them from a caller.

    Each view of a part, and each part of a kernel that an array is given to, otherwise costs two
    counts that other cores must see: as long as some twenty products of registers. The caller has
    to keep the arrays: a function must not do this to one that it made.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.return_type
        given = cgutils.unpack_tuple(builder, arguments[0])  # type: ignore[no-untyped-call]
        made = []
        for kind, value in zip(kinds, given, strict=True):
            array = context.make_array(kind)(context, builder, value)
            for owner in ("meminfo", "parent"):
                nothing = cgutils.get_null_value(getattr(array, owner).type)  # type: ignore[no-untyped-call]
                setattr(array, owner, nothing)
            made.append(array._getvalue())
        return context.make_tuple(builder, kinds, made)

    given, made = types.StarArgTuple(tables), types.Tuple(tables)  # type: ignore[no-untyped-call]
    return made(given), generate


@instruction
def load(typing_context: Any, table: Any, row: Any, column: Any) -> Any:
    """Return table[row, column : column + LANES] of a float32 table whose rows are contiguous."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature, arguments)
        return builder.load(builder.bitcast(address, VECTOR.as_pointer()), align=4)

    return _register(table, types.int64, types.int64), generate


@instruction
def store(typing_context: Any, table: Any, row: Any, column: Any, value: Any) -> Any:
    """Write a register to table[row, column : column + LANES]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature, arguments)
        builder.store(arguments[3], builder.bitcast(address, VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64, _register), generate


@instruction
def spread(typing_context: Any, value: Any) -> Any:
    """Return a register whose numbers are all ``value``, a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return spread_out(builder, arguments[0])

    return _register(types.float32), generate


@instruction
def add(typing_context: Any, a: Any, b: Any) -> Any:
    """Return a + b."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return _register(_register, _register), generate


@instruction
def subtract(typing_context: Any, a: Any, b: Any) -> Any:
    """Return a − b."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fsub(*arguments)

    return _register(_register, _register), generate


@instruction
def multiply(typing_context: Any, a: Any, b: Any) -> Any:
    """Return a·b."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(*arguments)

    return _register(_register, _register), generate


@instruction
def multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a·b + c, in one instruction where the processor has it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return multiplied_and_added(builder, *arguments)

    return _register(_register, _register, _register), generate


@instruction
def divide(typing_context: Any, a: Any, b: Any) -> Any:
    """Return a / b."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fdiv(*arguments)

    return _register(_register, _register), generate


@instruction
def clamp(typing_context: Any, x: Any, low: Any, high: Any) -> Any:
    """Return x, or the limit that it is beyond; NaN stays NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, low, high = arguments
        x = builder.select(builder.fcmp_ordered("<", x, low), low, x)
        return builder.select(builder.fcmp_ordered(">", x, high), high, x)

    return _register(_register, _register, _register), generate


@instruction
def round_down(typing_context: Any, x: Any) -> Any:
    """Return the largest whole numbers that are at most x."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(VECTOR, [VECTOR])
        function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, kind, f"llvm.floor.v{LANES}f32"
        )
        return builder.call(function, arguments)

    return _register(_register), generate


@instruction
def two_to(typing_context: Any, n: Any) -> Any:
    """Return 2^n for whole numbers from −126 to 127."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.VectorType(_INDEX, LANES)
        whole = builder.fptosi(arguments[0], kind)
        biased = builder.add(whole, ir.Constant(kind, [127] * LANES))
        bits = builder.shl(biased, ir.Constant(kind, [23] * LANES))
        return builder.bitcast(bits, VECTOR)

    return _register(_register), generate


@instruction
def store_sums(
    typing_context: Any, table: Any, row: Any, column: Any, a: Any, b: Any, c: Any, d: Any
) -> Any:
    """Write the sums of four registers to table[row, column : column + 4]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums = sums_of_four(builder, arguments[3:])
        address = _address(context, builder, signature, arguments)
        builder.store(sums, builder.bitcast(address, sums.type.as_pointer()), align=4)
        return context.get_dummy_value()

    arguments = (table, types.int64, types.int64, *[_register] * 4)
    return types.void(*arguments), generate
