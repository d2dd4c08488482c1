"""C = A Bᵀ in f64 on tensor cores: mma.sync.m16n8k16, fed by cp.async and 16-byte loads.

Idea       Tensor cores also multiply f64, with IEEE 754 rounding. From sm_90 on, an instruction is as large as bf16's
           and takes many times as long, so feeding it is easy: two warps per quarter of the SM hide all latencies, and
           no fragment needs a second set of registers. Only the width of loads matters. There is no ldmatrix for f64,
           and lane p of four needs columns 4 j + p of A's 16 (j = 0 to 3): four loads of 8 bytes, 32 bytes apart. But
           the order of k in a sum is free, as long as A and B agree:

               the instruction's column  4 j + p     is column  4 p + j  of the tile

           so lane p loads columns 4 p to 4 p + 3, 32 contiguous bytes, with two loads of 16 bytes. Of eight lanes
           served together, four are in one row and four in the next; the swizzle puts them into different banks.
Roles      eight warps, 4 x 2, each 32 x 64 of the CTA's 128 x 128
Barriers   bar 0, once per k-tile: its copies have arrived, and the previous stage is free
Buffers    4 stages of A 128 x 16 and B 128 x 16 f64, 128 KiB; 64 accumulators per thread
Timeline   global -> shared     [t+1 to t+3 in flight                                             ]
           shared -> register   [A, B 0][B 1]    [B 2]    ...  [B 7]     overlapped with the other warp
           tensor core                  [2 blocks][2 blocks] ...  [2 blocks]
Limits     any M; N and K multiples of 2, because 16 bytes hold two f64
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from warploom.collective.pipeline.cp_async import CpAsyncPipeline
from warploom.collective.pipeline.operand_copy import OperandCopy
from warploom.collective.pipeline.swizzling import swizzled
from warploom.errors import ArgumentError
from warploom.isa.dtypes import f64, u32, u64
from warploom.isa.swizzle import CHUNK_BYTES, Swizzle
from warploom.kernels.fields import check_fields
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.lang.arrays import RegisterArray
from warploom.lang.operand_tile import TileSlice
from warploom.lang.tile import ArrayHandle
from warploom.lang.values import Register

BLOCK_M, BLOCK_N, BLOCK_K = 16, 8, 16
"""The instruction."""
TILE_K = BLOCK_K
"""Elements of a stage along k: 128 bytes, the span of the widest swizzle, and one instruction."""
HALF_ROWS = 8
LANES_OF_A_ROW = 4
PER_LANE = BLOCK_K // LANES_OF_A_ROW
"""Elements of a row that a lane holds: 32 bytes."""
PIECE = 2
"""Elements in 16 bytes."""


@dataclass(frozen=True)
class Config:
    """Tile in elements, warps along its rows and columns, stages of the ring."""

    tile_m: int = 128
    tile_n: int = 128
    warps: tuple[int, int] = (4, 2)
    stages: int = 4

    @property
    def threads(self) -> int:
        """Threads per CTA."""
        return self.warps[0] * self.warps[1] * 32

    @property
    def part(self) -> tuple[int, int]:
        """Rows and columns of a warp."""
        return self.tile_m // self.warps[0], self.tile_n // self.warps[1]

    def check(self) -> None:
        """Raise ArgumentError if no kernel can be built from this."""
        check_fields(self, {"tile_m": BLOCK_M, "tile_n": BLOCK_N, "stages": 2})
        rows, columns = self.part
        whole = (rows * self.warps[0], columns * self.warps[1]) == (self.tile_m, self.tile_n)
        if not whole or rows % BLOCK_M or columns % BLOCK_N or not rows * columns:
            raise ArgumentError(
                f"{self.warps[0]} x {self.warps[1]} warps do not divide a tile of {self.tile_m} x {self.tile_n}",
                expected=f"for each a part in multiples of {BLOCK_M} x {BLOCK_N}",
                got=f"{self.tile_m / self.warps[0]:g} x {self.tile_n / self.warps[1]:g}",
            )


@lru_cache(maxsize=64)
def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C (M, N) = A (M, K) @ Bᵀ with B (N, K), all f64 and row-major.

    Raises ArgumentError if the configuration does not fit.
    """
    config.check()
    tile_m, tile_n, stages = config.tile_m, config.tile_n, config.stages

    @kernel(
        in_specs=(Tile("M", "K", f64, multiple=(1, PIECE)), Tile("N", "K", f64, multiple=(1, PIECE))),
        out_specs=(Tile("M", "N", f64, multiple=(1, PIECE)),),
        grid=(tiles("N", tile_n), tiles("M", tile_m)),
        block=config.threads,
        arch="sm_90",
        name="f64",
    )
    def gemm(A, B, C):
        row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        tile_a = smem.wgmma_tile(f64, (tile_m, TILE_K), stages=stages, name="a")
        tile_b = smem.wgmma_tile(f64, (tile_n, TILE_K), stages=stages, name="b")
        ring = CpAsyncPipeline(
            stages=stages,
            tile_k=TILE_K,
            a=OperandCopy(A, tile_a, row, config.threads),
            b=OperandCopy(B, tile_b, column, config.threads),
        )
        down, across = place_of_warp(config)
        warp = WarpF64(down, across, *config.part)

        ring.fill()
        for _ in ptx.range((A.shape[1] + (TILE_K - 1)) // TILE_K):
            ring.wait()
            ring.refill()
            warp.multiply(*ring.stage)
            ring.advance()
        ring.drain()
        store(warp.acc, C, row + down, column + across)

    return gemm


def place_of_warp(config: Config) -> tuple[Register, Register]:
    """The start of this warp's part of the tile, uniform across the warp."""
    rows, columns = config.part
    warp = reg.scalar(u32)
    ptx.inst.shfl.sync.idx.b32(warp, ptx.special.tid.x() >> 5, 0, 31, -1)
    return warp // config.warps[1] * rows, warp % config.warps[1] * columns


class WarpF64:
    """rows x columns of C in one warp's registers.

    Args:
        row, column: first row in the tiles of A and of B.
        rows, columns: extent, multiples of 16 and 8.

    Attributes:
        acc: acc[i][j] are the 4 accumulators of block (i, j), 16 x 8, initially zero: columns 2 p and 2 p + 1 of row
            l / 4 for lane l, p = l % 4, then the same of the row 8 further (PTX ISA 9.7.14.5.10, `isa.fragments`).
    """

    def __init__(self, row: Register, column: Register, rows: int, columns: int) -> None:
        self.acc = [[reg.array(f64, 4, init=0.0) for _ in range(columns // BLOCK_N)] for _ in range(rows // BLOCK_M)]
        self._a, self._b = self._place(row), self._place(column)

    @staticmethod
    def _place(row: Register) -> Register:
        """Byte offset in a tile of this lane's 32 bytes in the first row that it reads."""
        lane, pitch = ptx.special.tid.x() & 31, TILE_K * f64.bytes
        inside = (lane & (LANES_OF_A_ROW - 1)) * (PER_LANE * f64.bytes)
        return swizzled((row + (lane >> 2)) * pitch + inside, Swizzle.B128)

    def multiply(self, a: TileSlice, b: TileSlice, release: Callable[[], None] | None = None) -> None:
        """acc += A @ Bᵀ for one stage: all rows of A at once, then block by block of B.

        release: called when the stage has been read, before the last products.
        """
        left = [self._rows_of_a(a, i) for i in range(len(self.acc))]
        blocks = len(self.acc[0])
        for j in range(blocks):
            right = self._row(b, self._b, j * BLOCK_N)
            if release is not None and j == blocks - 1:
                release()
            for i, line in enumerate(self.acc):
                ptx.mma_sync(
                    shape=(BLOCK_M, BLOCK_N, BLOCK_K), dtype_d=f64, dtype_a=f64, dtype_b=f64, d=line[j], a=left[i],
                    b=RegisterArray(right),
                )  # fmt: skip

    def clear(self) -> None:
        """Set acc to 0."""
        for line in self.acc:
            for block in line:
                for one in block:
                    one.set(0.0)

    def _rows_of_a(self, tile: TileSlice, block: int) -> RegisterArray:
        """A block of 16 rows: registers alternate between the lane's two rows."""
        upper, lower = (self._row(tile, self._a, block * BLOCK_M + below) for below in (0, HALF_ROWS))
        return RegisterArray([one for pair in zip(upper, lower, strict=True) for one in pair])

    @staticmethod
    def _row(tile: TileSlice, place: Register, below: int) -> list[Register]:
        """The lane's four elements of a row; XOR gives the swizzled address of the second 16 bytes."""
        step, pitch = CHUNK_BYTES, TILE_K * f64.bytes
        pieces = (tile + place, tile + (place ^ step))
        return [one for piece in pieces for one in ptx.load(f64, piece + below * pitch, vector=PIECE)]


def store(acc: list[list[RegisterArray]], C: ArrayHandle, row: Register, column: Register) -> None:
    """Store the warp's blocks at (row, column), two adjacent elements at a time, inside the array only."""
    lane = ptx.special.tid.x() & 31
    first_row, first_column = row + (lane >> 2), column + ((lane & 3) << 1)
    rows, columns = C.shape
    for i, line in enumerate(acc):
        for half in range(2):
            at = first_row + (i * BLOCK_M + half * HALF_ROWS)
            place = C.pointer() + (at.to(u64) * columns + first_column) * f64.bytes
            for j, block in enumerate(line):
                inside = (at < rows) & (first_column + j * BLOCK_N < columns)
                ptx.store(ptx.addr(place, j * BLOCK_N * f64.bytes), block[2 * half : 2 * half + 2], pred=inside)
