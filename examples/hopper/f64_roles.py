"""C = A Bᵀ in f64, warp-specialised: one thread loads tiles by TMA, eight warps multiply, without CTA barriers.

Idea       `f64` has a barrier after every 16 of k. All its warps then load fragments at the same time, and the tensor
           core waits for them: a tenth of the time by the timing model, and idle tensor cores mean a higher voltage.
           Here a warp waits for bytes, not for other warps, and itself signals that it has read a stage. So one warp
           of a quarter loads while the other multiplies, and they may be up to a ring's length apart. What a warp does
           with a stage is `f64.WarpF64`, unchanged.
Roles      consumers  warps 0 to 7, 4 x 2, each 32 x 64 of the CTA's 128 x 128
           producer   warpgroup 2, one thread      TMA loads of the k-tiles of all tiles, in order
Barriers   full[s]    1 arrival + bytes            producer -> consumers
           empty[s]   8 arrivals, one of each warp consumers -> producer, after a proxy fence: threads have read
                                                   what TMA writes next
Ring       6 stages of A 128 x 16 and B 128 x 16 f64, 192 KiB; it runs on between two tiles
Measured   benchmarks/results/nvidia-h200/beside.json: `f64 roles`
Limits     any M; N and K multiples of 2, because 16 bytes hold two f64
"""

from __future__ import annotations

from functools import lru_cache

from examples.hopper.f64 import PIECE, TILE_K, Config, WarpF64, place_of_warp, store
from warploom.collective.pipeline.tma import TmaPipeline
from warploom.collective.tile.raster import grouped
from warploom.collective.tile.roles import WARP, WARPGROUP, consumers, producer_warp, warpgroup_index
from warploom.collective.tile.scheduler import Persistent
from warploom.collective.tile.sizes import persistent_grid
from warploom.errors import ArgumentError
from warploom.isa.dtypes import f64
from warploom.kernels.gemm_mainloop import k_tiles
from warploom.lang import Kernel, Tile, kernel, ptx, smem
from warploom.lang.tile import ArrayHandle

BAND = 8
"""Rows of tiles in a band of the raster."""
GROUPS = 2
"""Consumer warpgroups."""
PRODUCER_REGISTERS, CONSUMER_REGISTERS, LAUNCH_REGISTERS = 24, 240, 168
ROLES = Config(stages=6)


@lru_cache(maxsize=64)
def build(config: Config = ROLES) -> Kernel:
    """C (M, N) = A (M, K) @ Bᵀ with B (N, K), all f64; C row-major, any distance between rows of A and B.

    `config.warps` are the consumers. Raises ArgumentError if the configuration does not fit.
    """
    config.check()
    tile_m, tile_n, stages, warps = config.tile_m, config.tile_n, config.stages, config.threads // WARP
    groups = config.threads // WARPGROUP
    if groups != GROUPS or config.threads % WARPGROUP:
        raise ArgumentError(
            "registers are dealt out for eight warps that multiply", expected=f"{4 * GROUPS} warps", got=warps
        )

    @kernel(
        in_specs=(
            Tile.wgmma_a("M", "K", f64, tile_m=tile_m, tile_k=TILE_K, ragged=True),
            Tile.wgmma_b("N", "K", f64, major="K", tile_n=tile_n, tile_k=TILE_K, ragged=True),
        ),
        out_specs=(Tile("M", "N", f64, multiple=(1, PIECE)),),
        grid=persistent_grid((tile_m, tile_n)),
        block=config.threads + WARPGROUP,
        arch="sm_90a",
        registers=LAUNCH_REGISTERS,
        name="f64_roles",
    )
    def gemm(A, B, C):
        ring = TmaPipeline(
            stages=stages,
            consumers=warps,  # each arrives for itself
            a=smem.wgmma_tile(f64, (tile_m, TILE_K), stages=stages, name="a"),
            b=smem.wgmma_tile(f64, (tile_n, TILE_K), stages=stages, name="b"),
        )
        ring.initialise()
        warpgroup = warpgroup_index()
        with producer_warp(warpgroup, groups, PRODUCER_REGISTERS), ptx.if_(ptx.special.tid.x() == config.threads):
            produce(ring, Persistent(C, (tile_m, tile_n), grouped(BAND)), A, B)
        with consumers(warpgroup, CONSUMER_REGISTERS, first=0, count=groups):
            consume(ring, Persistent(C, (tile_m, tile_n), grouped(BAND)), A, C, config)

    return gemm


def produce(ring: TmaPipeline, work: Persistent, A: ArrayHandle, B: ArrayHandle) -> None:
    """The producer: loads the k-tiles of this CTA's tiles; the ring runs on between two of them."""
    state, count = ring.producer_state(), k_tiles(A, TILE_K)
    for tile in work.tiles():
        for k_tile in ptx.range(count):
            with ring.produce(state) as stage:
                ptx.tma.load(stage.a, A.tma_desc(), (k_tile * TILE_K, tile.row), stage.full)
                ptx.tma.load(stage.b, B.tma_desc(), (k_tile * TILE_K, tile.column), stage.full)


def consume(ring: TmaPipeline, work: Persistent, A: ArrayHandle, C: ArrayHandle, config: Config) -> None:
    """A consumer warp: its part of every tile."""
    state, count = ring.consumer_state(), k_tiles(A, TILE_K)
    first_lane = (ptx.special.tid.x() & (WARP - 1)) == 0
    down, across = place_of_warp(config)
    warp = WarpF64(down, across, *config.part)

    def release() -> None:
        ptx.fence.proxy_async_shared_cta()
        ptx.warp.sync()
        ring.consumer_release(state, leader=first_lane)

    for tile in work.tiles():
        for _ in ptx.range(count):
            stage = ring.consumer_wait(state)
            warp.multiply(stage.a, stage.b, release)
            ring.advance(state)
        store(warp.acc, C, tile.row + down, tile.column + across)
        warp.clear()
