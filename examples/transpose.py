"""Transpose through shared memory, with and without bank conflicts.

Idea       Read rows, write rows: a 32 x 32 tile is transposed in shared memory, so that both global accesses coalesce.
           A column of 32-float rows lies in one bank: 32 lanes that read it take 32 passes. One float of padding per
           row shifts each row by one bank, which spreads the column over all banks.
Roles      256 threads, 32 x 8; each moves 4 elements of the tile
Sizes      any M, N: the edges are guarded

    python examples/transpose.py         prints the emulator's count of bank conflicts for both
"""

from collections.abc import Iterator

import numpy as np

from warploom import Tile, kernel, ptx, smem
from warploom.lang import Kernel, tiles
from warploom.types import f32, u64

TILE, ROWS_PER_PASS = 32, 8


def build(padding: int = 1) -> Kernel:
    """Transpose an M x N matrix of f32; `padding` floats after each row of the tile."""

    @kernel(
        in_specs=(Tile("M", "N", f32),),
        out_specs=(Tile("N", "M", f32),),
        grid=(tiles("N", TILE), tiles("M", TILE)),
        block=(TILE, ROWS_PER_PASS),
        arch="sm_80",
        name="transpose" if padding else "transpose_with_conflicts",
    )
    def transpose(X, Y):
        tile = smem.array(f32, (TILE, TILE + padding))
        rows, columns = X.shape
        x, y = ptx.global_ptrs(X, Y)
        across, down = ptx.special.tid.x(), ptx.special.tid.y()
        left, top = ptx.special.ctaid.x() * TILE, ptx.special.ctaid.y() * TILE

        for first in range(0, TILE, ROWS_PER_PASS):
            row, column = top + down + first, left + across
            with ptx.if_((row < rows) & (column < columns)):
                offset = (row.to(u64) * columns + column) * f32.bytes
                ptx.store(tile[down + first, across], ptx.load(f32, ptx.addr(x + offset)))
        ptx.bar.sync(0)
        for first in range(0, TILE, ROWS_PER_PASS):
            row, column = left + down + first, top + across
            with ptx.if_((row < columns) & (column < rows)):
                offset = (row.to(u64) * rows + column) * f32.bytes
                ptx.store(ptx.addr(y + offset), ptx.load(f32, tile[across, down + first]))

    return transpose


transpose, transpose_with_conflicts = build(1), build(0)


def example() -> Iterator[tuple]:
    """A whole tile, and ragged edges, for both kernels."""
    rng = np.random.default_rng(0)
    for kernel_ in (transpose, transpose_with_conflicts):
        for shape in ((32, 32), (40, 70)):
            x = rng.standard_normal(shape, dtype=np.float32)

            def check(y, x=x):
                np.testing.assert_array_equal(y, x.T)

            yield kernel_, (x,), check


def main() -> None:
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    for kernel_ in (transpose, transpose_with_conflicts):
        report = kernel_.emulate(x)
        np.testing.assert_array_equal(report.outputs[0], x.T)
        moved, conflicts = report.counters.shared_load_bytes, report.counters.bank_conflicts
        print(f"{kernel_.name}: {conflicts} bank conflicts, {moved} bytes read from shared memory")


if __name__ == "__main__":
    main()
