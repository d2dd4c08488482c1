"""A thread's fragment of the result of a warp's or a warpgroup's MMA, and operations on it in registers.

Both instructions distribute a result over lanes in the same way, in atoms of 8 columns. A thread has `ACC_REGS`
registers of each atom: columns 2(l % 4) and the next of row l / 4, then the same columns of the row 8 further. Here l
is its lane, and warp w of a warpgroup has rows 16w to 16w + 15 (`isa.fragments`; PTX ISA 9.7.14.5.8, 9.7.15.5.1.1).

    register 4g + 2h + j     row 16w + l / 4 + 8h     column 8g + 2(l % 4) + j

The four lanes that share a row are a quad: a row's maximum or sum takes two shuffles within it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...isa.dtypes import DType, b16, b32, bf16, e4m3, f16, f32, s32
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.values import Register
from ..tile.roles import WARP, WARPGROUP
from ..tile.sizes import ACC_ATOM_N

ACC_REGS = 4
"""Registers per thread for one atom of `ACC_ATOM_N` columns."""
HALF_ROWS = 8
"""Distance from a thread's first row of an atom to its second."""
QUAD = (1, 2)
"""Lane distances (xor) across the lanes that share a row."""

Combine: TypeAlias = Callable[[Register, Register], Register]


def thread_of_warpgroup() -> Register:
    """Index of this thread in its warpgroup."""
    return ptx.special.tid.x() & (WARPGROUP - 1)


def half_of(index: int) -> int:
    """Which of a thread's two rows an accumulator is of: 0, or 1 for the one HALF_ROWS below."""
    return index // 2 % 2


def first_row(thread: Register, row: Register | int, lane: Register | None = None) -> tuple[Register, Register]:
    """The first rows of a warp and of a thread in the block at `row`; `thread` is its index in the warpgroup."""
    warp_row = row + ((thread >> 5) << 4)
    lane = thread & (WARP - 1) if lane is None else lane
    return warp_row, warp_row + (lane >> 2)


def first_column(lane: Register, column: Register | int) -> Register:
    """A lane's first column in the block at `column`."""
    return column + ((lane & 3) << 1)


def across_quad(combine: Combine, value: Register) -> Register:
    """A value combined over the four lanes that share a row; all four receive the result."""
    for distance in QUAD:
        value = combine(value, ptx.warp.shuffle_xor(value, distance))
    return value


class Fragment:
    """The 64 x n accumulators of a warpgroup, with their coordinates in the whole result.

    Args:
        registers: a thread's n / 2 accumulators, f32.
        row, column: coordinates of the block.
    """

    def __init__(self, registers: RegisterArray, row: Register | int = 0, column: Register | int = 0) -> None:
        self.registers = registers
        thread = thread_of_warpgroup()
        _, first = first_row(thread, row)
        self._column = first_column(thread, column)
        self._rows = (first, first + HALF_ROWS)

    @property
    def rows(self) -> tuple[Register, Register]:
        """The thread's two rows."""
        return self._rows

    def row_of(self, index: int) -> Register:
        """The row of register `index`."""
        return self._rows[half_of(index)]

    def column_of(self, index: int) -> Register:
        """The column of register `index`."""
        step = index // ACC_REGS * ACC_ATOM_N + index % 2
        return self._column + step if step else self._column

    def mask(self, keep: Callable[[Register, Register], Predicate], value: float = float("-inf")) -> None:
        """Overwrite every element for which keep(row, column) is false with `value`."""
        for index, register in enumerate(self.registers):
            register.set(ptx.select(keep(self.row_of(index), self.column_of(index)), register, value))

    def keep_columns(self, stop: Sequence[Register], start: Sequence[Register] | None = None) -> None:
        """Set elements outside start <= column < stop to minus infinity; bounds are for the thread's two rows, s32.

        Like `mask`, with one comparison per element and bound.
        """
        inside = self.inside_columns(stop, start)
        for index, register in enumerate(self.registers):
            register.set(ptx.select(inside(index), register, float("-inf")))

    def inside_columns(
        self, stop: Sequence[Register], start: Sequence[Register] | None = None
    ) -> Callable[[int], Predicate]:  # fmt: skip
        """Whether a register's element is one of those that `keep_columns` keeps, by the register's index."""
        own = self._column.view(s32)
        after = [bound - own for bound in stop]
        before = None if start is None else [bound - own for bound in start]

        def inside(index: int) -> Predicate:
            half, step = half_of(index), index // ACC_REGS * ACC_ATOM_N + index % 2
            keep = after[half] > step
            return keep if before is None else keep & (before[half] <= step)

        return inside

    def row_max(self, start: Sequence[Register] | None = None) -> list[Register]:
        """The maximum of each of the thread's two rows, and of `start` if given; the same in all lanes of the quad."""
        return [across_quad(ptx.math.max, part) for part in self._own(ptx.math.max, start)]

    def row_sum(self, *, quad: bool = True) -> list[Register]:
        """The sum of each of the thread's two rows, in f32; with quad=False, of this thread's columns only.

        A running sum over many blocks adds the threads' partial sums and needs `across_quad` once, at its end.
        """
        own = self._own(ptx.math.add, None)
        return [across_quad(ptx.math.add, part) for part in own] if quad else own

    def _own(self, combine: Combine, start: Sequence[Register] | None) -> list[Register]:
        """This thread's columns of its two rows, combined; odd and even ones separately, for shorter dependency
        chains."""
        found = []
        for half in range(2):
            values = [register for index, register in enumerate(self.registers) if half_of(index) == half]
            parts = [values[0] if start is None else combine(start[half], values[0]), values[1]]
            for index, value in enumerate(values[2:]):
                parts[index % 2] = combine(parts[index % 2], value)
            found.append(combine(*parts))
        return found

    def scale_rows(self, factors: Sequence[Register]) -> None:
        """Multiply each of the thread's two rows by its factor."""
        for index, register in enumerate(self.registers):
            register.set(register * factors[half_of(index)])

    def as_a(self, dtype: DType) -> list[RegisterArray]:
        """The block as the A operand of MMAs with k = n: four registers per 32 bytes of k, rounded to `dtype`.

        See `a_elements`. Raises TraceError for types other than f16, bf16 and e4m3.
        """
        count = len(self.registers) * dtype.bytes // 4
        if dtype not in (bf16, f16, e4m3) or count % ACC_REGS:
            raise self.registers.trace.error(
                "accumulators become an A operand of 16-bit or e4m3 elements, 32 bytes at a time",
                expected="bf16 or f16, and a multiple of 16 columns; e4m3, and a multiple of 32",
                got=f"{dtype}, {len(self.registers) * 2} columns",
            )
        words = [pack([self.registers[at] for at in a_elements(word, dtype)], dtype) for word in range(count)]
        return [RegisterArray(words[index : index + ACC_REGS]) for index in range(0, count, ACC_REGS)]


