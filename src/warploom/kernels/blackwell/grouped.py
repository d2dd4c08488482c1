"""Grouped GEMM on sm_100: rows of A in groups, each group with its own matrix; sizes read on the device.

    D[begins[g] : ends[g]] = A[begins[g] : ends[g]] @ B[g]ᵀ          for every group g, then what `Fusion` says

Idea       The roles of `gemm`, over the tiles of all groups in order. An MMA always costs a whole tile: rows past a
           group's end belong to the next group and are multiplied but not stored.
Roles      load       warp 0, one thread    k-tiles of A, and of the group's matrix
           multiply   warp 1, one thread    alternates between two accumulators, whatever the group
           epilogue   warps 4 to 7          rows before the group's end
Barriers   as in `specialised`
Buffers    the ring; 2 x tile_n columns of tensor memory; row tiles before each group, 4 KiB
Limits     1024 groups; N and K multiples of 16 bytes' worth; tiles of one CTA, since the 256 rows of a pair rarely
           belong to one group
Numbers    assembled and emulated, not run on hardware by the authors
"""

from __future__ import annotations

from functools import partial

from ...collective.epilogue.apply import Epilogue
from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.epilogue.spec import Fusion, Product
from ...collective.epilogue.tensor_store import store_rows
from ...collective.mma.tcgen05 import AccumulatorRing
from ...collective.pipeline.umma import UmmaPipeline
from ...collective.tile.groups import Groups
from ...collective.tile.sizes import STORE_BYTES, OneCtaPerSm
from ...collective.tile.warp_roles import LOAD, MULTIPLY, THREADS, epilogue, one_thread
from ...errors import ArgumentError
from ...isa.dtypes import s32, u32
from ...lang import Kernel, Tile, ptx, tmem
from ..fields import builder
from ..gemm_mainloop import k_tiles
from ..hopper.grouped import LIMITS, rows_of
from .description import GROUPED, ROWS, Config
from .gemm import registers
from .minimal import tmem_columns
from .operands import blackwell_kernel, ring_tile


@builder(keep=32)
def build(
    product: Product = Product(),  # noqa: B008 - frozen
    config: Config = GROUPED,
    fusion: Fusion = Fusion(),  # noqa: B008
    limits: str = "bounds",
) -> Kernel:
    """Build the kernel; call it like that of `kernels.hopper.grouped`: kernel(a, b, *limits, *vectors, out=d).

    Raises ArgumentError if the configuration does not fit.
    """
    check(product, config, fusion, limits)
    tile, k = (ROWS, config.tile_n), product.tile_k
    marks = ("Begins", "Ends") if limits == "bounds" else ("Marks",)

    @blackwell_kernel(
        name="blackwell_grouped",
        in_specs={
            "A": Tile.umma_a("Rows", "K", product.a, tile_m=ROWS, tile_k=k, ragged=True),
            "B": Tile.umma_b("AllN", "K", product.b, major="K", tile_n=config.tile_n, tile_k=k, ragged=True),
            **{name: Tile("Groups", s32) for name in marks},
            **epilogue_arguments(fusion, product.out, rows="Rows", columns="AllN"),
        },
        out_specs={"D": Tile("Rows", "N", product.out, order="rows", multiple=(1, STORE_BYTES // product.out.bytes))},
        grid=OneCtaPerSm(),
        block=THREADS,
        registers=registers(fusion),
    )
    def grouped(A, B, D, **args):
        ring = UmmaPipeline(
            stages=config.stages,
            a=ring_tile(product.a, "K", ROWS, k, config.stages, "ring.a"),
            b=ring_tile(product.b, "K", config.tile_n, k, config.stages, "ring.b"),
        )
        accumulators = AccumulatorRing(*tile, product.accumulator, buffers=config.buffers)
        work = Groups(rows_of(limits, A, args), D, tile)
        work.initialise()
        ring.initialise(accumulators)
        memory = tmem.alloc(tmem_columns(config.tile_n * config.buffers))
        accumulators.open(memory)
        num_k_tiles = k_tiles(A, k)
        with one_thread("load", LOAD):
            load(ring, work, A, B, D, num_k_tiles)
        with one_thread("multiply", MULTIPLY):
            state, turn = ring.consumer_state(), accumulators.producer_state()
            for _tile in work.tiles():
                with accumulators.produce(turn) as into:
                    for k_tile in ptx.range(num_k_tiles):
                        with ring.consume(state) as stage:
                            ptx.tcgen05.multiply(into, stage.a, stage.b, accumulate=k_tile > 0)
        with epilogue():
            store(accumulators, work, D, None if fusion.empty else Epilogue(fusion, D, args))
        memory.dealloc()

    return grouped


def load(ring, work, A, B, D, num_k_tiles):
    """Load the k-tiles of the CTA's tiles, whatever their group."""
    state, k = ring.producer_state(), ring.tiles["a"].layout.k
    for tile in work.tiles():
        column = tile.group * D.shape[1] + tile.column  # among the columns of all matrices
        for k_tile in ptx.range(num_k_tiles):
            with ring.produce(state) as stage:
                ptx.tma.load(stage.a, A.tma_desc(), (k_tile * k, tile.row), stage.full)
                ptx.tma.load(stage.b, B.tma_desc(), (k_tile * k, column), stage.full)


def store(accumulators, work, D, end):
    """Store the rows of the tile that belong to the group."""
    turn = accumulators.consumer_state()
    if end is not None:
        end.begin()
    for tile in work.tiles():
        if end is not None:
            end.vectors_from = tile.group * D.shape[1]
        done = accumulators.consumer_wait(turn)
        release = partial(accumulators.consumer_release, turn)
        store_rows(done, D, tile.row, tile.column, release, epilogue=end, rows=tile.end.view(u32))


def check(product: Product, config: Config, fusion: Fusion, limits: str) -> None:
    """Raise ArgumentError if no such kernel can be built."""
    config.check(product, fusion)
    fusion.check(product.out)
    if config.group != 1 or "MN" in (product.a_major, product.b_major):
        raise ArgumentError(
            "the grouped kernel does not support this configuration",
            got=f"{product}, {config}",
            expected="tiles of one CTA, both operands contiguous in k",
            code="configuration",
        )
    if fusion.bias == "row" or fusion.gate or fusion.addend or fusion.scale_out or fusion.amax:
        raise ArgumentError("the grouped kernel does not support this epilogue", got=fusion,
                            expected="scales, alpha, a column bias, an activation")  # fmt: skip
    if limits not in LIMITS:
        raise ArgumentError("the row ranges of groups have an unknown form", expected=", ".join(LIMITS), got=limits)
