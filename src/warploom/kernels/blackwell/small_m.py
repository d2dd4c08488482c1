"""Few rows of A on sm_100: the rows of B are the MMA's M, and a cluster splits K.

Idea       D of 16 rows costs what reading B costs. The MMA's M is at least 128, so it takes B's rows, and A's few rows
           are its N: Dᵀ = B Aᵀ, and nothing is multiplied for missing rows. Tiles of 128 rows of B are too few for all
           SMs, so each CTA of a cluster multiplies a split of K, and they add up their partial sums through shared
           memory.
Roles      load       warp 0, one thread     this CTA's split of K
           multiply   warp 1, one thread     128 x tokens
           epilogue   warps 4 to 7           a column of D per thread: partial sums to and from the other CTAs, its own
                                             rows of D to memory, 32 columns per warp at a time
Barriers   full[s], empty[s]                 of the ring
           accumulator.full                  MMAs -> epilogue
           received                          partial sums of the other CTAs: bytes of st.async
Buffers    the ring: B 128 x 128 bytes and A tokens x 128 bytes; 2 x 32 columns of tensor memory or more
Limits     any M, N, K; M in tiles of `tokens`; no split of K for integers
Numbers    assembled and emulated, not run on hardware by the authors
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...collective.epilogue.apply import Epilogue
from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.epilogue.row_epilogue import ColumnEpilogue, store_element
from ...collective.epilogue.spec import Fusion, Product
from ...collective.mma.tcgen05 import AccumulatorRing
from ...collective.pipeline.umma import UmmaPipeline
from ...collective.reduce.split_k import DsmemReduce, NoReduce
from ...collective.tile import cluster
from ...collective.tile.warp_roles import LOAD, MULTIPLY, THREADS, epilogue, one_thread
from ...isa.dtypes import u64
from ...lang import Kernel, Tile, ptx, reg, tmem
from ..fields import builder
from ..gemm_mainloop import k_tiles
from .description import ROWS, SmallMConfig
from .gemm import FUSED_REGISTERS
from .minimal import tmem_columns
from .operands import blackwell_kernel, product_operands, ring_tile

PIECE = 32


@dataclass(frozen=True)
class ClusterPerPart:
    """The grid rule: a cluster of `split` CTAs per 128 columns of D along x, tiles of `tokens` rows along y."""

    tokens: int
    split: int

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        return (-(-dims["N"] // ROWS) * self.split, -(-dims["M"] // self.tokens), 1)


@builder(keep=64)
def build(
    config: SmallMConfig = SmallMConfig(),  # noqa: B008 - frozen
    product: Product = Product(),  # noqa: B008
    fusion: Fusion = Fusion(),  # noqa: B008
) -> Kernel:
    """Build D = A B, followed by the epilogue that `fusion` describes; called like `gemm.build`'s kernel, d contiguous.

    Raises ArgumentError if the configuration does not fit.
    """
    config.check(product, fusion)
    tokens, split, stages = config.tokens, config.split_k, config.stages
    of_tokens, of_columns = product_operands(product, tokens, ROWS)
    matrix = Tile("M", "N", product.out)

    @blackwell_kernel(
        name="blackwell_small_m",
        in_specs={"A": of_tokens, "B": of_columns, **epilogue_arguments(fusion, product.out, operand=matrix)},
        out_specs={"D": matrix},
        grid=ClusterPerPart(tokens, split),
        block=THREADS,
        registers=FUSED_REGISTERS,
        cluster=(split, 1, 1),
    )
    def small_m(A, B, D, **args):
        b = ring_tile(product.b, product.b_major, ROWS, product.tile_k, stages, "ring.b")
        a = ring_tile(product.a, product.a_major, tokens, product.tile_k, stages, "ring.a")
        ring = UmmaPipeline(stages=stages, a=a, b=b)
        accumulators = AccumulatorRing(ROWS, tokens, product.accumulator, buffers=1)
        reduce = DsmemReduce(tokens, 1, split) if split > 1 else NoReduce()
        ring.initialise(accumulators, reduce)
        memory = tmem.alloc(tmem_columns(tokens))
        accumulators.open(memory)
        if split > 1:
            cluster.sync_after_init()
        total = k_tiles(A, product.tile_k, product.a_major)
        rank = ptx.special.cluster_ctarank() if split > 1 else reg.scalar(total.dtype, init=0)
        first, after = total * rank // split, total * (rank + 1) // split
        column, row = ptx.special.ctaid.x() // split * ROWS, ptx.special.ctaid.y() * tokens
        with one_thread("load", LOAD):
            state = ring.producer_state()
            for k_tile in ptx.range(first, after):
                with ring.produce(state) as stage:
                    for tile, array, begin in ((stage.b, B, column), (stage.a, A, row)):
                        place = tile.coordinates(begin, k_tile * product.tile_k)
                        ptx.tma.load(tile, array.tma_desc(), place, stage.full)
        with one_thread("multiply", MULTIPLY), ptx.if_(first < after):
            state, turn = ring.consumer_state(), accumulators.producer_state()
            with accumulators.produce(turn) as into:
                for k_tile in ptx.range(first, after):
                    with ring.consume(state) as stage:
                        ptx.tcgen05.multiply(into, stage.b, stage.a, accumulate=k_tile > first)
        with epilogue():
            sums = reg.array(product.accumulator, tokens)
            load_sums(accumulators, sums, first < after)
            end = Epilogue(fusion, D, args)
            end.begin()
            for complete in reduce.combine(sums, 0):
                store(sums, complete, D, row, column, end)
            end.finish()
        memory.dealloc()

    return small_m


def load_sums(accumulators, sums, any_):
    """The accumulators of the thread's lane; zeros if its CTA has no split of K."""
    for value in sums:
        value.set(0)
    with ptx.if_(any_):
        done = accumulators.consumer_wait(accumulators.consumer_state())
        for at in range(0, len(sums), PIECE):
            found = done.load(at, min(PIECE, len(sums) - at)).registers
            ptx.tcgen05.wait_ld()
            for to, value in zip(sums[at : at + PIECE], found, strict=True):
                to.set(value)


def store(sums, complete, D, row, column, end):
    """Store the rows of D that this CTA has complete: each thread stores one element of each row, lanes along
    columns."""
    height, width = D.shape
    mine = column + (ptx.special.tid.x() & (ROWS - 1))
    line = row + complete.start
    exists, pitch = mine < width, width.to(u64) * D.dtype.bytes
    place = D.pointer() + (line.to(u64) * width + mine) * D.dtype.bytes
    ends = ColumnEpilogue(end, line, mine, exists)
    for number, index in enumerate(complete):
        inside = exists & (line + number < height)
        store_element(ptx.addr(place), ends.element(sums[index], number, inside), D.dtype, inside)
        place = place + pitch
