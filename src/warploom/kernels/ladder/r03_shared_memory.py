"""Rung 3: tiles of A and B in shared memory; each element is fetched once for 32 uses.

Idea       The 32 x 32 square of C that a CTA computes needs 32 rows of A and of B. Step by step along k, the CTA loads
           a 32 x 32 tile of each into shared memory and multiplies from there. Each element loaded from global memory
           is used by 32 threads, so global traffic falls 32-fold.

               A (M, K)   k ->               B (N, K)   k ->
                 ....[tile]....                ....[tile]....      32 rows each, moving right together

           Rows of the shared tiles are one float longer than the tile. The lanes of a warp read a column of B's tile;
           without the padding its 32 elements would be in one bank.
Roles      1024 threads, 32 x 32 elements of C; each loads one element of each tile
Barriers   bar 0, twice per tile: filled before it is read, read before it is refilled
Buffers    A and B 32 x 33 f32, 8.25 KiB
Timeline   load t -> shared memory | barrier | 32 fma | barrier | load t+1 ...
Measured   benchmarks/results/nvidia-h200/ladder.json; no seed
"""

from __future__ import annotations

from dataclasses import dataclass

from ...isa.dtypes import f32, u64
from ...lang import Kernel, Tile, kernel, ptx, reg, smem, tiles

PADDING = 1
"""Floats after each row, which shift the next row by one bank."""


@dataclass(frozen=True)
class Config:
    """Side of the square tiles, in elements."""

    side: int = 32


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K), C (M, N), all f32 and row-major."""
    side = config.side

    @kernel(
        in_specs=(Tile("M", "K", f32), Tile("N", "K", f32)),
        out_specs=(Tile("M", "N", f32),),
        grid=(tiles("N", side), tiles("M", side)),
        block=side * side,
        arch="sm_80",
        name="shared_memory",
    )
    def gemm(A, B, C):
        tile_a = smem.array(f32, (side, side + PADDING))
        tile_b = smem.array(f32, (side, side + PADDING))
        (rows, depth), (columns, _) = A.shape, B.shape
        a, b, c = ptx.global_ptrs(A, B, C)
        down, across = ptx.special.tid.x() // side, ptx.special.tid.x() % side
        top, left = ptx.special.ctaid.y() * side, ptx.special.ctaid.x() * side

        def fetch(tile, pointer, row, limit, k):
            """Load this thread's element of a tile; zero outside the array."""
            value = reg.scalar(f32, init=0.0)
            inside = (row < limit) & (k < depth)
            place = pointer + (row.to(u64) * depth + k) * f32.bytes
            ptx.inst.ld.global_.f32(value, ptx.addr(place), pred=inside)
            ptx.store(tile[down, across], value)

        total = reg.scalar(f32, init=0.0)
        for start in ptx.range(0, depth, side):
            fetch(tile_a, a, top + down, rows, start + across)
            fetch(tile_b, b, left + down, columns, start + across)
            ptx.bar.sync(0)
            row_of_a, row_of_b = tile_a[down], tile_b[across]
            for k in range(side):
                step = k * f32.bytes
                ptx.inst.fma.rn.f32(total, ptx.load(f32, row_of_a + step), ptx.load(f32, row_of_b + step), total)
            ptx.bar.sync(0)

        row, column = top + down, left + across
        with ptx.if_((row < rows) & (column < columns)):
            ptx.store(ptx.addr(c + (row.to(u64) * columns + column) * f32.bytes), total)

    return gemm
