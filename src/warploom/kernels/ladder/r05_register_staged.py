"""Rung 5: tensor cores; tiles come as before Ampere, through registers into one of two buffers.

Idea       mma.sync multiplies 16 x 8 x 16 in one instruction, so now everything is about feeding it. Loads are still
           those of rung 4: the next k-tile waits in 32 registers of each thread while this one is multiplied. But it
           is written to the other of two buffers, so one barrier for a tile is enough. ldmatrix brings the fragments
           of the next step of 16 while the tensor core works on this one.

               load t+1 -> registers | multiply t | registers -> buffer (t+1) % 2 | barrier

           Tiles are swizzled: the eight rows that an ldmatrix reads lie in eight different groups of banks.
Roles      four warps, 2 x 2, each 64 x 64 of the CTA's 128 x 128
Barriers   bar 0, once for each k-tile: the other buffer is written, and this one is read
Buffers    2 stages of A 128 x 32 and B 128 x 32 bf16, 32 KiB
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       no figure; *Tensor Memory Accelerator (TMA)* describes the scheme and its price in registers
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import OperandCopy, WarpMma, store_groups, warp_place
from ...isa.dtypes import DType, bf16, u32
from ...lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from .operands import result

STAGES = 2


@dataclass(frozen=True)
class Config:
    """Tile in elements, warps over the tile, type of C."""

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 32
    warps: tuple[int, int] = (2, 2)
    out: DType = bf16

    @property
    def threads(self) -> int:
        """32 for each warp."""
        return self.warps[0] * self.warps[1] * 32


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16 or f32, all row-major."""
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k

    @kernel(
        in_specs=(Tile("M", "K", bf16, multiple=(1, 8)), Tile("N", "K", bf16, multiple=(1, 8))),
        out_specs=(result(config.out),),
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
            for step in range(warp.steps):
                if step + 1 < warp.steps:
                    warp.load((step + 1) % 2, *here, step + 1)
                warp.multiply(step % 2)
            stage ^= 1
            put(stage)

        for i, line in enumerate(warp.acc):
            store_groups(line, C, row + down + i * 16, column + across, ragged=True)

    return gemm
