"""The arithmetic of one window: few queries against some outputs, held in registers.

Every function becomes part of its caller. Rows of the tables are whole registers. Queries are an
even number, ``MOST_QUERIES`` at most: code is made for each number, with all queries, or their
moves, in registers. Output k is row ``ids[row, first + k]`` of a table; its score against query j,
and later its step, stands at ``steps[0, k·num_queries + j]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from widemax.kernels.compiling import njit
from widemax.kernels.exponential import exp
from widemax.kernels.models.prefetch import LINE, prefetch
from widemax.kernels.registers import (
    LANES,
    VECTOR,
    instruction,
    multiplied_and_added,
    spread_out,
    sums_of_four,
)

_f = np.float32
_LARGEST_SCORE = _f(30)  # beyond it the sigmoid is 0 or 1 in float32

MOST_QUERIES = 10
"""Queries of which all numbers at one place fit into registers, beside what they move by."""

# How many outputs are scored at once against so many queries, the larger first: as many sums as
# there are registers for.
_WIDTHS = {2: (7, 6, 3, 1), 4: (6, 3, 1), 6: (3, 1), 8: (3, 1), 10: (2, 1)}
if LANES < 16:  # there are 16 registers, not 32
    _WIDTHS = {2: (6, 3, 1), 4: (3, 1), 6: (2, 1), 8: (1,), 10: (1,)}
# How many registers of a row are summed or added at once.
_SPANS = (8, 7, 4, 2, 1)

_INDEX = ir.IntType(64)

Matrix = NDArray[np.float32]
Ids = NDArray[np.int64]


class _Table:
    """An array of two dimensions within the code that is being made."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self._builder, self._data = builder, array.data
        self._stride = cgutils.unpack_tuple(builder, array.strides)[0]  # type: ignore[no-untyped-call]
        self.width = cgutils.unpack_tuple(builder, array.shape)[1]  # type: ignore[no-untyped-call]

        self.height = cgutils.unpack_tuple(builder, array.shape)[0]  # type: ignore[no-untyped-call]

    def row(self, row: Any) -> Any:
        """Return where a row begins; whether there is one is not asked."""
        return self._row(self._data, row)

    def _row(self, data: Any, row: Any) -> Any:
        start = self._builder.bitcast(data, ir.IntType(8).as_pointer())
        place = self._builder.gep(start, [self._builder.mul(row, self._stride)])
        return self._builder.bitcast(place, data.type)


class _Outputs(_Table):
    """A table whose first rows are in another, of the same width."""

    def __init__(self, builder: Any, table: _Table, own: _Table) -> None:
        vars(self).update(vars(table))
        self._own = own

    def row(self, row: Any) -> Any:
        """Return where a row begins, in the table that has it."""
        is_own = self._builder.icmp_signed("<", row, self._own.height)
        return self._row(self._builder.select(is_own, self._own._data, self._data), row)


class _Code:
    """The instructions that the functions below are made of."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder = builder
        self.arguments = [
            _Table(context, builder, kind, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]

    def number(self, start: Any, place: Any) -> Any:
        """Return the number so many places after ``start``."""
        return self.builder.load(self.builder.gep(start, [place]))

    def _vector(self, start: Any, place: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(start, [place]), VECTOR.as_pointer())

    def load(self, start: Any, place: Any) -> Any:
        """Return the register so many places after ``start``."""
        return self.builder.load(self._vector(start, place), align=4)

    def store(self, value: Any, start: Any, place: Any) -> None:
        """Write a register there."""
        self.builder.store(value, self._vector(start, place), align=4)

    def sums(self, count: int) -> list[Any]:
        """Return registers that begin at 0 and can be changed in loops."""
        zero = ir.Constant(VECTOR, [0.0] * LANES)
        places = [
            cgutils.alloca_once(self.builder, VECTOR)  # type: ignore[no-untyped-call]
            for _ in range(count)
        ]
        for place in places:
            self.builder.store(zero, place)
        return places

    def rows(self, table: _Table, ids: Any, count: int) -> list[Any]:
        """Return where the rows begin that the ``count`` ids name."""
        return [table.row(self.number(ids, _INDEX(each))) for each in range(count)]

    @contextmanager
    def loop(self, start: Any, stop: Any, step: int = 1) -> Iterator[Any]:
        """Repeat what is made within, for start, start + step, … below stop."""
        with cgutils.for_range_slice(self.builder, start, stop, _INDEX(step), _INDEX) as (place, _):
            yield place

    def add(self, *values: Any) -> Any:
        """Return a sum of whole numbers."""
        total = values[0]
        for value in values[1:]:
            total = self.builder.add(total, value)
        return total


def _made_of(make: Callable[[_Code], None], *kinds: Any) -> Callable[..., Any]:
    """Return a function of kernels whose code ``make`` makes; kinds are those of its arguments."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        make(_Code(context, builder, signature, arguments))
        return context.get_dummy_value()

    return lambda *given: (
        types.void(*(kind or each for kind, each in zip(kinds, given, strict=True))),
        generate,
    )


_whole = types.int64


