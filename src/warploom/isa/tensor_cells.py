"""The elements that the cells of tensor memory hold. PTX ISA 9.7.16.2.3, 9.7.16.9.2, 9.7.16.10.5, 9.7.16.10.7.

A `Block` is a rectangle of a matrix that a rectangle of cells holds, element by element. The names of the layouts, A to
G, are the ISA's "data paths". Sources: CUTLASS's traits, and kernels of Triton and others that run correctly on a B200;
C, E, G and the lanes of 4x256b rely on one source each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .tensor_memory import LANES, QUARTER, data_path


@dataclass(frozen=True, eq=False)
class Block:
    """Elements `rows` x `columns` of a matrix, in CTA `who` (0 or 1 of the pair) at `lanes` x `cells`.

    `lanes` and `cells` count from the operand's address; `lanes` may be an explicit list.
    """

    who: int
    lanes: slice | np.ndarray
    cells: slice
    rows: slice
    columns: slice


_HALF_QUARTERS = np.arange(64) % 16 + QUARTER * (np.arange(64) // 16)
"""Lanes of 64 rows if each quarter holds 16 of them (layouts C and F)."""


@lru_cache(maxsize=256)
def accumulator(m: int, n: int, group: int, sparse: bool = False, stationary: bool = False) -> tuple[Block, ...]:
    """The blocks of D, M x N, by the layout of `tensor_memory.data_path`, CTA by CTA."""
    path = data_path(m, group, sparse=sparse, ws=stationary)
    width, rows = path.columns(n), path.rows
    return tuple(
        Block(
            who,
            _HALF_QUARTERS if path.spread else slice(rows * part, rows * part + rows),
            slice(0, width),
            slice(rows * who, rows * who + rows),
            slice(width * part, width * part + width),
        )
        for who in range(path.group)
        for part in range(path.parts)
    )


@lru_cache(maxsize=64)
def matrix_a(m: int, group: int) -> tuple[Block, ...]:
    """The blocks of A in tensor memory: 8 columns, 32 bytes of each row. In a pair with M 128, each CTA has its rows
    twice; this is the first copy, the second is 64 lanes further."""
    if group == 2:
        rows = m // 2
        return tuple(
            Block(who, slice(0, rows), slice(0, 8), slice(rows * who, rows * who + rows), slice(0, 8)) for who in (0, 1)
        )
    lanes = _HALF_QUARTERS if m == 64 else slice(0, m)
    return (Block(0, lanes, slice(0, 8), slice(0, m), slice(0, 8)),)


# -- sparse A ------------------------------------------------------------------------------------------------------


def metadata_cells(kind: str) -> int:
    """Columns that the metadata of one MMA takes."""
    return 1 if kind in ("f16", "tf32") else 2


def metadata_lanes(m: int, group: int, stationary: bool = False) -> tuple[int, slice | np.ndarray]:
    """Rows of a CTA, and the lanes that hold their metadata: those of the accumulator's rows.

    `.ws` with fewer than 128 rows needs copies in all lanes. Source: CUTLASS's tmem_e_frg, for 128 rows per CTA and for
    `.ws`; that 64 rows follow their accumulator otherwise is an assumption.
    """
    rows = m // group
    spread = rows == 64 and not stationary
    return rows, _HALF_QUARTERS if spread else slice(0, LANES)


@lru_cache(maxsize=32)
def metadata_bits(kind: str, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lane (among `metadata_lanes`), column and lowest bit of each group's four bits: three (rows, groups).

    A group has four consecutive elements along k; eight for 4-bit kinds, two for tf32. With elements of at most 8 bits,
    each row has its own lane; with wider ones, rows r and r + 8 share two lanes, each for one half of k.
    """
    row = np.arange(rows)[:, None]
    if metadata_cells(kind) == 2:
        group = np.arange(16)[None, :]
        return row + 0 * group, group // 8 + 0 * row, (4 * (group % 8) + 0 * row).astype(np.uint32)
    group = np.arange(8)[None, :]
    lanes = row // 16 * 16 + row % 8 + 8 * (group // 4)
    return lanes, 0 * lanes, (16 * (row // 8 % 2) + 4 * (group % 4)).astype(np.uint32)


ATOM_ROWS, ATOM_FACTORS = 128, 4
"""Rows, and blocks of k, whose scale factors form one atom of 512 bytes in shared and global memory."""


def factor_cells(rows: int, words: int = 1) -> int:
    """Columns that hold the scale factors of `rows` rows: 32 rows per column.

    words: cells per row; those of k = 96 take two. The second ones are in the next atoms of `factor_pitch` columns.
    """
    return -(-rows // QUARTER) + (words - 1) * factor_pitch(rows)


def factor_pitch(rows: int) -> int:
    """Columns from one block of four factors of a row to the next: whole atoms. PTX ISA 9.7.16.10.7.3.5 has one
    layout for up to 128 rows and one for more."""
    return -(-rows // ATOM_ROWS) * (ATOM_ROWS // QUARTER)


def factor_bytes() -> np.ndarray:
    """Byte of factor f of row m in such an atom: (128, 4) int64. PTX ISA 9.7.16.10.7; CUTLASS's SfAtom.

    `tcgen05.cp.32x128b.warpx4` copies it to lane m % 32 of every quarter, column m / 32, byte f.
    """
    row, factor = np.arange(ATOM_ROWS)[:, None], np.arange(ATOM_FACTORS)[None, :]
    return 16 * (row % QUARTER) + 4 * (row // QUARTER) + factor


def factor_place(row: int, factor: int) -> tuple[int, int, int]:
    """(lane of each quarter, column, byte of the cell) of a row's factor among four blocks of k."""
    return row % QUARTER, row // QUARTER + factor // ATOM_FACTORS * (ATOM_ROWS // QUARTER), factor % ATOM_FACTORS


# -- registers and cells -----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def fragment(shape: str, count: int, split: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Lane (relative to the address) and column of register r of thread t: two (count, 32) arrays."""
    r, t = np.arange(count)[:, None], np.arange(QUARTER)[None, :]
    if shape == "32x32b":
        return np.broadcast_arrays(t, r)[0] + 0 * r, r + 0 * t
    if shape == "16x64b":
        return 8 * (t % 2) + t // 4 + 0 * r, t // 2 % 2 + 2 * r
    if shape == "16x128b":
        return t // 4 + 8 * (r % 2), t % 4 + 4 * (r // 2)
    if shape == "16x256b":
        return t // 4 + 8 * (r % 4 // 2), 2 * (t % 4) + r % 2 + 8 * (r // 4)
    return t % 16 + 0 * r, r + split * (t // 16)  # 16x32bx2


# -- tcgen05.cp ----------------------------------------------------------------------------------------------------

COPIES = {"128x256b": (128, 32), "4x256b": (4, 32), "128x128b": (128, 16), "64x128b": (64, 16), "32x128b": (32, 16)}
"""Rows of each shape, and bytes per row."""


@lru_cache(maxsize=16)
def copied(shape: str, multicast: str | None) -> tuple[tuple[slice | np.ndarray, slice], ...]:
    """Destinations of the rows: for each copy of them, the lanes (relative to the address) and the rows."""
    if shape == "4x256b":
        return ((QUARTER * np.arange(4), slice(0, 4)),)
    if shape == "32x128b":
        return tuple((slice(QUARTER * at, QUARTER * at + QUARTER), slice(0, QUARTER)) for at in range(4))
    if multicast == "warpx2::02_13":
        return ((slice(0, 64), slice(0, 64)), (slice(64, 128), slice(0, 64)))
    if multicast == "warpx2::01_23":
        first, second = slice(0, 32), slice(32, 64)
        return tuple(
            (slice(QUARTER * at, QUARTER * at + QUARTER), (first, first, second, second)[at]) for at in range(4)
        )
    return ((slice(0, 128), slice(0, 128)),)
