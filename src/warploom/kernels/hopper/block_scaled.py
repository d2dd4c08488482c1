"""Eight-bit floats with one scale per block of 128 in k: sums are promoted to f32 registers block by block.

    D[m, n] = sum over blocks kb of  scale_a[m, kb] * scale_b[n / 128, kb] * sum over k in kb of A[m, k] * B[n, k]

The tensor core keeps about 13 bits of the sum of an eight-bit product. Here it accumulates 128 products in a temporary;
then the CUDA cores multiply by the two scales and add in f32. One stage of the ring is one block of k.

Roles      producer   warpgroup 0, one thread: TMA loads, one stage per block of k
           consumer   every other warpgroup, for each of its blocks of 64 rows: wgmma into the temporary, wait, promote

               consumer 0   [wgmma][promote][wgmma][promote]
               consumer 1      [wgmma][promote][wgmma][promote]     they drift apart, and the tensor core
               consumer 2         [wgmma][promote][wgmma][promote]  finds work while the others promote

Barriers   full[s]    1 arrival + bytes of the stage                  producer -> consumers
           empty[s]   1 arrival per consumer                          -> producer
           bar 1..    128 threads of a consumer, twice per store box
Scales     read from global memory two blocks of k ahead: two rows' scales per 64 rows of a thread, one for the columns;
           each array is contiguous along the blocks of k ("K") or along the other axis ("MN")
Limits     any M; rows of D a multiple of 16 bytes; K a multiple of 16, the last block of 128 may be partial; tile_n
           divides 128
"""

from __future__ import annotations

from ...collective.epilogue.tma_store import TmaStore
from ...collective.mma.block_scales import SCALE_BLOCK, BlockScales, promote
from ...collective.mma.wgmma import WGMMA_ROWS, set_zero, wgmma_accumulators, wgmma_block
from ...collective.pipeline.tma import State, TmaPipeline
from ...collective.tile.raster import grouped
from ...collective.tile.roles import each_consumer, producer, warpgroup_index
from ...collective.tile.scheduler import Persistent
from ...collective.tile.sizes import persistent_grid
from ...errors import ArgumentError
from ...isa.dtypes import e4m3, f32
from ...lang import Kernel, Tile, kernel, ptx
from ...lang.arrays import RegisterArray
from ...lang.values import Register
from ..fields import builder
from ..gemm_mainloop import k_tiles
from . import gemm
from .description import Config, Product

SCALE_MAJORS = ("K", "MN")
CONFIG = Config(tile_m=192, tile_n=128, consumers=3, stages=4, epi_stages=2, ctas=1)
"""Three consumers of 64 rows: with two of them promoting, one is left on the tensor core."""
LARGE_ROWS = Config(tile_m=256, tile_n=128, stages=4, epi_stages=2, ctas=1)
"""Two consumers of 128 rows, whose blocks share a temporary: fewer bytes to load, fewer waves."""


