"""Rung 6: Ampere's asynchronous copies: they run ahead in shared memory, fragments in registers.

Idea       On rung 5 every byte passes through a register, one tile runs ahead, and stores take issue slots from the
           tensor cores. cp.async copies to shared memory without touching a register, so more can be on its way:
           `stages - 1` k-tiles, each twice as long as there. Two pipelines are left, one inside the other, and the
           inner one does not stop at the end of a k-tile:

               global -> shared   [t+1][t+2] under way
               shared -> register        step s+1        step s+2        step s+3
               tensor core         step s          step s+1        step s+2

Roles      four warps, 2 x 2, each 64 x 64 of the CTA's 128 x 128; two CTAs on an SM, so that one multiplies while the
           other stores its result
Barriers   bar 0, once for each k-tile: its copies have arrived, and the stage before it is free
Buffers    3 stages of A 128 x 64 and B 128 x 64 bf16, 96 KiB
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       no figure; *Evolving Ampere to Hopper* calls this main loop Ampere's speed of light
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import CpAsyncPipeline, OperandCopy, WarpMma, store_groups, warp_place
from ...isa.dtypes import DType, bf16
from ...lang import Kernel, Tile, kernel, ptx, smem, tiles
from .operands import result


@dataclass(frozen=True)
class Config:
    """Tile in elements, stages, warps over the tile (each warp's part a multiple of 16 x 16), type of C."""

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 3
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
        name="ampere_multistage",
    )
    def gemm(A, B, C):
        row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        tile_a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=config.stages)
        tile_b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=config.stages)
        ring = CpAsyncPipeline(
            stages=config.stages,
            tile_k=tile_k,
            a=OperandCopy(A, tile_a, row, config.threads),
            b=OperandCopy(B, tile_b, column, config.threads),
        )
        down, across, rows, columns = warp_place((tile_m, tile_n), config.warps)
        warp = WarpMma(tile_a, tile_b, down, across, rows, columns)

        ring.fill()
        ring.wait()
        warp.load(0, *ring.stage, 0)
        for _ in ptx.range((A.shape[1] + tile_k - 1) // tile_k):
            for step in range(warp.steps):
                if step == warp.steps - 1:
                    ring.wait()
                    ring.advance()
                warp.load((step + 1) % 2, *ring.stage, (step + 1) % warp.steps)
                if step == 0:
                    ring.refill()
                warp.multiply(step % 2)
        ring.drain()

        for i, line in enumerate(warp.acc):
            store_groups(line, C, row + down + i * 16, column + across, ragged=True)

    return gemm
