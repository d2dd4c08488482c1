"""Rung 4: warp tiling, an outer product in registers; the limit of fp32 without tensor cores.

Idea       Rung 3 reads two floats from shared memory per multiply-add. Here each thread holds 128 elements of C in
           registers. For each k it reads 8 floats of A and 16 of B, in 6 vector loads, and does 128 multiply-adds with
           them. A warp owns a compact 64 x 64 square, so that its lanes share what they read:

               CTA 128 x 128 = 2 x 2 warps        warp 64 x 64: lane (r, c), r = lane / 4, c = lane % 4
                 [warp 0][warp 1]                   rows     8r .. 8r+7
                 [warp 2][warp 3]                   columns  16s + 4c .. 16s + 4c+3, in four slices s

Layout     Tiles are transposed in shared memory, [k][row], because a thread reads consecutive rows of one k. Threads
           load 4 consecutive k's of one row (128 bits) and scatter them into 4 lines. Stored plainly, the lanes of a
           warp would conflict in 8 banks, so an XOR rotates line k: element (k, row) is at row ^ (k / 4 * 8).
Roles      128 threads, four warps
Barriers   bar 0, twice per tile: read before it is overwritten, written before it is read
Buffers    A and B 16 x 128 f32 transposed, 16 KiB
Timeline   load t+1 -> registers (in flight) ................. | barrier | scatter | barrier | load t+2
           multiply t from shared memory, 16 outer products .. |
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 32 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ArgumentError
from ...isa.dtypes import f32, u32, u64
from ...lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from ...lang.arrays import RegisterArray
from ...lang.shared import SharedAddress, SharedArray
from ...lang.tile import ArrayHandle
from ...lang.values import Register

VECTOR = 4
"""Floats of a 128-bit access."""
WARP = 64
"""Rows and columns of a warp's square."""
SLICE = 16
"""Columns that the four lanes of a row cover at a time."""
TILE_K = 16
"""Elements of k per tile: as many groups of 4 as the XOR of the layout distinguishes."""
ROWS, COLUMNS = 8, WARP // SLICE * VECTOR
"""A thread's rows and columns of C."""
SWIZZLE = 8
"""Rows by which each group of four k's is rotated relative to the previous one."""


