"""Rung 5: tensor cores; tiles arrive as before Ampere, through registers into one of two buffers.

Idea       mma.sync multiplies 16 x 8 x 16 in one instruction, so the problem is now to feed it. Loads are still those
           of rung 4: the next k-tile waits in 32 registers per thread while this one is multiplied. It is then written
           to the other of two buffers, so one barrier per tile is enough. ldmatrix loads the fragments of the next step
           of 16 while the tensor core works on this one. Tiles are swizzled: the eight rows that an ldmatrix reads are
           in eight different groups of banks.
Roles      four warps, 2 x 2, each 64 x 64 of the CTA's 128 x 128
Barriers   bar 0, once per k-tile: the other buffer is written, and this one is read
Buffers    2 stages of A 128 x 32 and B 128 x 32 bf16, 32 KiB
Timeline   load t+1 -> registers (in flight) ....... | registers -> buffer (t+1) % 2 | barrier | load t+2
           multiply t from buffer t % 2, two steps . |                                         | multiply t+1
Measured   benchmarks/results/nvidia-h200/ladder.json; no seed; *Tensor Memory Accelerator (TMA)* has the scheme
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import OperandCopy, WarpMma, store_groups, warp_place
from ...collective.mma.warp import BLOCK_M
from ...isa.dtypes import bf16, u32
from ...lang import Kernel, kernel, ptx, reg, smem, tiles
from .operands import operands_by_threads, result

STAGES = 2


@dataclass(frozen=True)
class Config:
    """Tile in elements, and the number of warps along its rows and columns."""

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 32
    warps: tuple[int, int] = (2, 2)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.warps[0] * self.warps[1] * 32


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k

    @kernel(
        in_specs=operands_by_threads(),
        out_specs=(result(),),
        grid=(tiles("N", tile_n), tiles("M", tile_m)),
        block=config.threads,
        arch="sm_80",
        name="register_staged",
    )
    def gemm(A, B, C):
        row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        tile_a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=STAGES)
        tile_b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=STAGES)
        copies = [OperandCopy(A, tile_a, row, config.threads), OperandCopy(B, tile_b, column, config.threads)]
        staged = [copy.buffer() for copy in copies]
        down, across, rows, columns = warp_place((tile_m, tile_n), config.warps)
        warp = WarpMma(tile_a, tile_b, down, across, rows, columns)

        def load(start):
            for copy, values in zip(copies, staged, strict=True):
                copy.load(values, start)

        def put(stage):
            for copy, values in zip(copies, staged, strict=True):
                copy.put(copy.tile[stage], values)
            ptx.bar.sync(0)

        stage = reg.scalar(u32, init=0)
        load(reg.scalar(u32, init=0))
        put(stage)
        for start in ptx.range(0, A.shape[1], tile_k):
            load(start + tile_k)
            here = tile_a[stage], tile_b[stage]
            warp.load(0, *here, 0)
            for step in range(warp.steps):  # unrolled; the fragments of even and odd steps are two sets of registers
                if step + 1 < warp.steps:
                    warp.load((step + 1) % 2, *here, step + 1)
                warp.multiply(step % 2)
            stage ^= 1
            put(stage)

        for i, line in enumerate(warp.acc):
            store_groups(line, C, row + down + i * BLOCK_M, column + across, ragged=True)

    return gemm