@instruction
def score_rows(
    typing_context: Any, queries: Any, rows: Any, start: Any, num_queries: Any, outputs: Any,
    own: Any, ids: Any, row: Any, first: Any, num_outputs: Any, scores: Any,
) -> Any:  # fmt: skip
    """Fill the scores of the queries ``rows[0, start …]`` against the outputs.

    The first rows of the outputs are those of ``own``, as many as it has.
    """
    given = (queries, rows, start, num_queries, outputs, own, ids, row, first, num_outputs, scores)
    kinds = (None, None, _whole, _whole, None, None, None, _whole, _whole, _whole, None)
    return _made_of(_make_scores, *kinds)(*given)


def _make_scores(code: _Code) -> None:
    queries, rows, start, num_queries, table, own, ids, row, first, num_outputs, scores = (
        code.arguments
    )
    builder = code.builder
    outputs = _Outputs(builder, table, own)
    of_queries = builder.gep(rows.row(_INDEX(0)), [start])
    of_outputs = builder.gep(ids.row(row), [first])
    for count, widths in _WIDTHS.items():
        with builder.if_then(builder.icmp_signed("==", num_queries, _INDEX(count))):
            starts = code.rows(queries, of_queries, count)
            done = cgutils.alloca_once_value(builder, _INDEX(0))  # type: ignore[no-untyped-call]
            for width in widths:
                left = builder.sub(num_outputs, builder.load(done))
                times = builder.sdiv(left, _INDEX(width))
                with code.loop(_INDEX(0), times):
                    place = builder.load(done)
                    columns = code.rows(outputs, builder.gep(of_outputs, [place]), width)
                    sums = _products(code, starts, columns, queries.width)
                    target = builder.gep(scores.row(_INDEX(0)), [builder.mul(place, _INDEX(count))])
                    _store_sums(code, sums, target)
                    builder.store(code.add(place, _INDEX(width)), done)


def _products(code: _Code, starts: list[Any], columns: list[Any], dimension: Any) -> list[Any]:
    """Return registers whose sums are the scores, those of a column one after the other."""
    sums = code.sums(len(columns) * len(starts))
    with code.loop(_INDEX(0), dimension, LANES) as d:
        others = [code.load(column, d) for column in columns]
        for j, query in enumerate(code.load(start, d) for start in starts):
            for i, other in enumerate(others):
                place = sums[i * len(starts) + j]
                total = multiplied_and_added(code.builder, query, other, code.builder.load(place))
                code.builder.store(total, place)
    return [code.builder.load(place) for place in sums]


def _store_sums(code: _Code, registers: list[Any], target: Any) -> None:
    """Write the sum of each register, an even number of them, one after the other."""
    builder = code.builder
    for start in range(0, len(registers), 4):
        four = registers[start : start + 4]
        sums = sums_of_four(builder, [*four, *four][:4])
        if len(four) == 2:
            two = ir.Constant(ir.VectorType(ir.IntType(32), 2), [0, 1])
            sums = builder.shuffle_vector(sums, sums, two)
        place = builder.gep(target, [_INDEX(start)])
        builder.store(sums, builder.bitcast(place, sums.type.as_pointer()), align=4)


@instruction
def move_rows(
    typing_context: Any, queries: Any, rows: Any, start: Any, num_queries: Any, outputs: Any,
    own: Any, ids: Any, row: Any, first: Any, num_outputs: Any, steps: Any, moved: Any,
    moved_rows: Any,
) -> Any:  # fmt: skip
    """Move outputs and queries by the steps of each pair.

    One output after the other: query j gets Σ_k step(k, j)·output k, and output k gets
    Σ_j step(k, j)·query j, where a query is as it was before all, and an output as it is when its
    turn comes. What a query gets is added to the row ``moved_rows[0, start + j]`` of ``moved``.
    """
    given = (
        queries, rows, start, num_queries, outputs, own, ids, row, first, num_outputs, steps,
        moved, moved_rows,
    )  # fmt: skip
    kinds = (
        None, None, _whole, _whole, None, None, None, _whole, _whole, _whole, None, None, None,
    )  # fmt: skip
    return _made_of(_make_moves, *kinds)(*given)


def _make_moves(code: _Code) -> None:
    (
        queries, rows, start, num_queries, table, own, ids, row, first, num_outputs, steps,
        moved, moved_rows,
    ) = code.arguments  # fmt: skip
    builder = code.builder
    outputs = _Outputs(builder, table, own)
    of_queries = builder.gep(rows.row(_INDEX(0)), [start])
    of_moved = builder.gep(moved_rows.row(_INDEX(0)), [start])
    of_outputs = builder.gep(ids.row(row), [first])
    for count in _WIDTHS:
        with builder.if_then(builder.icmp_signed("==", num_queries, _INDEX(count))):
            starts = code.rows(queries, of_queries, count)
            targets = code.rows(moved, of_moved, count)
            with code.loop(_INDEX(0), queries.width, LANES) as d:
                values = [code.load(each, d) for each in starts]
                moves = code.sums(count)
                with code.loop(_INDEX(0), num_outputs) as k:
                    column = outputs.row(code.number(of_outputs, k))
                    pair = builder.gep(steps.row(_INDEX(0)), [builder.mul(k, _INDEX(count))])
                    _move_one(code, values, moves, column, d, pair)
                for target, move in zip(targets, moves, strict=True):
                    total = builder.fadd(code.load(target, d), builder.load(move))
                    code.store(total, target, d)