@dataclass(frozen=True)
class Config:
    """The CTA's tile in elements: tile_m and tile_n are multiples of 64, for at least four warps in total."""

    tile_m: int = 128
    tile_n: int = 128

    def __post_init__(self) -> None:
        if self.tile_m % WARP or self.tile_n % WARP or not 128 <= self.threads <= 1024:
            raise ArgumentError(
                f"a tile of {self.tile_m} x {self.tile_n} does not divide into warps of {WARP} x {WARP}",
                expected=f"multiples of {WARP}, 4 to 32 warps in total",
                got=f"{self.tile_m} x {self.tile_n}: {self.threads} threads",
            )

    @property
    def threads(self) -> int:
        """Threads of a CTA: one warp per 64 x 64 of the tile."""
        return self.tile_m // WARP * (self.tile_n // WARP) * 32


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K), C (M, N), all f32 and row-major."""
    tile_m, tile_n = config.tile_m, config.tile_n

    @kernel(
        in_specs=(Tile("M", "K", f32, multiple=(1, VECTOR)), Tile("N", "K", f32, multiple=(1, VECTOR))),
        out_specs=(Tile("M", "N", f32, multiple=(1, VECTOR)),),
        grid=(tiles("N", tile_n), tiles("M", tile_m)),
        block=config.threads,
        arch="sm_80",
        name="warp_tiling",
    )
    def gemm(A, B, C):
        thread = ptx.special.tid.x()
        top, left = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        a = Transposing(A, top, smem.array(f32, (TILE_K, tile_m), name="a"), config.threads)
        b = Transposing(B, left, smem.array(f32, (TILE_K, tile_n), name="b"), config.threads)
        warp, lane = thread // 32, thread % 32
        down = warp // (tile_n // WARP) * WARP + lane // 4 * ROWS
        across = warp % (tile_n // WARP) * WARP + lane % 4 * VECTOR
        acc = [reg.array(f32, COLUMNS, init=0.0) for _ in range(ROWS)]

        for operand in (a, b):
            operand.load(reg.scalar(u32, init=0))
        for start in ptx.range(0, A.shape[1], TILE_K):
            ptx.bar.sync(0)
            a.put()
            b.put()
            ptx.bar.sync(0)
            a.load(start + TILE_K)
            b.load(start + TILE_K)
            multiply(acc, a.tile, b.tile, down, across)
        store(acc, C, top + down, left + across)

    return gemm


class Transposing:
    """The path of one operand: 128 bits of a row along k into registers, then into four lines of the tile."""

    def __init__(self, array: ArrayHandle, first_row: Register, tile: SharedArray, threads: int) -> None:
        self.tile = tile
        rows = tile.shape[1]
        vectors = TILE_K // VECTOR
        thread = ptx.special.tid.x()
        self.row, self.k = thread // vectors, thread % vectors * VECTOR
        self.passes = [first * threads // vectors for first in range(rows * vectors // threads)]
        """Offsets, from a thread's first row, of the other rows that it loads."""
        self.extent, self.depth = array.shape
        self.first_row = first_row + self.row
        self.values = [reg.array(f32, VECTOR) for _ in self.passes]
        self.source = array.pointer() + (self.first_row.to(u64) * self.depth + self.k) * f32.bytes
        self.stride = self.depth.to(u64) * (threads // vectors * f32.bytes)

    def load(self, start: Register) -> None:
        """Start loading the tile at k = start; zeros outside the array."""
        within = start + self.k < self.depth
        source = self.source + start.to(u64) * f32.bytes
        for below, values in zip(self.passes, self.values, strict=True):
            for value in values:
                value.set(0.0)
            inside = within & (self.first_row + below < self.extent)
            ptx.inst.ld.global_.nc.v4.f32(values, ptx.addr(source), pred=inside)
            source = source + self.stride

    def put(self) -> None:
        """Scatter the loaded values: element (k, row) to line k, at row ^ (k / 4 * 8)."""
        place = self.tile[self.k, self.row ^ (self.k // VECTOR * SWIZZLE)]
        for below, values in zip(self.passes, self.values, strict=True):
            for line, value in enumerate(values):
                ptx.store(place + (line * self.tile.shape[1] + below) * f32.bytes, value)


def multiply(acc: list[RegisterArray], a: SharedArray, b: SharedArray, down: Register, across: Register) -> None:
    """acc += the product of the tiles: per k, an outer product of 8 by 16."""
    for group in range(TILE_K // VECTOR):
        rotation = group * SWIZZLE
        rows = a[0, down ^ rotation]
        # The slice's bits of the XOR are constants; its other bits are within the thread's part of the column.
        columns = b[0, across ^ rotation % SLICE]
        for k in range(group * VECTOR, (group + 1) * VECTOR):
            left = _vectors(rows + k * a.shape[1] * f32.bytes, [0, VECTOR])
            slices = [(s * SLICE) ^ (rotation // SLICE * SLICE) for s in range(WARP // SLICE)]
            right = _vectors(columns + k * b.shape[1] * f32.bytes, slices)
            for x, line in zip(left, acc, strict=True):
                for y, total in zip(right, line, strict=True):
                    ptx.inst.fma.rn.f32(total, x, y, total)


def _vectors(place: SharedAddress, offsets: list[int]) -> list[Register]:
    """Four floats from each offset, as one list."""
    return [value for offset in offsets for value in ptx.load(f32, place + offset * f32.bytes, vector=VECTOR)]


def store(acc: list[RegisterArray], C: ArrayHandle, row: Register, column: Register) -> None:
    """Store the thread's 8 x 16 elements, four at a time, if they are inside the array."""
    rows, columns = C.shape
    for i, line in enumerate(acc):
        place = C.pointer() + ((row + i).to(u64) * columns + column) * f32.bytes
        for s in range(WARP // SLICE):
            inside = (row + i < rows) & (column + s * SLICE < columns)
            values = line[s * VECTOR : (s + 1) * VECTOR]
            ptx.store(ptx.addr(place, s * SLICE * f32.bytes), values, pred=inside)