@builder(keep=64)
def build(
    product: Product = Product(e4m3, e4m3),  # noqa: B008 - frozen
    config: Config = CONFIG,
    pads_to_16b: bool = False,
    scale_a_major: str = "MN",
    scale_b_major: str = "K",
) -> Kernel:
    """Build the kernel; call it as kernel(a, b, scale_a, scale_b, out=d).

    a (M, K), b (N, K); d (M, N). scale_a is (K / 128, M), or (M, K / 128) if `scale_a_major` is "K". scale_b is (N /
    128 rounded up, K / 128), or (K / 128, N / 128) if `scale_b_major` is "MN". Both are f32 and contiguous.
    `pads_to_16b`: as in `gemm.build`. Raises ArgumentError if the configuration does not fit.
    """
    config.check(product)
    if (
        config.kernel_schedule != "cooperative"
        or config.ctas != 1
        or SCALE_BLOCK % config.tile_n
        or product.a.bits != 8
    ):
        raise ArgumentError(
            f"the block-scaled kernel cannot be built as {config.name()}",
            expected=f"eight-bit floats, cooperative, one CTA, tile_n that divides {SCALE_BLOCK}",
            got=f"{product.a}, {config}",
            code="configuration",
        )

    @kernel(
        in_specs=(
            gemm.operand_a(product, config), gemm.operand_b(product, config),
            scale_array("M", scale_a_major), scale_array("ColumnBlocks", scale_b_major),
        ),
        out_specs=(gemm.result(product, pads_to_16b=pads_to_16b),),
        grid=persistent_grid((config.tile_m, config.tile_n)),
        block=config.threads,
        arch="sm_90a",
        registers=gemm.launch_registers(config),
        pdl=config.pdl,
        name="block_scaled",
    )  # fmt: skip
    def block_scaled(A, B, ScaleA, ScaleB, D):
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.consumers,
            a=gemm.ring_tile(product.a, "K", config.tile_m, product.tile_k, config.stages, "ring.a"),
            b=gemm.ring_tile(product.b, "K", config.tile_n, product.tile_k, config.stages, "ring.b"),
        )
        out = TmaStore(D, config.consumers, epi_stages=config.epi_stages)
        ring.initialise()
        warpgroup = warpgroup_index()
        producer_regs, consumer_regs = gemm.role_registers(config)
        work = Persistent(D, (config.tile_m, config.tile_n), grouped(config.group))
        num_k_tiles = k_tiles(A, SCALE_BLOCK)
        with producer(warpgroup, producer_regs):
            state = ring.producer_state()
            if config.pdl:
                ptx.griddepcontrol.wait()
            for tile in work.tiles():
                for k_tile in ptx.range(num_k_tiles):
                    with ring.produce(state) as stage:
                        k = k_tile * SCALE_BLOCK
                        ptx.tma.load(stage.a, A.tma_desc(), (k, tile.row), stage.full)
                        ptx.tma.load(stage.b, B.tma_desc(), (k, tile.column), stage.full)
            if config.pdl:
                ptx.griddepcontrol.launch_dependents()
        for me in each_consumer(warpgroup, config.consumers, consumer_regs):
            if config.pdl:
                ptx.griddepcontrol.wait()  # the scales are read by the consumers themselves
            state, first = ring.consumer_state(), me * config.rows
            acc = wgmma_accumulators(config.rows, config.tile_n)
            for tile in work.tiles():
                layouts = scale_a_major, scale_b_major
                scales = BlockScales(ScaleA, ScaleB, layouts, tile.row + first, tile.column, len(acc), num_k_tiles)
                multiply(ring, state, acc, first, num_k_tiles, scales)
                out.store(acc, me, tile.row + first, tile.column)
            out.finish()

    return block_scaled


def scale_array(along: str, major: str) -> Tile:
    """The array of scales along M or blocks of N, and along blocks of K, which are contiguous if `major` is "K"."""
    if major not in SCALE_MAJORS:
        raise ArgumentError("unknown layout of the scales", expected=", ".join(SCALE_MAJORS), got=repr(major))
    return Tile(along, "Blocks", f32) if major == "K" else Tile("Blocks", along, f32)


def multiply(
    ring: TmaPipeline,
    state: State,
    acc: list[RegisterArray],
    first_row: int,
    num_k_tiles: Register,
    scales: BlockScales,
) -> None:
    """A consumer, for one tile of D: multiply each block of k into the temporary, scale it, and add it to `acc`.

    Between a promotion and the next wgmma the tensor core may be idle, so nothing else is done there. The wait for the
    next stage and the product of the next block's scales run while the last wgmmas of this block are in flight.
    """
    temporary = wgmma_accumulators(WGMMA_ROWS, len(acc[0]) * 2)[0]
    set_zero(acc)
    ring.consumer_wait(state)
    for k_tile in ptx.range(num_k_tiles):
        stage = ring.stage(state)
        for index, block in enumerate(acc):
            last = index == len(acc) - 1
            ptx.wgmma.fence()
            wgmma_block(temporary, stage.a.rows(first_row + index * WGMMA_ROWS, WGMMA_ROWS), stage.b, accumulate=False)
            ptx.wgmma.commit_group()
            if last:
                done = state.index.copy()
                ring.advance(state)
                with ptx.if_(k_tile + 1 < num_k_tiles):
                    ring.consumer_wait(state)
                following = scales.following(k_tile)
            ptx.wgmma.wait_group(0)
            if last:
                ring.consumer_release(done)
            promote(block, temporary, scales.now[2 * index : 2 * index + 2])
        scales.advance(following)
