"""Rung 1: one thread per element of C; adjacent lanes of a warp are adjacent in a column.

Idea       Each thread computes a dot product: a loop along a row of A and a column of B. The 32 lanes of a warp cover
           32 rows of one column of C. In each step of k they read one element of B together (a broadcast) and 32 rows
           of A: 32 sectors of 32 bytes, of which they need 128 bytes. Their stores touch 32 sectors as well.
Roles      1024 threads, 32 x 32 elements of C
Barriers   none
Buffers    none: each element of A is read N times and each of B M times, from the caches if it is still there
Timeline   for each k: load a, load b | wait for both | fma
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 0.243 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...isa.dtypes import f32, u64
from ...lang import Kernel, Tile, kernel, ptx, reg, tiles
from ...lang.values import Register


@dataclass(frozen=True)
class Config:
    """Side of a CTA's square of C, in elements."""

    side: int = 32


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ B with A (M, K), B (K, N), C (M, N), all f32 and row-major; any M, N, K."""
    return naive("naive_uncoalesced", config, position)


def position(side):
    """Row and column of a thread's element in the CTA's square: adjacent lanes are adjacent in a column."""
    column, row = ptx.special.tid.x() // side, ptx.special.tid.x() % side
    return row, column


def naive(name: str, config: Config, position: Callable[[int], tuple[Register, Register]]) -> Kernel:
    """The kernel of rungs 1 and 2, which differ in `position`."""
    side = config.side

    @kernel(
        in_specs=(Tile("M", "K", f32), Tile("K", "N", f32)),
        out_specs=(Tile("M", "N", f32),),
        grid=(tiles("N", side), tiles("M", side)),
        block=side * side,
        arch="sm_80",
        name=name,
    )
    def gemm(A, B, C):
        (rows, depth), (_, columns) = A.shape, B.shape
        down, across = position(side)
        row, column = ptx.special.ctaid.y() * side + down, ptx.special.ctaid.x() * side + across
        with ptx.if_((row < rows) & (column < columns)):
            a, b, c = ptx.global_ptrs(A, B, C)
            a = (a + row.to(u64) * depth * f32.bytes).copy()
            b = (b + column.to(u64) * f32.bytes).copy()
            next_row = columns.to(u64) * f32.bytes
            total = reg.scalar(f32, init=0.0)
            for _ in ptx.range(depth):
                ptx.inst.fma.rn.f32(total, ptx.load(f32, ptx.addr(a)), ptx.load(f32, ptx.addr(b)), total)
                a += f32.bytes
                b += next_row
            ptx.store(ptx.addr(c + (row.to(u64) * columns + column) * f32.bytes), total)

    return gemm
