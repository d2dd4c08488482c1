"""Eight-bit floats with a scale for each block of 128 in k: sums are promoted to f32 registers block by block.

    D[m, n] = sum over blocks kb of  scale_a[m, kb] * scale_b[n / 128, kb] * sum over k in kb of A[m, k] * B[n, k]

The tensor core keeps about 14 bits of an eight-bit product's sum. Here it adds up 128 products in a temporary; then the
CUDA cores multiply by the two scales and add in f32. One stage of the ring is one block of k.

Roles      producer   warpgroup 0, one thread: TMA loads, one stage for each block of k
           consumer   every other warpgroup: for each of its blocks of 64 rows wgmma into the temporary, wait, promote

               consumer 0   [wgmma][promote][wgmma][promote]
               consumer 1      [wgmma][promote][wgmma][promote]     they drift apart, and the tensor core
               consumer 2         [wgmma][promote][wgmma][promote]  finds work while the others promote

Barriers   full[s]    1 arrival + bytes of the stage                  producer -> consumers
           empty[s]   1 arrival for each consumer                     -> producer
           bar 1..    128 threads of a consumer, twice for each store box
Scales     read from global memory one block of k ahead: two rows' for each 64 rows of a thread, one for the columns;
           each array may have its blocks of k contiguous ("K") or the others ("MN")
Limits     any M; N of whole 16-byte pieces of D; K a multiple of 128; tile_n divides 128
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...collective import (
    WGMMA_ROWS,
    Persistent,
    State,
    TmaPipeline,
    TmaStore,
    each_consumer,
    k_tiles,
    load_tiles,
    persistent_grid,
    producer,
    set_zero,
    warpgroup_index,
    wgmma_accumulators,
)
from ...collective.raster import grouped
from ...collective.wgmma_mainloop import wgmma_block
from ...errors import ArgumentError
from ...isa.dtypes import e4m3, f32, u64
from ...lang import Kernel, Tile, kernel, ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from . import gemm
from .description import Config, Product

SCALE_MAJORS = ("K", "MN")
SCALE_BLOCK = 128
"""Elements of k, and columns of B, that share a scale."""
CONFIG = Config(tile_m=192, tile_n=128, consumers=3, stages=5, slots=1, ctas=1)
"""Three consumers of 64 rows: with two of them promoting, one is left on the tensor core."""
LARGE_ROWS = Config(tile_m=256, tile_n=128, stages=4, slots=2, ctas=1)
"""Two consumers of 128 rows, whose blocks share a temporary: fewer bytes to load, fewer waves."""


@lru_cache(maxsize=64)
def build(
    product: Product = Product(e4m3, e4m3),  # noqa: B008 - frozen
    config: Config = CONFIG,
    overhang: bool = False,
    scale_a_major: str = "MN",
    scale_b_major: str = "K",
) -> Kernel:
    """The kernel; called as kernel(a, b, scale_a, scale_b, out=d).

    a (M, K), b (N, K); scale_a (K / 128, M), or (M, K / 128) where `scale_a_major` is "K"; scale_b (N / 128 rounded up,
    K / 128), or (K / 128, N / 128) where `scale_b_major` is "MN"; both f32, contiguous; d (M, N).
    `overhang`: as of `gemm.build`.
    Raises ArgumentError where the configuration does not fit.
    """
    config.check(product)
    if config.form != "cooperative" or config.ctas != 1 or SCALE_BLOCK % config.tile_n or product.a.bits != 8:
        raise ArgumentError(
            f"the block-scaled kernel cannot be built as {config.name()}",
            expected=f"eight-bit floats, cooperative, one CTA, tile_n that divides {SCALE_BLOCK}",
            got=f"{product.a}, {config}",
        )

    @kernel(
        in_specs=(
            gemm.operand_a(product, config), gemm.operand_b(product, config),
            scale_array("M", scale_a_major), scale_array("ColumnBlocks", scale_b_major),
        ),
        out_specs=(gemm.result(product, overhang=overhang),),
        grid=persistent_grid((config.tile_m, config.tile_n)),
        block=config.threads,
        arch="sm_90a",
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
        out = TmaStore(D, config.consumers, slots=config.slots)
        ring.initialise()
        warpgroup = warpgroup_index()
        few, many = gemm.registers(config)
        work, count = Persistent(D, (config.tile_m, config.tile_n), grouped(config.group)), k_tiles(A, SCALE_BLOCK)
        with producer(warpgroup, few):
            state = ring.producer_state()
            if config.pdl:
                ptx.griddepcontrol.wait()
            for here in work.tiles():
                load_tiles(ring, state, A, B, here, count)
            if config.pdl:
                ptx.griddepcontrol.launch_dependents()
        for me in each_consumer(warpgroup, config.consumers, many):
            if config.pdl:
                ptx.griddepcontrol.wait()  # the scales are read by the consumers themselves
            state, first = ring.consumer_state(), me * config.rows
            acc = wgmma_accumulators(config.rows, config.tile_n)
            for here in work.tiles():
                layouts = scale_a_major, scale_b_major
                scales = Scales(ScaleA, ScaleB, layouts, here.row + first, here.column, len(acc), count)
                multiply(ring, state, acc, first, count, scales)
                out.store(acc, me, here.row + first, here.column)
            out.finish()

    return block_scaled


def scale_array(along: str, major: str) -> Tile:
    """The array of scales along M or blocks of N, and along blocks of K: "K" has the latter contiguous."""
    if major not in SCALE_MAJORS:
        raise ArgumentError("an array of scales has no such layout", expected=", ".join(SCALE_MAJORS), got=repr(major))
    return Tile(along, "Blocks", f32) if major == "K" else Tile("Blocks", along, f32)


@dataclass
class _Row:
    """A row of a thread: where its scale for the next block of k lies."""

    address: Register
    value: Register


class Scales:
    """The scales of one thread's rows and its tile's columns, read one block of k ahead.

    Args:
        majors: which dimension of ScaleA and of ScaleB is contiguous: "K" or "MN".
        row, column: where the consumer's rows and the tile begin in D.
        blocks: blocks of 64 rows; a thread has two rows of each, 16 w + l / 4 and 8 further (PTX ISA 9.7.15.5.1.1).
        count: blocks of k.
    """

    def __init__(
        self, ScaleA: ArrayHandle, ScaleB: ArrayHandle, majors: tuple[str, str], row: Register, column: Register,
        blocks: int, count: Register,
    ) -> None:  # fmt: skip
        self.count = count
        rows = ScaleA.shape[majors[0] != "K"]
        thread = ptx.special.tid.x() & 127
        mine = row + ((thread >> 5) << 4) + ((thread & 31) >> 2)
        one = reg.scalar(u64, init=f32.bytes)
        self.pitch = one if majors[0] == "K" else rows.to(u64) * f32.bytes
        self.rows = [self._row(ScaleA, mine + offset, rows, majors[0]) for block in range(blocks) for offset in (
            block * WGMMA_ROWS, block * WGMMA_ROWS + 8)]  # fmt: skip
        first = (column // SCALE_BLOCK).to(u64)
        if majors[1] == "K":
            first, self.next_block = first * count, one
        else:
            self.next_block = ScaleB.shape[1].to(u64) * f32.bytes
        address = ScaleB.pointer() + first * f32.bytes
        self.columns = _Row(address, _read(address))

    def _row(self, ScaleA: ArrayHandle, row: Register, rows: Register, major: str) -> _Row:
        """A row behind the end reads the last one's scale, for a result that is not stored."""
        inside = ptx.select(row < rows, row, rows - 1).to(u64)
        if major == "K":
            inside = inside * self.count
        address = ScaleA.pointer() + inside * f32.bytes
        return _Row(address, _read(address))

    def take(self, k_tile: Register) -> list[Register]:
        """The products of both scales for this block of k, one for each row; begins to read those of the next."""
        now = [row.value * self.columns.value for row in self.rows]
        more = k_tile + 1 < self.count
        for row in self.rows:
            row.address += ptx.select(more, self.pitch, 0)
            ptx.inst.ld.global_.nc.f32(row.value, ptx.addr(row.address))
        self.columns.address += ptx.select(more, self.next_block, 0)
        ptx.inst.ld.global_.nc.f32(self.columns.value, ptx.addr(self.columns.address))
        return now


