"""Owner maps of the tensor-core instructions: the thread and register that hold each element of a matrix.

A `Fragment` gives, for each thread and each element in the order of its registers (low bits first), the element's row
and column. Every map here follows one pattern: four consecutive threads share a row (A, C, D) or a column (B), each
with the elements that fit one 32-bit register. Further registers step by 8 rows or by 4 registers' worth of columns.
PTX ISA 9.7.14.5.1 to .13 (mma.sync), .15 to .17 (ldmatrix), 9.7.15.5.1 (warpgroup). Confirmed on an H200 by the zero
mismatches of tests/golden.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

WARP = 32


@dataclass(frozen=True, eq=False)
class Fragment:
    """The owner map of one operand.

    Attributes:
        shape: (rows, columns) of the matrix. B is treated as n x k: its row is n, its column is k.
        bits: bits of one element.
        rows, columns: (threads, elements) int64: coordinates of element `i` of a thread's registers.
    """

    shape: tuple[int, int]
    bits: int
    rows: np.ndarray
    columns: np.ndarray

    @cached_property
    def threads(self) -> int:
        """32 for a warp's fragment, 128 for a warpgroup's."""
        return int(self.rows.shape[0])

    @property
    def elements(self) -> int:
        """Elements each thread holds."""
        return int(self.rows.shape[1])

    @cached_property
    def per_register(self) -> int:
        """Elements in one register (of 32 bits; 64 for f64)."""
        return max(32 // self.bits, 1)

    @cached_property
    def registers(self) -> int:
        """Registers each thread holds."""
        return self.elements // self.per_register

    @cached_property
    def flat(self) -> np.ndarray:
        """(threads, elements) int64: row * columns + column."""
        return self.rows * self.shape[1] + self.columns

    @cached_property
    def owner(self) -> np.ndarray:
        """The inverse, (rows, columns) int64: (register * threads + thread) * per_register + index in the register.

        It indexes an array of shape (registers, threads, per_register), the register file's own order.
        """
        threads = np.arange(self.threads)[:, None]
        element = np.arange(self.elements)[None, :]
        place = (
            element // self.per_register * self.threads + threads
        ) * self.per_register + element % self.per_register
        inverse = np.full(self.shape[0] * self.shape[1], -1, np.int64)
        inverse[self.flat.ravel()] = place.ravel()
        return inverse.reshape(self.shape)

    @cached_property
    def order(self) -> np.ndarray:
        """(registers, threads, per_register) int64: the flat matrix index of each slot of the register file."""
        shape = (self.threads, self.registers, self.per_register)
        return np.ascontiguousarray(self.flat.reshape(shape).transpose(1, 0, 2))


def _fragment(shape: tuple[int, int], bits: int, rows: np.ndarray, columns: np.ndarray) -> Fragment:
    rows, columns = (np.ascontiguousarray(part, dtype=np.int64) for part in np.broadcast_arrays(rows, columns))
    return Fragment(shape, bits, rows, columns)


def _lanes(threads: int = WARP) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(warp, group, index in the group) of each thread, as columns."""
    thread = np.arange(threads)[:, None]
    return thread // WARP, thread % WARP // 4, thread % 4


# -- mma.sync ----------------------------------------------------------------------------------------------------


