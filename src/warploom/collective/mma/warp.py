"""A warp's part of the product by mma.sync: ldmatrix loads double-buffered fragments from swizzled tiles.

While the tensor core works on the fragments of one step of 16 in k, ldmatrix loads those of the next: `load(1, ...)`,
`multiply(0)`, `load(0, ...)`, `multiply(1)`.
"""

from __future__ import annotations

from ...isa.dtypes import b32, f32, u32
from ...isa.swizzle import CHUNK_BYTES
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.operand_tile import OperandTile, TileSlice
from ...lang.trace import Trace
from ...lang.values import Register
from ..pipeline.swizzling import swizzled

BLOCK_M, BLOCK_N, BLOCK_K = 16, 8, 16
"""The instruction shape: m16n8k16 for 16-bit operands."""
_PAIR = 16
"""Rows that one ldmatrix.x4 reads, 16 deep: one block of A, two of B."""
_STEP_BYTES = BLOCK_K * 2
_LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"


class WarpMma:
    """rows x columns of C in one warp's registers.

    Args:
        a, b: the operand tiles, K-major, one panel wide.
        row, column: the warp's first row in the tiles of A and of B; multiples of 16.
        rows, columns: its extent, multiples of 16.

    Attributes:
        acc: acc[i][j] are the 4 accumulators of block (i, j), 16 x 8, initially zero.
        steps: steps of 16 in k per tile.
    """

    def __init__(
        self, a: OperandTile, b: OperandTile, row: Register, column: Register, rows: int, columns: int
    ) -> None:
        self.dtype, self.swizzle = a.dtype, a.layout.swizzle
        self.span = self.swizzle.span
        self.steps = a.layout.k // BLOCK_K
        self.acc = [[reg.array(f32, 4, init=0.0) for _ in range(columns // BLOCK_N)] for _ in range(rows // BLOCK_M)]
        lane = ptx.special.tid.x() & 31
        # Lanes 0-15 point at the 16 rows of a block of A, at its first 8 of k; lanes 16-31 at the other 8. The rows of
        # B are columns of the product: two groups of 8 rows by two halves of k.
        self._a = self._place(row + (lane & 15), lane >> 4)
        self._b = self._place(column + ((lane >> 4) << 3) + (lane & 7), (lane >> 3) & 1)
        self._fragments = [(self._block(rows), self._block(columns)) for _ in range(2)]

    def _place(self, row: Register, half: Register) -> Register:
        return swizzled(row * self.span + half * CHUNK_BYTES, self.swizzle)

    @staticmethod
    def _block(extent: int) -> list[RegisterArray]:
        return [reg.array(b32, 4) for _ in range(extent // _PAIR)]

    def load(self, which: int, a: TileSlice, b: TileSlice, step: int) -> None:
        """Load the fragments of a step of the tiles into set 0 or 1. The step is applied to the swizzled offset by
        XOR."""
        for offset, tile, blocks in zip((self._a, self._b), (a, b), self._fragments[which], strict=True):
            source = tile + (offset ^ (step * _STEP_BYTES) if step else offset)
            for i, block in enumerate(blocks):
                ptx.inst(_LDMATRIX, block, source + i * _PAIR * self.span)

    def multiply(self, which: int) -> None:
        """acc += A @ Bᵀ of the fragments in set 0 or 1."""
        left, right = self._fragments[which]
        for i, line in enumerate(self.acc):
            for j, block in enumerate(line):
                half = j % 2 * 2
                ptx.mma_sync(
                    shape=(BLOCK_M, BLOCK_N, BLOCK_K), dtype_d=f32, dtype_a=self.dtype, dtype_b=self.dtype,
                    d=block, a=left[i], b=right[j // 2][half : half + 2],
                )  # fmt: skip


def warp_place(tile: tuple[int, int], warps: tuple[int, int]) -> tuple[Register, Register, int, int]:
    """The first row and column of this warp's part of a CTA's tile, and its extent; warps form a grid over the tile."""
    rows, columns = tile[0] // warps[0], tile[1] // warps[1]
    if rows % _PAIR or columns % _PAIR or (rows * warps[0], columns * warps[1]) != tuple(tile) or not rows * columns:
        raise Trace.current().error(
            f"{warps[0]} x {warps[1]} warps do not divide a tile of {tile[0]} x {tile[1]}",
            expected=f"a part per warp in multiples of {_PAIR} x {_PAIR}",
            got=f"{tile[0] / warps[0]:g} x {tile[1] / warps[1]:g}",
        )
    warp = reg.scalar(u32)
    ptx.inst.shfl.sync.idx.b32(warp, ptx.special.tid.x() >> 5, 0, 31, -1)
    return warp // warps[1] * rows, warp % warps[1] * columns, rows, columns