def _read(address: Register) -> Register:
    return ptx.load(f32, ptx.addr(address), cache="nc")


def multiply(
    ring: TmaPipeline, state: State, acc: list[RegisterArray], first_row: int, count: Register, scales: Scales
) -> None:
    """A consumer, for one tile of D: every block of k multiplied into the temporary, scaled, and added to `acc`."""
    temporary = wgmma_accumulators(WGMMA_ROWS, len(acc[0]) * 2)[0]
    set_zero(acc)
    for k_tile in ptx.range(count):
        factors = scales.take(k_tile)
        stage = ring.consumer_wait(state)
        for index, block in enumerate(acc):
            ptx.wgmma.fence()
            wgmma_block(temporary, stage.a.rows(first_row + index * WGMMA_ROWS, WGMMA_ROWS), stage.b, keep=False)
            ptx.wgmma.commit_group()
            ptx.wgmma.wait_group(0)
            if index == len(acc) - 1:
                ring.consumer_release(state)
            promote(block, temporary, factors[2 * index : 2 * index + 2])
        ring.advance(state)


def promote(block: RegisterArray, temporary: RegisterArray, factors: list[Register]) -> None:
    """block += temporary * the factor of its row: of four registers the first two are of one row, the others of the
    row 8 further."""
    for index, (total, part) in enumerate(zip(block, temporary, strict=True)):
        ptx.inst.fma.rn.f32(total, part, factors[index // 2 % 2], total)