def a_elements(word: int, dtype: DType) -> list[int]:
    """The accumulators packed into register `word` of an A operand: elements of the thread's row word % 2, low bits
    first.

    A 16-bit fragment has the rows of the accumulators and the columns of two atoms (PTX ISA 9.7.15.5.1.1), so no lane
    needs another lane's elements. An 8-bit fragment has four adjacent columns where the accumulators have pairs from
    two atoms. k then counts columns in another order: 2i, 2i + 1, 8 + 2i, 9 + 2i of each 16 for 4i to 4i + 3. B must
    use the same order.
    """
    if dtype.bits == 16:
        return [2 * word, 2 * word + 1]
    step, inside = divmod(word, ACC_REGS)
    atom, half = 4 * step + 2 * (inside // 2), inside % 2
    return [ACC_REGS * (atom + of) + 2 * half + at for of in range(2) for at in range(2)]


# -- conversions -------------------------------------------------------------------------------------------------------


def pack(pair: Sequence[Register] | RegisterArray, dtype: DType, into: Register | None = None) -> Register:
    """f32 values as one register of two 16-bit floats or four e4m3, in memory order (cvt.rn): a new one, or `into`."""
    result = reg.scalar(b32) if into is None else into
    if dtype is e4m3:
        halves = [reg.scalar(b16) for _ in range(2)]
        for number, half in enumerate(halves):
            ptx.inst("cvt.rn.satfinite.e4m3x2.f32", half, pair[2 * number + 1], pair[2 * number])
        ptx.inst.mov.b32(result, halves)
        return result
    ptx.inst(f"cvt.rn.{dtype}x2.f32", result, pair[1], pair[0])
    return result


def unpack(word: Register, dtype: DType) -> tuple[Register, Register]:
    """The two 16-bit floats of a register as f32: the inverse of `pack`."""
    if dtype is bf16:
        return (word << 16).view(f32), (word & 0xFFFF0000).view(f32)
    low, high = reg.scalar(f16), reg.scalar(f16)
    ptx.inst.mov.b32([low, high], word)
    return low.to(f32), high.to(f32)


def load_as_f32(dtype: DType, address: Register, index: int, inside: Predicate) -> Register:
    """Element `index` after an address in global memory, as f32; 0 if `inside` is false.

    The register is zeroed first: one that is only written under a guard would stay live through the main loop.
    """
    value = reg.scalar(dtype, init=0.0)
    kind = dtype.name if dtype is f32 else f"b{dtype.bits}"
    ptx.inst(f"ld.global.{kind}", value, ptx.addr(address, index * dtype.bytes), pred=inside)
    return value.to(f32)
