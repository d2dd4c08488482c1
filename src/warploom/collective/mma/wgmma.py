"""A warpgroup's part of the product by wgmma: accumulators in blocks of 64 rows, one stage of a ring at a time.

A 2:4 sparse A, of which half is stored, comes with metadata: four bits for each group along k say which elements these
are. A stage is two instructions deep, 128 bytes of each of B's rows and 64 of A's. Of elements of 16 and 32 bits a
register holds the bits of half an instruction for two rows, so that of four neighbouring threads two have all of the
first instruction's and two all of the second's: both are given the same register, and another selector. Of bytes all
four are needed for one instruction, and each has a register of its own (PTX ISA 9.7.15.6.1).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.dtypes import DType, f32
from ...isa.instructions.wgmma import FLOAT_N
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.operand_tile import TileSlice
from ...lang.predicate import Predicate
from ...lang.trace import Trace
from ...lang.values import Register
from ..tile.roles import WARPGROUP
from .fragment import WARPGROUP_ROWS

WGMMA_ROWS = WARPGROUP_ROWS
"""Rows of every wgmma."""


def wgmma_accumulators(rows: int, columns: int, *, zero: bool = False, dtype: DType = f32) -> list[RegisterArray]:
    """Accumulators of rows x columns of C in one warpgroup: an array of columns / 2 registers for each 64 rows.

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
    """Overwrite accumulators with zeros (a mov each)."""
    for block in acc:
        for register in block:
            register.set(0.0)


def wgmma_stage(acc: list[RegisterArray], a: TileSlice, b: TileSlice, *, accumulate: bool | Predicate = True) -> None:
    """acc += A @ Bᵀ of one stage: wgmma.fence, the wgmmas, one commit_group; the caller waits.

    Args:
        acc: one array for each 64 rows of `a`.
        a, b: tiles of the stage, K-major or (16-bit types) MN-major.
        accumulate: where false, the first wgmma of each block overwrites its accumulators (scale-d) instead of adding.
    """
    ptx.wgmma.fence()
    for index, block in enumerate(acc):
        rows = a.rows(index * WGMMA_ROWS, WGMMA_ROWS) if len(acc) > 1 else a
        wgmma_block(block, rows, b, accumulate=accumulate)
    ptx.wgmma.commit_group()


def wgmma_block(
    block: RegisterArray, a: TileSlice | Sequence[RegisterArray], b: TileSlice, *, accumulate: bool | Predicate = True
) -> None:
    """The wgmmas of one block of 64 rows and one stage, without fence and commit; else as `wgmma_stage`.

    `a` may be in registers: four for each slice of k, as `Fragment.as_a` makes them. They are not to be written before
    the wgmmas are complete.
    """
    dtype_a = a.layout.dtype if isinstance(a, TileSlice) else b.layout.dtype
    if not isinstance(a, TileSlice) and len(a) != b.k_slices:
        raise block.trace.error(
            "A in registers and B in shared memory have different depths",
            expected=f"{b.k_slices} fragments, one for each {b.layout.instruction_k} of k", got=len(a),
        )  # fmt: skip
    for step in range(b.k_slices):
        ptx.wgmma.mma_async(
            shape=(WGMMA_ROWS, b.rows_count, b.layout.instruction_k), dtype_d=block.dtype, dtype_a=dtype_a,
            dtype_b=b.layout.dtype, d=block, a=a.k(step) if isinstance(a, TileSlice) else a[step], b=b.k(step),
            scale_d=accumulate if step == 0 else True,
        )  # fmt: skip


# -- a sparse A ------------------------------------------------------------------------------------------------------

SPARSE_STEPS = 2
"""Instructions of a stage."""
SPARSE_STAGE_BYTES = 128
"""Of a row of B in a stage; half as many of A."""


def sparse_stage_k(dtype: DType) -> int:
    """Elements along k of a stage, stored or not."""
    return SPARSE_STAGE_BYTES // dtype.bytes


def metadata_words(dtype: DType) -> int:
    """Registers of metadata of a thread, for each 64 rows of a stage."""
    return SPARSE_STEPS if dtype.bits == 8 else 1


def sparse_block(
    block: RegisterArray, a: TileSlice, b: TileSlice, metadata: Sequence[Register], *, accumulate: bool | Predicate
) -> None:
    """block += A @ Bᵀ of 64 rows and one stage, without fence and commit.

    Args:
        block: a thread's accumulators.
        a, b: K-major tiles, 64 and 128 bytes deep.
        metadata: `metadata_words` registers, b32 or u32, not to be written before the wgmmas are complete.
        accumulate: where false, the first wgmma overwrites the accumulators.
    """
    words = metadata_words(b.layout.dtype)
    for step in range(SPARSE_STEPS):
        word, selector = (metadata[step], 0) if words == SPARSE_STEPS else (metadata[0], step)
        ptx.wgmma.mma_async(
            shape=(WGMMA_ROWS, b.rows_count, 2 * b.layout.instruction_k), dtype_d=block.dtype,
            dtype_a=a.layout.dtype, dtype_b=b.layout.dtype, d=block, a=a.k(step), b=b.k(step, width=2),
            scale_d=accumulate if step == 0 else True, metadata=word, selector=selector,
        )  # fmt: skip
