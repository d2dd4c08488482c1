"""A warpgroup's part of the product by wgmma: accumulators in blocks of 64 rows, one stage of a ring at a time."""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.dtypes import DType, f32
from ...isa.instructions.wgmma import FLOAT_N
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.operand_tile import TileSlice
from ...lang.predicate import Predicate
from ...lang.trace import Trace
from ..tile.roles import WARPGROUP
from ..tile.sizes import WARPGROUP_ROWS

WGMMA_ROWS = WARPGROUP_ROWS
"""Rows of every wgmma."""


def wgmma_accumulators(rows: int, columns: int, *, zero: bool = False, dtype: DType = f32) -> list[RegisterArray]:
    """Accumulators for rows x columns of C in one warpgroup: an array of columns / 2 registers per 64 rows.

    `dtype` is f32, or s32 for integer operands.
    """
    if rows % WGMMA_ROWS or not rows or columns not in FLOAT_N:
        raise Trace.current().error(
            f"a warpgroup cannot hold {rows} x {columns} of C",
            expected=f"rows in multiples of {WGMMA_ROWS}, columns in multiples of 8 to 256",
            got=f"{rows} x {columns}",
        )
    count = WGMMA_ROWS * columns // WARPGROUP
    zeros = 0.0 if dtype is f32 else 0
    return [reg.array(dtype, count, init=zeros if zero else None) for _ in range(rows // WGMMA_ROWS)]


def set_zero(acc: list[RegisterArray]) -> None:
    """Overwrite accumulators with zeros (one mov each)."""
    for block in acc:
        for register in block:
            register.set(0.0)


def wgmma_stage(acc: list[RegisterArray], a: TileSlice, b: TileSlice, *, accumulate: bool | Predicate = True) -> None:
    """acc += A @ Bᵀ of one stage: wgmma.fence, the wgmmas, one commit_group; the caller waits.

    Args:
        acc: one array per 64 rows of `a`.
        a, b: tiles of the stage, K-major or (16-bit types) MN-major.
        accumulate: if false, the first wgmma of each block overwrites its accumulators (scale-d) instead of adding.
    """
    ptx.wgmma.fence()
    for index, block in enumerate(acc):
        rows = a.rows(index * WGMMA_ROWS, WGMMA_ROWS) if len(acc) > 1 else a
        wgmma_block(block, rows, b, accumulate=accumulate)
    ptx.wgmma.commit_group()


def wgmma_block(
    block: RegisterArray, a: TileSlice | Sequence[RegisterArray], b: TileSlice, *, accumulate: bool | Predicate = True
) -> None:
    """The wgmmas of one block of 64 rows and one stage, without fence and commit; otherwise like `wgmma_stage`.

    `a` may be in registers: four per slice of k, as `Fragment.as_a` makes them. They must not be written before the
    wgmmas are complete.
    """
    dtype_a = a.layout.dtype if isinstance(a, TileSlice) else b.layout.dtype
    if not isinstance(a, TileSlice) and len(a) != b.k_slices:
        raise block.trace.error(
            "A in registers and B in shared memory have different depths",
            expected=f"{b.k_slices} fragments, one per {b.layout.instruction_k} of k", got=len(a),
        )  # fmt: skip
    for step in range(b.k_slices):
        ptx.wgmma.mma_async(
            shape=(WGMMA_ROWS, b.rows_count, b.layout.instruction_k), dtype_d=block.dtype, dtype_a=dtype_a,
            dtype_b=b.layout.dtype, d=block, a=a.k(step) if isinstance(a, TileSlice) else a[step], b=b.k(step),
            scale_d=accumulate if step == 0 else True,
        )  # fmt: skip