def _move_one(
    code: _Code, values: list[Any], moves: list[Any], column: Any, d: Any, steps: Any
) -> None:
    """Move one output by all queries, at the places of one register, and add to their moves."""
    builder = code.builder
    output = code.load(column, d)
    # Two sums, so that no product waits for the one before.
    halves = [output, None]
    for j, value in enumerate(values):
        step = spread_out(builder, code.number(steps, _INDEX(j)))
        total = multiplied_and_added(builder, step, output, builder.load(moves[j]))
        builder.store(total, moves[j])
        half = halves[j % 2]
        halves[j % 2] = (
            builder.fmul(step, value)
            if half is None
            else multiplied_and_added(builder, step, value, half)
        )
    code.store(builder.fadd(*halves), column, d)


@instruction
def fetch_row(typing_context: Any, outputs: Any, own: Any, row: Any) -> Any:
    """Start to fetch a row of the outputs; nothing is read, so a wrong row does no harm."""
    return _made_of(_make_fetch, None, None, _whole)(outputs, own, row)


def _make_fetch(code: _Code) -> None:
    table, own, row = code.arguments
    start = _Outputs(code.builder, table, own).row(row)
    with code.loop(_INDEX(0), table.width, LINE) as d:
        prefetch(code.builder, code.builder.gep(start, [d]))


@instruction
def mean_row(
    typing_context: Any, means: Any, place: Any, table: Any, rows: Any, start: Any, num_rows: Any,
    share: Any,
) -> Any:  # fmt: skip
    """Write ``share`` times the sum of the rows ``rows[0, start …]`` of a table to one of means."""
    kinds = (None, _whole, None, None, _whole, _whole, types.float32)
    return _made_of(_make_mean, *kinds)(means, place, table, rows, start, num_rows, share)


def _make_mean(code: _Code) -> None:
    means, place, table, rows, start, num_rows, share = code.arguments
    builder = code.builder
    of_rows = builder.gep(rows.row(_INDEX(0)), [start])
    target, factor = means.row(place), spread_out(builder, share)
    for d, span in _spans(code, table.width):
        sums = code.sums(span)
        with code.loop(_INDEX(0), num_rows) as j:
            source = table.row(code.number(of_rows, j))
            for each, total in enumerate(sums):
                value = code.load(source, code.add(d, _INDEX(each * LANES)))
                builder.store(builder.fadd(builder.load(total), value), total)
        for each, total in enumerate(sums):
            value = builder.fmul(builder.load(total), factor)
            code.store(value, target, code.add(d, _INDEX(each * LANES)))


@instruction
def add_to_rows(
    typing_context: Any, table: Any, rows: Any, start: Any, num_rows: Any, moves: Any, place: Any
) -> Any:
    """Add a row of ``moves`` to the rows ``rows[0, start …]`` of a table, and make it 0."""
    kinds = (None, None, _whole, _whole, None, _whole)
    return _made_of(_make_additions, *kinds)(table, rows, start, num_rows, moves, place)


def _make_additions(code: _Code) -> None:
    table, rows, start, num_rows, moves, place = code.arguments
    builder = code.builder
    of_rows = builder.gep(rows.row(_INDEX(0)), [start])
    source = moves.row(place)
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    for d, span in _spans(code, table.width):
        places = [code.add(d, _INDEX(each * LANES)) for each in range(span)]
        values = [code.load(source, each) for each in places]
        for each in places:
            code.store(zero, source, each)
        with code.loop(_INDEX(0), num_rows) as j:
            target = table.row(code.number(of_rows, j))
            for each, value in zip(places, values, strict=True):
                code.store(builder.fadd(code.load(target, each), value), target, each)


def _spans(code: _Code, dimension: Any) -> Iterator[tuple[Any, int]]:
    """Repeat what is made for each: where a span of a row begins, and how many registers it has."""
    builder = code.builder
    done = cgutils.alloca_once_value(builder, _INDEX(0))  # type: ignore[no-untyped-call]
    for span in _SPANS:
        width = span * LANES
        times = builder.sdiv(builder.sub(dimension, builder.load(done)), _INDEX(width))
        with code.loop(_INDEX(0), times):
            place = builder.load(done)
            yield place, span
            builder.store(code.add(place, _INDEX(width)), done)


@njit(inline="always")
def make_steps(scores: Matrix, num: int, num_true: int, rate: np.float32) -> None:
    """Replace each score F by rate·(label − σ(F)), where the first ``num_true`` have label 1.

    In whole registers: up to 15 places after ``num`` are overwritten.
    """
    for i in range((num + 15) // 16 * 16):
        value = scores[0, i]
        value = -_LARGEST_SCORE if value < -_LARGEST_SCORE else value
        value = _LARGEST_SCORE if value > _LARGEST_SCORE else value
        label = rate if i < num_true else _f(0)
        scores[0, i] = label - rate / (_f(1) + exp(-value))
