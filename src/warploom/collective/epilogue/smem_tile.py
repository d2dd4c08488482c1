"""Boxes of a result in shared memory, and the writes of a warpgroup's accumulators into them.

A box is 64 rows of 128 bytes, swizzled: 64 columns of 16 bits, 32 of 32 or 128 of 8. If the width of a tile is not a
multiple of the box width, its last box is narrower. It has fewer columns of the same rows, so offsets are the same, and
its own tensor map, so that nothing outside the tile is written.

    bits  accumulators become                            a warp writes                              bank conflicts
    16    bf16x2 or f16x2, two columns of a row          16 rows x 16 columns with one stmatrix     none
    16    the same, `matrices=False`                     8 rows x 8 columns with one st.b32         none
    32    f32 or s32 as they are                         8 rows x 8 columns with one st.v2          two-way
    8     e4m3x2 or e5m2x2 in 16 bits                    8 rows x 8 columns with one st.b16         none
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...isa.dtypes import DType, b16, b32, bf16, e4m3, e5m2, f16, f16x2, f32, s32
from ...isa.swizzle import CHUNK_BYTES, Swizzle
from ...lang import ptx, reg
from ...lang.values import Register
from ..mma.fragment import HALF_ROWS, pack, unpack
from ..pipeline.swizzling import swizzled
from ..tile.sizes import ACC_ATOM_N
from .arguments import BOX_BYTES, BOX_SWIZZLE, box_columns

TYPES = (bf16, f16, f32, s32, e4m3, e5m2)
_HALF_BYTES = HALF_ROWS * BOX_BYTES


def boxes_of(columns: int, dtype: DType) -> list[tuple[int, int]]:
    """First column and width of each box of a tile's row."""
    width = box_columns(dtype)
    return [(first, min(width, columns - first)) for first in range(0, columns, width)]


class BoxWriter:
    """The writes of one type by a warpgroup. `step`: atoms of 8 columns that are best written together."""

    def __init__(self, dtype: DType, *, matrices: bool = True) -> None:
        self.dtype, self.matrices = dtype, matrices and dtype.bits == 16
        self.step = 2 if self.matrices else 1

    def offset(self, thread: Register) -> Register:
        """A thread's first offset in a box: with stmatrix, the row it addresses; otherwise its own two columns."""
        lane, warp_row = thread & 31, (thread >> 5) << 4
        if self.matrices:
            row, inside = warp_row + (lane & 15), (lane >> 4) * CHUNK_BYTES
        else:
            row, inside = warp_row + (lane >> 2), (lane & 3) * (2 * self.dtype.bytes)
        return swizzled((row << (BOX_BYTES.bit_length() - 1)) + inside, Swizzle(BOX_SWIZZLE))

    def write(self, start: Register, first: int, values: Sequence[Register]) -> None:
        """Write atoms of 8 columns, from atom `first` of the box, four registers each, f32 (s32 for s32).

        `start`: the box's address plus `offset`. An atom's bytes are applied to the swizzled offset by XOR.
        """
        words = [self._word(values[i], values[i + 1]) for i in range(0, len(values), 2)]
        if self.matrices:
            for i in range(0, len(words), 4):
                ptx.stmatrix(ptx.addr(self._moved(start, first * ACC_ATOM_N + 4 * i)), words[i : i + 4])
            return
        for i in range(0, len(words), 2):
            target, inside = self._atom(start, first + i // 2)
            ptx.store(ptx.addr(target, inside), words[i], space="shared")
            ptx.store(ptx.addr(target, inside + _HALF_BYTES), words[i + 1], space="shared")

    def read(self, start: Register, first: int, atoms: int) -> list[Any]:
        """Start reading atoms of 8 columns in the layout of `write`: two entries per atom, of two elements each.

        `unpacked` converts them to f32.
        """
        if self.matrices:
            words: list[Any] = []
            for atom in range(0, atoms, 2):
                count = 2 * min(2, atoms - atom)
                words += ptx.ldmatrix(ptx.addr(self._moved(start, (first + atom) * ACC_ATOM_N)), count)
            return words
        return [
            self._load(ptx.addr(target, inside + half))
            for target, inside in (self._atom(start, first + atom) for atom in range(atoms))
            for half in (0, _HALF_BYTES)
        ]

    def unpacked(self, word: Any) -> tuple[Register, Register]:
        """Two adjacent elements as f32."""
        if self.dtype is f32:
            return word[0], word[1]
        if self.dtype.bits == 16:
            return unpack(word, self.dtype)
        pair = reg.scalar(f16x2)
        ptx.inst(f"cvt.rn.f16x2.{self.dtype}x2", pair, word)
        return unpack(pair, f16)

    def _load(self, address: Any) -> Any:
        if self.dtype is f32:
            return ptx.load(f32, address, space="shared", vector=2)
        return ptx.load(b32 if self.dtype.bits == 16 else b16, address, space="shared")

    def _atom(self, start: Register, atom: int) -> tuple[Register, int]:
        """The address of a thread's two columns of an atom: a register, and an offset in bytes."""
        column = atom * ACC_ATOM_N
        inside = column * self.dtype.bytes % CHUNK_BYTES  # the swizzle moves chunks, never bytes inside a chunk
        return self._moved(start, column - inside // self.dtype.bytes), inside

    def _moved(self, start: Register, column: int) -> Register:
        return start ^ (column * self.dtype.bytes) if column else start

    def _word(self, left: Register, right: Register) -> Any:
        """Two adjacent columns as stored in memory."""
        if self.dtype is s32:
            return [left, right]
        left, right = left.to(f32), right.to(f32)
        if self.dtype is f32:
            return [left, right]
        if self.dtype.bits == 16:
            return pack([left, right], self.dtype)
        word = reg.scalar(b16)
        ptx.inst(f"cvt.rn.satfinite.{self.dtype}x2.f32", word, right, left)
        return word
