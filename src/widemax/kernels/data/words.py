"""Numbering the words of a text, byte by byte, and leaving out those that get no class."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.kernels.compiling import Intrinsic, njit
from widemax.kernels.hashing import first_slot, hash_shift

Bytes = NDArray[np.uint8]
Codes = NDArray[np.int32]
Numbers = NDArray[np.int64]
Slots = NDArray[np.uint64]

PLACE, WORDS, LINES, IN_LINE, KEYS, LETTERS = range(6)
"""What ``number_words`` has got to: see there."""

MAX_KEYS = 2**31
"""Most different words that int32 has codes for."""

_KEY, _CODE = range(2)
_EMPTY = np.uint64(2**64 - 1)
_LONG = np.uint64(2**63)
_SHORT_BYTES = 8
_BYTE_BITS = np.uint64(8)
_BLANK, _TAB, _RETURN, _NEW_LINE = 32, 9, 13, 10

_HASH_PRIME = np.uint64(0x100000001B3)

_EIGHTY = np.uint64(0x8080808080808080)
_ABOVE_BLANK = np.uint64(0x2121212121212121)

_kernel = njit(cache=True, nogil=True)
# A call would count references to its arrays, again for every word: half of the time.
_part = njit(cache=True, nogil=True, forceinline=True)


@_kernel
def number_words(
    data: Bytes, longest: int, slots: Slots, ends: Numbers, letters: Bytes,
    codes: Codes, lengths: Numbers, progress: Numbers,
) -> None:  # fmt: skip
    """Give each word its code, in order of first appearance, until ``data`` or a buffer ends.

    Words lie between white space of ASCII (9 … 13 and 32), lines end at 10. ``data`` holds no NUL
    and ends between words; ``codes`` has room for its words, ``lengths`` for its lines. If the
    place that is left is not the end of ``data``, a word begins there that does not fit: into half
    of ``slots``, into ``ends``, into ``letters``, or into ``longest`` bytes.

    ``progress`` [6] is how far it got: the place in ``data``, words and lines written to ``codes``
    and ``lengths``, words of the line that is not at its end, different words, and their letters.
    Word c is letters[ends[c] : ends[c + 1] − 1]; a line end follows it. ``slots`` [2^k, 2] is a
    hash table: the word itself if it has 8 bytes at most, else its hash (FNV-1a beyond the first 8
    bytes); and its code with the highest bit set if it is long, all bits if the slot is empty.

    >>> data = np.frombuffer(b"rum tea\\nrum\\n", np.uint8)
    >>> slots, ends, letters = empty_slots(3), np.zeros(4, np.int64), np.empty(9, np.uint8)
    >>> codes, lengths, progress = np.empty(3, np.int32), np.empty(2, int), np.zeros(6, int)
    >>> number_words(data, 10, slots, ends, letters, codes, lengths, progress)
    >>> codes.tolist(), lengths.tolist(), letters[:8].tobytes()
    ([0, 1, 0], [2, 1], b'rum\\ntea\\n')
    """
    place, words, lines = progress[PLACE], progress[WORDS], progress[LINES]
    in_line, keys, used = progress[IN_LINE], progress[KEYS], progress[LETTERS]
    mask = len(slots) - 1
    shift = hash_shift(len(slots))
    size = len(data)
    while place < size:
        byte = data[place]
        if _is_blank(byte):
            if byte == _NEW_LINE:
                lengths[lines] = in_line
                lines += 1
                in_line = 0
            place += 1
            continue
        end, short_end = place, min(place + _SHORT_BYTES, size)
        key = np.uint64(0)
        if place + _SHORT_BYTES <= size:
            key = _eight_bytes(data, place)  # type: ignore[operator]
            # The highest bit of each byte of 32 at most: no other byte lends from the next.
            low = ~((key | _EIGHTY) - _ABOVE_BLANK) & ~key & _EIGHTY
            above = _leading_zeros(low) >> 3  # type: ignore[operator]
            end += above
            # In two halves: no shift of 64 is one.
            half = np.uint64(32 - 4 * above)
            key = (key >> half) >> half
        # What is left of the last bytes, and of a word with control characters.
        while end < short_end and not _is_blank(data[end]):
            key = (key << _BYTE_BITS) | np.uint64(data[end])
            end += 1
        is_long = np.uint64(0)
        if end == short_end and end < size and not _is_blank(data[end]):
            is_long = _LONG
            while end < size and not _is_blank(data[end]):
                key = (key ^ np.uint64(data[end])) * _HASH_PRIME
                end += 1
        length = end - place
        if length > longest:
            break
        slot = first_slot(key, shift)
        while slots[slot, _CODE] != _EMPTY:
            if slots[slot, _KEY] == key:
                code = np.int64(slots[slot, _CODE] & ~_LONG)
                if slots[slot, _CODE] & _LONG == is_long and (
                    not is_long or _is_word(data, place, length, letters, ends, code)
                ):
                    break
            slot = (slot + 1) & mask
        if slots[slot, _CODE] == _EMPTY:
            full = 2 * keys >= mask or keys + 1 >= len(ends)
            if full or used + length >= len(letters):
                break
            slots[slot, _KEY] = key
            slots[slot, _CODE] = np.uint64(keys) | is_long
            for offset in range(length):
                letters[used + offset] = data[place + offset]
            letters[used + length] = _NEW_LINE
            used += length + 1
            keys += 1
            ends[keys] = used
        codes[words] = slots[slot, _CODE] & ~_LONG
        words += 1
        in_line += 1
        place = end
    progress[PLACE], progress[WORDS], progress[LINES] = place, words, lines
    progress[IN_LINE], progress[KEYS], progress[LETTERS] = in_line, keys, used


def empty_slots(bits: int) -> Slots:
    """Return a hash table of 2^bits slots without a word; see ``number_words``."""
    return np.full((1 << bits, 2), _EMPTY, np.uint64)


@_kernel
def moved_slots(slots: Slots, bits: int) -> Slots:
    """Return the same words in a hash table of 2^bits slots; see ``number_words``."""
    moved = np.full((1 << bits, 2), _EMPTY, np.uint64)
    mask = len(moved) - 1
    shift = hash_shift(len(moved))
    for old in range(len(slots)):
        if slots[old, _CODE] != _EMPTY:
            slot = first_slot(slots[old, _KEY], shift)
            while moved[slot, _CODE] != _EMPTY:
                slot = (slot + 1) & mask
            moved[slot, _KEY], moved[slot, _CODE] = slots[old, _KEY], slots[old, _CODE]
    return moved


@_kernel
def keep_classes(
    codes: Codes, lengths: Numbers, class_of: Numbers, least: int
) -> tuple[Numbers, Numbers]:
    """Return the classes of the codes, without those of −1 and then without short sequences.

    Sequence i becomes (class_of[c] for c in it if class_of[c] ≥ 0), and is left out if fewer than
    ``least`` are left of it. With the values comes how many are left of each sequence [N], −1 if it
    is left out.

    >>> codes, lengths = np.array([0, 1, 1, 2], np.int32), np.array([3, 1])
    >>> values, kept = keep_classes(codes, lengths, np.array([-1, 0, 1]), 2)
    >>> values.tolist(), kept.tolist()
    ([0, 0], [2, -1])
    """
    values = np.empty(len(codes), np.int64)
    kept = np.empty(len(lengths), np.int64)
    read, written = 0, 0
    for row in range(len(lengths)):
        start = written
        for place in range(read, read + lengths[row]):
            found = class_of[codes[place]]
            if found >= 0:
                values[written] = found
                written += 1
        read += lengths[row]
        kept[row] = written - start
        if kept[row] < least:
            written = start
            kept[row] = -1
    return values[:written], kept


@Intrinsic
def _eight_bytes(typing_context: Any, data: Any, place: Any) -> Any:
    """Return data[place : place + 8] as one number, the first byte the highest."""
    # Here and not above: they load Numba.
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        number = ir.IntType(64)
        address = builder.gep(array.data, [arguments[1]])
        eight = builder.load(builder.bitcast(address, number.as_pointer()), align=1)
        return builder.bswap(eight) if sys.byteorder == "little" else eight

    return types.uint64(data, types.int64), generate


@Intrinsic
def _leading_zeros(typing_context: Any, number: Any) -> Any:
    """Return how many bits are 0 before the first that is 1, of 64."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@_part
def _is_blank(byte: int) -> bool:
    return byte <= _BLANK and (byte == _BLANK or _TAB <= byte <= _RETURN)


@_part
def _is_word(
    data: Bytes, start: int, length: int, letters: Bytes, ends: Numbers, code: np.int64
) -> bool:
    """Whether these bytes are word ``code``; equal hashes alone would not prove it."""
    own = ends[code]
    if ends[code + 1] - own - 1 != length:
        return False
    place = 0
    while place < length and letters[own + place] == data[start + place]:
        place += 1
    return place == length
