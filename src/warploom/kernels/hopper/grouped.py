"""Grouped GEMM: rows of A in groups, each group with its own matrix; one launch, sizes read on the device.

    D[begins[g] : ends[g]] = A[begins[g] : ends[g]] @ B[g]ᵀ          for every group g

followed by scales and the parts of `Fusion` that belong to a row or a column. Contiguous groups are described by their
ends ("offsets"); masked groups, which have a fixed capacity and are partly filled, by their numbers of rows ("sizes").
Rows between groups are not touched, groups may be empty, and no row has to be moved or padded. A tile that crosses the
end of its group reads rows of the next group and does not store them.

Roles      producer   warpgroup 0, one thread: TMA loads of the k-tiles of the CTA's tiles, whatever their group
           consumer   every other warpgroup: wgmma for its rows; whole blocks are stored by TMA, the last rows of a
                      group one by one. Row scales and a bias are loaded before the main loop (`TileVectors`)
Schedules  cooperative   the consumers split the rows of one tile
           ping_pong     each has its own tile; one stores while the other multiplies, which counts for a short K
Boxes      of A stay inside the tensor, whose missing rows cost TMA several times as much as others: they are clipped to
           its rows, and a last tile is moved back over rows of other groups. Rows past a clipped box hold anything, and
           are not stored
Barriers   full[s]    1 arrival + bytes of the stage                        producer -> consumers
           empty[s]   1 arrival for each consumer that reads the stage      -> producer
           bar 1..    128 threads of a consumer, twice per store box; after writing and reading a tile's vectors
           order      ping-pong: two more named barriers, 128 threads wait and 128 arrive
Buffers    the ring; store boxes; the consumers' vectors; the row tiles before each group, 4 KiB
Limits     1024 groups; N and K multiples of 16 bytes' worth; columns beyond N belong to the next matrix: not stored
"""

from __future__ import annotations

from collections.abc import Mapping

from ...collective.epilogue.apply import Epilogue
from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.epilogue.partial_store import store_rows_of
from ...collective.epilogue.tile_vectors import TileVectors
from ...collective.epilogue.tma_store import FIRST_BARRIER, TmaStore
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...collective.pipeline.tma import TmaPipeline
from ...collective.tile.groups import Bounds, Groups, Limits, Offsets, Sizes
from ...collective.tile.moved_tiles import at_most, moved
from ...collective.tile.ordered_barrier import OrderedBarrier
from ...collective.tile.roles import each_consumer, producer, warpgroup_index
from ...collective.tile.sizes import OneCtaPerSm
from ...errors import ArgumentError
from ...isa.dtypes import s32
from ...lang import Kernel, Tile, kernel, ptx
from ...lang.tile import ArrayHandle
from ..fields import builder
from ..gemm_mainloop import ConsumerLoop, k_tiles
from . import gemm
from .description import TILE_K_BYTES, Config, Fusion, Product
from .grouped_config import CONFIG, check

LIMITS = ("bounds", "offsets", "sizes")


