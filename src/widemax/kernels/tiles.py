"""Matrix products inside a kernel, one tile at a time: what is computed stays near the core.

A product by a library goes to memory as a whole before anything else can be done with it. By tiles,
the next step finds each part still in the cache. Tiles of ``HEIGHT`` × ``WIDTH`` numbers are added
up in the processor's vector registers; the caller goes over them in any order.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FEATURES = binding.get_host_cpu_features()
_LANES = 16 if _FEATURES.get("avx512f") else 8 if _FEATURES.get("avx2") else 4
# Half of the vector registers hold the tile: there are 32 of them, or 16.
_MANY_REGISTERS = bool(_FEATURES.get("avx512f") or _FEATURES.get("neon"))
_VECTORS = 2
_UNROLLED = 4

HEIGHT = 8 if _MANY_REGISTERS else 4
"""Rows of a tile."""

WIDTH = _VECTORS * _LANES
"""Columns of a tile."""

DEPTH_STEP = _UNROLLED
"""What the common dimension of two factors must be a multiple of."""

_FLOAT, _INT = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, _LANES)
_FIRST_LANE = ir.IntType(32)(0)
# A product and a sum may become one instruction that rounds once.
_CONTRACT = ("contract",)


@intrinsic
def multiply_tile(typing_context: Any, left: Any, right: Any, out: Any, add: Any) -> Any:
    """Write left [HEIGHT, K] · right [K, WIDTH] to ``out`` [HEIGHT, WIDTH], or add it.

    All are float32, ``left`` of any strides; rows of ``right`` and ``out`` are contiguous. K is a
    multiple of ``DEPTH_STEP`` and at least that. No bounds are checked.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        matrices = [
            _Matrix(context, builder, kind, value)
            for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
        ]
        sums = _sum_over_depth(builder, *matrices[:2])
        with builder.if_else(arguments[3]) as branches:
            for branch, adds in zip(branches, (True, False), strict=True):
                with branch:
                    _write(builder, sums, matrices[2], adds=adds)
        return context.get_dummy_value()

    return types.void(left, right, out, types.boolean), generate


class _Matrix:
    """The numbers of an array [rows, columns], by address."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        strides = cgutils.unpack_tuple(builder, array.strides)  # type: ignore[no-untyped-call]
        shape = cgutils.unpack_tuple(builder, array.shape)  # type: ignore[no-untyped-call]
        self.columns = shape[1]
        self._builder = builder
        self._start = builder.bitcast(array.data, _FLOAT.as_pointer())
        self._row, self._column = (builder.sdiv(stride, _INT(4)) for stride in strides)

    def row(self, number: Any) -> Any:
        """Return where a row starts."""
        return self._builder.gep(self._start, [self._builder.mul(self._row, number)])

    def vector(self, row: Any, place: int) -> Any:
        """Return where the numbers of one register are, in a row whose numbers are neighbours."""
        address = self._builder.gep(row, [_INT(place * _LANES)])
        return self._builder.bitcast(address, _VECTOR.as_pointer())

    def spread(self, row: Any, column: Any) -> Any:
        """Return a register that holds one number in all lanes."""
        place = self._builder.mul(self._column, column)
        number = self._builder.load(self._builder.gep(row, [place]))
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        first = self._builder.insert_element(nothing, number, _FIRST_LANE)
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
        return self._builder.shuffle_vector(first, nothing, lanes)


def _sum_over_depth(builder: Any, left: _Matrix, right: _Matrix) -> list[list[Any]]:
    """Emit the loop over the common dimension; return the registers of the tile, row by row."""
    rows = [left.row(_INT(row)) for row in range(HEIGHT)]
    before = builder.block
    loop, after = (builder.append_basic_block(name) for name in ("depth", "after"))
    builder.branch(loop)
    builder.position_at_end(loop)
    depth = builder.phi(_INT)
    carried = [[builder.phi(_VECTOR) for _ in range(_VECTORS)] for _ in range(HEIGHT)]
    sums = [list(row) for row in carried]
    for ahead in range(_UNROLLED):
        k = builder.add(depth, _INT(ahead))
        row_of_right = right.row(k)
        factors = [_load(builder, right.vector(row_of_right, place)) for place in range(_VECTORS)]
        for row in range(HEIGHT):
            number = left.spread(rows[row], k)
            for place in range(_VECTORS):
                product = builder.fmul(number, factors[place], flags=_CONTRACT)
                sums[row][place] = builder.fadd(sums[row][place], product, flags=_CONTRACT)
    following = builder.add(depth, _INT(_UNROLLED))
    depth.add_incoming(_INT(0), before)
    depth.add_incoming(following, loop)
    for row in range(HEIGHT):
        for place in range(_VECTORS):
            carried[row][place].add_incoming(ir.Constant(_VECTOR, [0.0] * _LANES), before)
            carried[row][place].add_incoming(sums[row][place], loop)
    builder.cbranch(builder.icmp_signed("<", following, left.columns), loop, after)
    builder.position_at_end(after)
    return sums


def _write(builder: Any, sums: list[list[Any]], out: _Matrix, *, adds: bool) -> None:
    for row in range(HEIGHT):
        start = out.row(_INT(row))
        for place in range(_VECTORS):
            address = out.vector(start, place)
            total = sums[row][place]
            if adds:
                total = builder.fadd(_load(builder, address), total)
            builder.store(total, address).align = 4


def _load(builder: Any, address: Any) -> Any:
    """Load a register from numbers that need not lie at a multiple of its size."""
    value = builder.load(address)
    value.align = 4
    return value