@cache
def mma_a(m: int, k: int, bits: int) -> Fragment:
    """A of mma.sync, m x k with m 8 or 16 and elements of `bits` bits: registers alternate between row groups."""
    _, group, place = _lanes()
    per_register = max(32 // bits, 1)
    element = np.arange(m * k // WARP)[None, :]
    register, inside = element // per_register, element % per_register
    halves = m // 8
    rows = group + 8 * (register % halves)
    columns = 4 * per_register * (register // halves) + per_register * place + inside
    return _fragment((m, k), bits, rows, columns)


@cache
def mma_b(k: int, bits: int) -> Fragment:
    """B of mma.sync as n x k with n = 8."""
    return mma_a(8, k, bits)


@cache
def mma_c(m: int, bits: int = 32) -> Fragment:
    """C and D of mma.sync, m x 8, of 16, 32 or 64 bits: two adjacent columns in each of m/8 row groups."""
    _, group, place = _lanes()
    element = np.arange(m * 8 // WARP)[None, :]
    return _fragment((m, 8), bits, group + 8 * (element // 2), 2 * place + element % 2)


@cache
def volta_a(layout: str) -> Fragment:
    """A of mma.sync.m8n8k4 with f16: four stacked 8 x 4 matrices (32 x 4), `layout` "row" or "col"."""
    lane = np.arange(WARP)[:, None]
    element = np.arange(4)[None, :]
    matrix, high = lane % 16 // 4, lane // 16
    row, column = (lane % 4, element) if layout == "row" else (element, lane % 4)
    return _fragment((32, 4), 16, 8 * matrix + 4 * high + row, column)


@cache
def volta_b(layout: str) -> Fragment:
    """B of mma.sync.m8n8k4 with f16, as n x k: four stacked 8 x 4 matrices (32 x 4)."""
    return volta_a("col" if layout == "row" else "row")


@cache
def volta_c(bits: int) -> Fragment:
    """C and D of mma.sync.m8n8k4 with f16: four stacked 8 x 8 matrices (32 x 8), of 16 or 32 bits."""
    lane = np.arange(WARP)[:, None]
    element = np.arange(8)[None, :]
    first = 8 * (lane % 16 // 4) + 4 * (lane // 16)
    if bits == 16:
        return _fragment((32, 8), 16, first + lane % 4, element)
    return _fragment((32, 8), 32, first + (lane & 1) + (element & 2), (element & 4) + (lane & 2) + (element & 1))


# -- ldmatrix, stmatrix, movmatrix ---------------------------------------------------------------------------------


@cache
def matrix_b16(transposed: bool = False) -> Fragment:
    """One 8 x 8 matrix of 16-bit elements as ldmatrix and stmatrix hold it, one register per thread."""
    _, group, place = _lanes()
    inside = np.arange(2)[None, :]
    row, column = group, 2 * place + inside
    return _fragment((8, 8), 16, column if transposed else row, row if transposed else column)


@cache
def matrix_b8() -> Fragment:
    """One 8 x 16 matrix of 8-bit elements as ldmatrix.m8n16 returns it, one register per thread."""
    _, group, place = _lanes()
    return _fragment((8, 16), 8, group, 4 * place + np.arange(4)[None, :])


@cache
def matrix_b8_transposed() -> Fragment:
    """One 16 x 16 matrix of 8-bit elements as ldmatrix.m16n16.trans returns it, two registers per thread."""
    _, group, place = _lanes()
    element = np.arange(8)[None, :]
    return _fragment((16, 16), 8, 4 * place + element % 4, group + 8 * (element // 4))


@cache
def matrix_b8_stored() -> Fragment:
    """One 16 x 8 matrix of 8-bit elements as stmatrix.m16n8 takes it, one register per thread."""
    _, group, place = _lanes()
    element = np.arange(4)[None, :]
    return _fragment((16, 8), 8, group + 8 * (element // 2), 2 * place + element % 2)


# -- warpgroup ---------------------------------------------------------------------------------------------------------


@cache
def warpgroup_d(n: int, bits: int = 32) -> Fragment:
    """The accumulator of a warpgroup MMA, 64 x n, of 32 or 16 bits, over the 128 threads of a warpgroup."""
    warp, group, place = _lanes(4 * WARP)
    element = np.arange(n // 2)[None, :]
    rows = 16 * warp + group + 8 * (element // 2 % 2)
    return _fragment((64, n), bits, rows, 8 * (element // 4) + 2 * place + element % 2)


@cache
def warpgroup_a(bits: int) -> Fragment:
    """A of a warpgroup MMA in registers, 64 x (256 / bits): each warp holds 16 rows in mma.sync's A layout."""
    warp_part = mma_a(16, 256 // bits, bits)
    rows = np.concatenate([warp_part.rows + 16 * warp for warp in range(4)])
    return _fragment((64, 256 // bits), bits, rows, np.concatenate([warp_part.columns] * 4))


@cache
def warpgroup_metadata(bits: int, selector: int) -> tuple[np.ndarray, np.ndarray]:
    """Location of the four bits of each group along k of a sparse A: thread and shift, each (64, groups).

    For 8-bit elements, a register of each of four threads holds 32 of k. For wider ones, the two threads that
    `selector` names hold half of k each, for rows 8 apart. PTX ISA 9.7.15.6.1.
    """
    groups = 16 if bits == 8 else 8
    row, group = np.arange(64)[:, None], np.arange(groups)[None, :]
    quad, lower = 32 * (row // 16) + 4 * (row % 8), row % 16 // 8
    if bits == 8:
        return quad + 2 * (group // 8) + lower, 4 * (group % 8) + 0 * row
    return quad + 2 * selector + group // 4, 4 * (group % 4) + 16 * lower


@cache
def mma_metadata(k: int, bits: int, selector: int) -> tuple[np.ndarray, np.ndarray]:
    """Location of the four bits of each group along k of mma.sp's A: thread and shift, each (16, groups).

    A group has four elements; eight for 4-bit types, two for tf32. A register holds 32 bits: four groups of two rows 8
    apart, or for 8- and 4-bit types eight groups of one row. If not all of four adjacent threads provide metadata,
    `selector` chooses the threads. PTX ISA 9.7.14.6.1.
    """
    groups = k // {32: 2, 4: 8}.get(bits, 4)
    row, group = np.arange(16)[:, None], np.arange(groups)[None, :]
    quad, lower = 4 * (row % 8), row // 8
    if bits <= 8:
        return quad + 2 * (selector + group // 8) + lower, 4 * (group % 8) + 0 * row
    first = selector if groups == 4 else 2 * selector
    return quad + first + group // 4, 4 * (group % 4) + 16 * lower


# -- wmma --------------------------------------------------------------------------------------------------------


@cache
def wmma(shape: tuple[int, int], bits: int, registers: int) -> Fragment:
    """A fragment of wmma.load, whose owner map the hardware leaves undefined. Here, element i of the matrix, row by
    row, is in thread i mod 32. f16 factors have more slots than elements, so the matrix repeats.

    PTX ISA 9.7.14.4.1: a program may only combine fragments of one shape, element by element.
    """
    elements = registers * max(32 // bits, 1)
    flat = (np.arange(elements)[None, :] * WARP + np.arange(WARP)[:, None]) % (shape[0] * shape[1])
    return _fragment(shape, bits, flat // shape[1], flat % shape[1])