@builder(keep=64)
def build(
    product: Product = Product(),  # noqa: B008 - frozen
    config: Config = CONFIG,
    fusion: Fusion = Fusion(),  # noqa: B008
    limits: str = "bounds",
) -> Kernel:
    """Build the kernel; call it as kernel(a, b, *limits, *vectors, out=d).

    a (Rows, K); b (Groups * N, K), the matrices stacked along N; d (Rows, N).
    limits, s32: "bounds": begins (Groups,) and ends (Groups,); "offsets": ends; "sizes": the number of rows of each
    group, whose capacity is Rows / Groups.
    vectors, by `fusion`: scale_a (Rows,) and scale_b (Groups * N,), or one number each; bias (Groups * N,). The
    epilogue supports scales, a bias of the column, alpha and an activation. Raises ArgumentError if the configuration
    does not fit.
    """
    check(product, config, fusion)
    if limits not in LIMITS:
        raise ArgumentError("unknown description of the groups' rows", expected=", ".join(LIMITS), got=limits)
    tile_m, tile_n, ping_pong = config.tile_m, config.tile_n, config.kernel_schedule == "ping_pong"
    marks = ("Begins", "Ends") if limits == "bounds" else ("Marks",)
    more = epilogue_arguments(fusion, product.out, rows="Rows", columns="AllN")

    @kernel(
        in_specs={
            "A": Tile.wgmma_a("Rows", "K", product.a, tile_m=tile_m, tile_k=product.tile_k, ragged=True, clipped=True),
            "B": Tile.wgmma_b("AllN", "K", product.b, major="K", tile_n=tile_n, tile_k=product.tile_k, ragged=True),
            **{name: Tile("Groups", s32) for name in marks}, **more,
        },
        out_specs={"D": gemm.result(product, rows="Rows")},
        grid=OneCtaPerSm(),
        block=config.threads,
        arch="sm_90a",
        registers=gemm.launch_registers(config),
        pdl=config.pdl,
        name="grouped",
    )  # fmt: skip
    def grouped(A, B, D, **args):
        ring = TmaPipeline(
            stages=config.stages,
            consumers=1 if ping_pong else config.consumers,
            a=gemm.ring_tile(product.a, "K", tile_m, product.tile_k, config.stages, "ring.a"),
            b=gemm.ring_tile(product.b, "K", tile_n, product.tile_k, config.stages, "ring.b"),
        )
        producer_regs, consumer_regs = gemm.role_registers(config, not fusion.empty)
        epilogue = None
        if not fusion.empty:
            spare = max(consumer_regs - config.accumulators - gemm.ADDRESS_REGS, 0)
            epilogue = Epilogue(fusion, D, args, spare=spare)
        out = TmaStore(D, config.consumers, epi_stages=config.epi_stages, epilogue=epilogue)
        vectors = None
        if epilogue is not None and epilogue.registers_per_atom():
            vectors = TileVectors(epilogue, config.consumers, config.rows, tile_n, FIRST_BARRIER)
        work = Groups(rows_of(limits, A, args), D, (tile_m, tile_n), at_once=4)
        rows = A.shape[0]
        with ptx.if_(ptx.special.tid.x() == 0):
            for array in (A, B):
                ptx.tma.prefetch_descriptor(array.tma_desc())
        if config.pdl:
            ptx.griddepcontrol.wait()  # sizes are read by all roles
        work.initialise()
        ring.initialise()
        num_k_tiles, warpgroup = k_tiles(A, product.tile_k), warpgroup_index()
        with producer(warpgroup, producer_regs):
            state, loaded = ring.producer_state(), (at_most(rows, tile_m) + tile_n) * TILE_K_BYTES
            for tile in work.tiles():
                row = moved(tile.row, rows, tile_m)
                column = tile.group * D.shape[1] + tile.column  # among the columns of all matrices
                for k_tile in ptx.range(num_k_tiles):
                    with ring.produce(state, stage_bytes=loaded) as stage:
                        k = k_tile * product.tile_k
                        ptx.tma.load(stage.a, A.tma_desc(), (k, row), stage.full)
                        ptx.tma.load(stage.b, B.tma_desc(), (k, column), stage.full)
            if config.pdl:
                ptx.griddepcontrol.launch_dependents()
        for me in each_consumer(warpgroup, config.consumers, consumer_regs):
            out.begin()
            state, first = ring.consumer_state(), 0 if ping_pong else me * config.rows
            acc = wgmma_accumulators(config.rows, tile_n, dtype=product.accumulator)
            loop, turns = ConsumerLoop(ring, state), OrderedBarrier(1 + config.consumers) if ping_pong else None
            if turns is not None:
                turns.begin(me)
                if me:
                    ring.skip(state, num_k_tiles)
            for tile in work.tiles(*((me, config.consumers) if ping_pong else ())):
                row = moved(tile.row, rows, tile_m) + first
                if vectors is not None:
                    vectors.load(me, row, tile.column, tile.group * D.shape[1])
                if turns is not None:
                    turns.wait(me)
                for stage, accumulate in loop.stages(num_k_tiles):
                    wgmma_stage(acc, stage.a.rows(first, config.rows), stage.b, accumulate=accumulate)
                if turns is not None:
                    turns.pass_on(me)
                loop.drain()
                if turns is not None:
                    ring.skip(state, num_k_tiles)
                if vectors is not None:
                    vectors.publish()
                store_rows_of(out, acc, me, row, tile.column, tile.row, tile.end)
            out.finish()

    return grouped


def rows_of(limits: str, A: ArrayHandle, args: Mapping[str, ArrayHandle]) -> Limits:
    """The rows of each group."""
    if limits == "bounds":
        return Bounds(args["Begins"], args["Ends"])
    if limits == "offsets":
        return Offsets(args["Marks"])
    return Sizes(args["Marks"], A.shape[0])
