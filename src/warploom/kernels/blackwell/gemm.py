"""Blackwell, third rung: tiles by cluster launch control, and CTA pairs that multiply together.

Idea       Two CTAs on adjacent SMs multiply one tile of 256 rows (tcgen05.mma with cta_group::2). Each loads its 128
           rows of A and half the columns of B, so that shared memory is read 64 bytes per clock instead of 96, and one
           thread in the leader (the even CTA) issues for both. The grid has one cluster per tile. Running clusters take
           over clusters that have not started, so that the next tile's loads begin at once and no wave has to end
           before the next.
Roles      load       warp 0 of each CTA, one thread     its own halves of A and B
           multiply   warp 1 of the leader, one thread   256 x 256 x 16 for both; commits reach both CTAs
           schedule   warp 2 of each CTA, one thread     requests the next cluster (leader only), reads the responses
           epilogue   warps 4 to 7 of each CTA           its 128 rows of the tile
Barriers   as in the rung before; a stage's bytes, of both CTAs, count in the leader; the epilogue warps of both CTAs
           return accumulators to the leader; queue.full[i], queue.empty[i] of the responses: LaunchQueue
Epilogue   the steps of `Fusion`, in the registers of the epilogue's threads, each of which has a row
Limits     any M, N, K; A and B K-major or MN-major, if TMA can read them; D's rows begin at multiples of 16 bytes
Buffers    6 stages of A 128 x 64 and B 128 x 64, 192 KiB; 2 x 256 columns, all of tensor memory
Numbers    assembled and emulated, not run on hardware by the authors
"""

from __future__ import annotations

from functools import partial

from ...collective.epilogue.apply import Epilogue
from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.epilogue.spec import Fusion, Product
from ...collective.epilogue.tensor_store import store_rows
from ...collective.mma.tcgen05 import AccumulatorRing
from ...collective.pipeline.launch_queue import ClusterPerTile, LaunchQueue
from ...collective.pipeline.umma import UmmaPipeline
from ...collective.tile.raster import grouped
from ...collective.tile.warp_roles import LOAD, MULTIPLY, REGISTERS, SCHEDULE, THREADS, epilogue, one_thread
from ...lang import Kernel, Tile, ptx, tmem
from ..fields import builder
from ..gemm_mainloop import k_tiles
from .description import ROWS, Config
from .minimal import tmem_columns
from .operands import blackwell_kernel, product_operands, ring_tile

BAND = 8
"""Tile rows per band of the tile order."""
FUSED_REGISTERS = 232
"""Registers per thread if the epilogue does more than round."""


@builder(keep=64)
def build(
    config: Config = Config(),  # noqa: B008 - frozen
    product: Product = Product(),  # noqa: B008
    fusion: Fusion = Fusion(),  # noqa: B008
    *,
    whole: bool = True,
) -> Kernel:
    """Build D = A B, followed by the epilogue that `fusion` describes, on sm_100.

    Call it as kernel(a, b, ..., out=d). a is (M, K) or, if MN-major, (K, M); b is (N, K) or (K, N); d is (M, N).
    Between b and d come the arguments that `epilogue_arguments` names: arrays, then numbers. whole: rows of d are
    multiples of 16 bytes; otherwise N is arbitrary, and each thread stores the last elements of its row, up to 7 of 16
    bits, one by one, which the check notes (`uncoalesced-access`). Raises ArgumentError if the configuration does not
    fit.
    """
    config.check(product, fusion)
    tile, group, stages = (config.tile_m, config.tile_n), config.group, config.stages
    matrix = Tile("M", "N", product.out, order="rows")
    a_spec, b_spec = product_operands(product, ROWS, config.columns)

    @blackwell_kernel(
        name="blackwell_gemm",
        in_specs={"A": a_spec, "B": b_spec, **epilogue_arguments(fusion, product.out, operand=matrix)},
        out_specs={"D": matrix},
        grid=ClusterPerTile(tile, group),
        block=THREADS,
        registers=registers(fusion),
        cluster=(group, 1, 1),
    )
    def gemm(A, B, D, **epilogue_args):
        a = ring_tile(product.a, product.a_major, ROWS, product.tile_k, stages, "ring.a")
        b = ring_tile(product.b, product.b_major, config.columns, product.tile_k, stages, "ring.b")
        ring = UmmaPipeline(stages=stages, group=group, a=a, b=b)
        accumulators = AccumulatorRing(*tile, product.accumulator, buffers=config.buffers, group=group)
        queue = LaunchQueue(D, tile, grouped(BAND), readers=config.readers, ctas=group)
        ring.initialise(accumulators, queue)
        memory = tmem.alloc(tmem_columns(config.tile_n * config.buffers), group=group)
        accumulators.open(memory)
        num_k_tiles = k_tiles(A, product.tile_k, product.a_major)
        with one_thread("load", LOAD):
            load(ring, queue, A, B, num_k_tiles)
        with one_thread("multiply", MULTIPLY), leader(group):
            multiply(ring, accumulators, queue, num_k_tiles)
        with one_thread("schedule", SCHEDULE):
            queue.schedule()
        with epilogue():
            end = None if fusion.empty else Epilogue(fusion, D, epilogue_args)
            store(accumulators, queue, D, end, whole)
        memory.dealloc()

    return gemm


def registers(fusion: Fusion) -> int:
    """Registers per thread."""
    return REGISTERS if fusion.empty else FUSED_REGISTERS


def leader(group):
    """Run the block in the even CTA of a pair."""
    rank = ptx.special.cluster_ctarank() if group > 1 else ptx.special.ctaid.y()  # 0 in a grid along x
    return ptx.if_(rank == 0)


def load(ring, queue, A, B, num_k_tiles):
    """Load this CTA's rows of A and columns of B: the k-tiles of all tiles in order."""
    state, (rows, tile_k) = ring.producer_state(), ring.tiles["a"].layout.shape
    columns = ring.tiles["b"].layout.rows
    for tile in queue.tiles():
        row, column = tile.row, tile.column
        if ring.group > 1:
            rank = ptx.special.cluster_ctarank()
            row, column = row + rank * rows, column + rank * columns
        for k_tile in ptx.range(num_k_tiles):
            with ring.produce(state) as stage:
                for tile_of, matrix, first in ((stage.a, A, row), (stage.b, B, column)):
                    place = tile_of.coordinates(first, k_tile * tile_k)
                    ptx.tma.load(tile_of, matrix.tma_desc(), place, stage.full, group=ring.loads)


def multiply(ring, accumulators, queue, num_k_tiles):
    """Multiply tile after tile, alternating between the accumulators."""
    state, turn = ring.consumer_state(), accumulators.producer_state()
    for _tile in queue.tiles():
        with accumulators.produce(turn) as into:
            for k_tile in ptx.range(num_k_tiles):
                with ring.consume(state) as stage:
                    ptx.tcgen05.multiply(into, stage.a, stage.b, accumulate=k_tile > 0)


def store(accumulators, queue, D, end, whole):
    """Store this CTA's rows of the full accumulator."""
    turn = accumulators.consumer_state()
    if end is not None:
        end.begin()
    for tile in queue.tiles(whole_warp=True):
        done = accumulators.consumer_wait(turn)
        release = partial(accumulators.consumer_release, turn)
        store_rows(done, D, tile.row, tile.column, release, epilogue=end, whole=whole)
    if end is not None:
        end.finish()
