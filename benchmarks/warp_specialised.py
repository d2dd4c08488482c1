"""A warp-specialised GEMM: one producer thread keeps a ring of stages full, two warpgroups multiply.

Idea       Loading and multiplying are different jobs for different warps: the producer runs ahead as far as the ring
           allows, the consumers never wait for an address computation.
Roles      producer   warpgroup 0, one thread      fills the ring with TMA
           consumer   warpgroups 1, 2              64 x tile_n each: wgmma, then store
Barriers   full[s]    1 arrival + tile bytes       producer -> both consumers
           empty[s]   2 arrivals, one a consumer   consumers -> producer
Ring       `stages` stages of A 128 x 64 and B tile_n x 64 (32 KiB for tile_n 128)
Limits     M, N, K at run time: multiples of 128, tile_n and 64; C is row-major f32

The kernel of the first measurements, and the load of `benchmarks/emulator_speed.py`; the ladder has its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.collective import WARPGROUP, TmaPipeline, consumers, producer, store_fragment, warpgroup_index
from warploom.isa.dtypes import bf16, f32, u64
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem
from warploom.lang.arrays import RegisterArray
from warploom.lang.tile import ArrayHandle, tiles
from warploom.lang.values import Register

CONSUMERS = 2
WGMMA_ROWS = 64


@dataclass(frozen=True)
class Config:
    """Tile sizes in elements, and how many stages the ring has."""

    tile_m: int = CONSUMERS * WGMMA_ROWS
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 4
    producer_registers: int = 40
    consumer_registers: int = 232


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) bf16, B (N, K) bf16, C (M, N) f32, all row-major."""
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k

    @kernel(
        in_specs=(
            Tile.wgmma_a("M", "K", bf16, tile_m=tile_m, tile_k=tile_k),
            Tile.wgmma_b("N", "K", bf16, major="K", tile_n=tile_n, tile_k=tile_k),
        ),
        out_specs=(Tile("M", "N", f32),),
        grid=(tiles("N", tile_n), tiles("M", tile_m), 1),
        block=((1 + CONSUMERS) * WARPGROUP, 1, 1),
        registers=168,
        arch="sm_90a",
        pdl=True,
        name="warp_specialised",
    )
    def gemm(A, B, C):
        ptx.griddepcontrol.wait()
        ring = TmaPipeline(
            stages=config.stages,
            consumers=CONSUMERS,
            a=smem.wgmma_tile(bf16, (tile_m, tile_k), stages=config.stages, major="K", name="ring.a"),
            b=smem.wgmma_tile(bf16, (tile_n, tile_k), stages=config.stages, major="K", name="ring.b"),
        )
        ring.initialise()
        row = ptx.special.ctaid.y() * tile_m
        column = ptx.special.ctaid.x() * tile_n
        k_tiles = A.shape[1] // tile_k
        warpgroup = warpgroup_index()
        with producer(warpgroup, config.producer_registers):
            load(ring, A, B, row, column, k_tiles, tile_k)
        with consumers(warpgroup, config.consumer_registers) as me:
            acc = multiply(ring, me, k_tiles, tile_n)
            store_fragment(acc, C, row + me * WGMMA_ROWS, column)

    return gemm


def load(
    ring: TmaPipeline, A: ArrayHandle, B: ArrayHandle, row: Register, column: Register, k_tiles: Register, tile_k: int
) -> None:
    """The producer: fills one stage for each k-tile, as soon as both consumers have released it."""
    state = ring.producer_state()
    for k_tile in ptx.range(k_tiles):
        with ring.produce(state) as stage:
            ptx.tma.load(stage.a, A.tma_desc(), (k_tile * tile_k, row), stage.full)
            ptx.tma.load(stage.b, B.tma_desc(), (k_tile * tile_k, column), stage.full)


def multiply(ring: TmaPipeline, me: Register, k_tiles: Register, tile_n: int) -> RegisterArray:
    """A consumer: its 64 rows of the tile times all of B, stage by stage."""
    acc = reg.array(f32, WGMMA_ROWS * tile_n // WARPGROUP, init=0.0)
    # blocks of rows of a K-major tile are equally far apart, and a descriptor holds the address over 16
    mine = me.to(u64) * (ring.tiles["a"].layout.row_offset(WGMMA_ROWS) >> 4)
    state = ring.consumer_state()
    for _ in ptx.range(k_tiles):
        with ring.consume(state) as stage:
            ptx.wgmma.fence()
            for step in range(stage.b.k_slices):
                ptx.wgmma.mma_async(
                    shape=(WGMMA_ROWS, tile_n, 16), dtype_d=f32, dtype_a=bf16, dtype_b=bf16,
                    d=acc, a=stage.a.rows(0, WGMMA_ROWS).k(step).descriptor() + mine, b=stage.b.k(step),
                )  # fmt: skip
            ptx.wgmma.commit_group()
            ptx.wgmma.wait_group(0)
    return acc
