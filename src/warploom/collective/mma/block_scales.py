"""Scales for blocks of k: a thread's factors, loaded ahead, and the promotion of a block's sums to f32 registers."""

from __future__ import annotations

from ...isa.dtypes import f32, u64
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..tile.sizes import WARPGROUP_ROWS
from .fragment import HALF_ROWS, first_row, thread_of_warpgroup

SCALE_BLOCK = 128
"""Elements of k, and columns of B, that share a scale."""


class BlockScales:
    """The scales of one thread's rows and of its tile's columns, read from global memory two blocks of k ahead.

    Args:
        majors: the contiguous dimension of ScaleA and of ScaleB: "K" or "MN".
        row, column: coordinates in D of the consumer's first row and the tile's first column.
        blocks: blocks of 64 rows; a thread has two rows of each, 16 w + l / 4 and 8 further (PTX ISA 9.7.15.5.1.1).
        num_blocks: blocks of k.

    Attributes:
        now: the product of both scales in the current block of k, for each of the thread's rows. Rows beyond A have no
            scale; their results are not stored.
    """

    def __init__(
        self, ScaleA: ArrayHandle, ScaleB: ArrayHandle, majors: tuple[str, str], row: Register, column: Register,
        blocks: int, num_blocks: Register,
    ) -> None:  # fmt: skip
        self._num_blocks = num_blocks
        rows = ScaleA.shape[majors[0] != "K"]
        _, first = first_row(thread_of_warpgroup(), row)
        offsets = [block * WARPGROUP_ROWS + lower for block in range(blocks) for lower in (0, HALF_ROWS)]
        self._inside = [first + offset < rows for offset in offsets]
        to_next = reg.scalar(u64, init=f32.bytes)
        if majors[0] == "K":  # every row has its own address
            addresses = [ScaleA.pointer() + (first + offset).to(u64) * num_blocks * f32.bytes for offset in offsets]
            self._addresses, self._moving, self._step = [(address, 0) for address in addresses], addresses, to_next
        else:
            address = ScaleA.pointer() + first.to(u64) * f32.bytes
            self._addresses = [(address, offset * f32.bytes) for offset in offsets]
            self._moving, self._step = [address], rows.to(u64) * f32.bytes
        block_of_columns = (column // SCALE_BLOCK).to(u64)
        if majors[1] == "K":
            self._column, self._column_step = ScaleB.pointer() + block_of_columns * num_blocks * f32.bytes, to_next
        else:
            self._column = ScaleB.pointer() + block_of_columns * f32.bytes
            self._column_step = ScaleB.shape[1].to(u64) * f32.bytes
        self._of_rows = [reg.scalar(f32, init=0.0) for _ in offsets]
        self._of_column = reg.scalar(f32, init=0.0)
        self._read()
        self.now = self._products()
        self._read_next(num_blocks > 1)

    def following(self, k_tile: Register) -> list[Register]:
        """The products for the block after `k_tile`, whose scales have been loaded; starts loading the next ones."""
        found = self._products()
        self._read_next(k_tile + 2 < self._num_blocks)
        return found

    def advance(self, following: list[Register]) -> None:
        """Step to the next block of k."""
        for now, new in zip(self.now, following, strict=True):
            now.set(new)

    def _products(self) -> list[Register]:
        return [value * self._of_column for value in self._of_rows]

    def _read_next(self, more: Predicate) -> None:
        """Load the scales of the next block; the same scales again if there is none.

        `+=` changes a register in place, so the addresses derived from it move too.
        """
        for address in self._moving:
            address += ptx.select(more, self._step, 0)
        self._column += ptx.select(more, self._column_step, 0)
        self._read()

    def _read(self) -> None:
        for value, (address, offset), inside in zip(self._of_rows, self._addresses, self._inside, strict=True):
            ptx.inst.ld.global_.nc.f32(value, ptx.addr(address, offset), pred=inside)
        ptx.inst.ld.global_.nc.f32(self._of_column, ptx.addr(self._column))


def promote(block: RegisterArray, temporary: RegisterArray, factors: list[Register]) -> None:
    """block += temporary * the factor of its row. The first two of each four registers are of one row, the others of
    the row 8 further."""
    for index, (total, part) in enumerate(zip(block, temporary, strict=True)):
        ptx.inst.fma.rn.f32(total, part, factors[index // 2 % 2], total)
