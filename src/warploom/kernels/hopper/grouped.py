"""Grouped products: rows of A in groups, each group with a matrix of its own; one launch, sizes read on the device.

    D[begins[g] : ends[g]] = A[begins[g] : ends[g]] @ B[g]ᵀ          for every group g

Contiguous segments are begins = offsets[:-1], ends = offsets[1:]; masked ones (a fixed room for each group, partly
filled) begins = g * room, ends = begins + filled. Rows between groups are not touched, groups may be empty, and no row
has to be moved or padded: a tile that hangs over its group's end reads rows of the next group and does not store them.

Roles      producer   warpgroup 0, one thread: TMA loads of the k-tiles of the CTA's tiles, whatever their group
           consumer   every other warpgroup: wgmma for its rows; whole blocks leave by TMA, the group's last rows one
                      by one
Barriers   full[s]    1 arrival + bytes of the stage       producer -> consumers
           empty[s]   1 arrival for each consumer          -> producer
           bar 1..    128 threads of a consumer, twice for each of its store boxes
Buffers    the ring; store boxes; how many rows of tiles stand before each group, 4 KiB
Limits     1024 groups; N and K multiples of 16 bytes' worth; columns behind N are those of the next matrix, not stored
"""

from __future__ import annotations

from functools import lru_cache

from ...collective import (
    TmaPipeline,
    TmaStore,
    each_consumer,
    k_tiles,
    load_tiles,
    multiply_tiles,
    producer,
    warpgroup_index,
    wgmma_accumulators,
)
from ...collective.groups import GroupPlace, Groups, store_group_rows
from ...collective.schedule import Place
from ...errors import ArgumentError
from ...isa.dtypes import s32
from ...lang import Kernel, Tile, kernel, ptx
from ...lang.values import Register
from . import gemm
from .description import Config, Product

CONFIG = Config(tile_m=128, tile_n=256, stages=4, slots=1, ctas=1)
"""Groups of some hundred rows."""
SMALL_GROUPS = Config(tile_m=64, tile_n=256, consumers=1, stages=5, slots=1, ctas=1)
"""Groups of up to 64 rows: nothing is multiplied for the rest of a larger tile."""


@lru_cache(maxsize=64)
def build(product: Product = Product(), config: Config = CONFIG) -> Kernel:  # noqa: B008 - frozen
    """The kernel; called as kernel(a, b, begins, ends, out=d).

    a (Rows, K); b (Groups * N, K), the matrices below each other; begins and ends (Groups,) s32; d (Rows, N).
    Raises ArgumentError where the configuration does not fit.
    """
    config.check(product)
    if config.form != "cooperative" or config.ctas != 1 or "MN" in (product.a_major, product.b_major):
        raise ArgumentError(
            f"the grouped kernel cannot be built as {config.name()}",
            expected="a cooperative form, one CTA, both operands contiguous in k",
            got=f"{product}, {config}",
        )
    tile_m, tile_n = config.tile_m, config.tile_n

    @kernel(
        in_specs=(
            Tile.wgmma_a("Rows", "K", product.a, tile_m=tile_m, tile_k=product.tile_k, ragged=True),
            Tile.wgmma_b("AllN", "K", product.b, major="K", tile_n=tile_n, tile_k=product.tile_k, ragged=True),
            Tile("Groups", s32), Tile("Groups", s32),
        ),
        out_specs=(gemm.result(product, rows="Rows"),),
        grid=lambda dims, machine: (machine.sms, 1, 1),
        block=config.threads,
        arch="sm_90a",
        pdl=config.pdl,
        name="grouped",
    )  # fmt: skip
    def grouped(A, B, Begins, Ends, D):
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.consumers,
            a=gemm.ring_tile(product.a, "K", tile_m, product.tile_k, config.stages, "ring.a"),
            b=gemm.ring_tile(product.b, "K", tile_n, product.tile_k, config.stages, "ring.b"),
        )
        out = TmaStore(D, config.consumers, slots=config.slots)
        work = Groups(Begins, Ends, D, (tile_m, tile_n))
        if config.pdl:
            ptx.griddepcontrol.wait()  # sizes are read by all roles
        work.initialise()
        ring.initialise()
        count, warpgroup = k_tiles(A, product.tile_k), warpgroup_index()
        few, many = gemm.registers(config)
        with producer(warpgroup, few):
            state = ring.producer_state()
            for here in work.tiles():
                load_tiles(ring, state, A, B, operands(here, D.shape[1]), count)
            if config.pdl:
                ptx.griddepcontrol.launch_dependents()
        for me in each_consumer(warpgroup, config.consumers, many):
            state, first = ring.consumer_state(), me * config.rows
            acc = wgmma_accumulators(config.rows, tile_n, dtype=product.accumulator)
            for here in work.tiles():
                multiply_tiles(ring, state, acc, first, count, overwrite=True)
                store_group_rows(out, acc, me, here.row + first, here.column, here.end)
            out.finish()

    return grouped


def operands(here: GroupPlace, columns: Register) -> Place:
    """Where a tile's operands begin: its rows in A, its columns among all the matrices' in B."""
    return Place(here.row, here.group * columns + here.column)
