"""Rung 6: Ampere's asynchronous copies: tiles are prefetched in shared memory, fragments in registers.

Idea       On rung 5, every byte passes through a register, only one tile is prefetched, and stores take issue slots
           from the tensor cores. cp.async copies to shared memory without touching a register, so more can be in
           flight: `stages - 1` k-tiles, each twice as deep as on rung 5. Two pipelines remain, one inside the other.
           The inner one does not stop at the end of a k-tile: its last step loads the first fragments of the next.
Roles      four warps, 2 x 2, each 64 x 64 of the CTA's 128 x 128; two CTAs on an SM, so that one multiplies while the
           other stores its result
Barriers   bar 0, once per k-tile: its copies have arrived, and the previous stage is free
Buffers    3 stages of A 128 x 64 and B 128 x 64 bf16, 96 KiB
Timeline   global -> shared     [t+1 and t+2 in flight                                ]
           shared -> register           [step s+1      ][step s+2      ][step s+3      ]
           tensor core          [step s        ][step s+1      ][step s+2      ]
Measured   benchmarks/results/nvidia-h200/ladder.json; no seed; Ampere's speed of light (*Evolving Ampere to Hopper*)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import CpAsyncPipeline, OperandCopy, WarpMma, store_groups, warp_place
from ...collective.mma.warp import BLOCK_M
from ...isa.dtypes import DType, bf16
from ...lang import Kernel, kernel, ptx, smem, tiles
from .operands import operands_by_threads, result


@dataclass(frozen=True)
class Config:
    """Tile in elements, stages, warps over the tile (the part of each warp a multiple of 16 x 16).

    `out`: type of C, bf16 or f32. GPUs before Hopper run `warploom.matmul` on this kernel.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 3
    warps: tuple[int, int] = (2, 2)
    out: DType = bf16

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.warps[0] * self.warps[1] * 32


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N), all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @kernel(
        in_specs=operands_by_threads(),
        out_specs=(result(config.out),),
        grid=(tiles("N", tile_n), tiles("M", tile_m)),
        block=config.threads,
        arch="sm_80",
        name="ampere_multistage",
    )
    def gemm(A, B, C):
        row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        tile_a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages)
        tile_b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages)
        copy_a, copy_b = OperandCopy(A, tile_a, row, config.threads), OperandCopy(B, tile_b, column, config.threads)
        ring = CpAsyncPipeline(stages=stages, tile_k=tile_k, a=copy_a, b=copy_b)
        down, across, rows, columns = warp_place((tile_m, tile_n), config.warps)
        warp = WarpMma(tile_a, tile_b, down, across, rows, columns)

        ring.fill()
        ring.wait()
        warp.load(0, *ring.stage, 0)
        for _ in ptx.range((A.shape[1] + tile_k - 1) // tile_k):
            for step in range(warp.steps):  # unrolled; the fragments of even and odd steps are two sets of registers
                if step == warp.steps - 1:
                    ring.wait()
                    ring.advance()
                warp.load((step + 1) % 2, *ring.stage, (step + 1) % warp.steps)
                if step == 0:
                    ring.refill()
                warp.multiply(step % 2)
        ring.drain()

        for i, line in enumerate(warp.acc):
            store_groups(line, C, row + down + i * BLOCK_M, column + across, ragged=True)

    return gemm
