"""D = A Bᵀ with a 2:4 sparse A: half of A is stored, and the tensor core skips the other half.

Idea       Of every four adjacent elements in a row of A two are zero, and are neither stored nor multiplied. An
           instruction covers 32 of k instead of 16 in the same time. It also needs four bits of metadata per group of
           four, which give the positions of the two stored elements. Every byte of A now serves twice as many products,
           but every byte of B is used for half as many clocks. So B limits the kernel: a tile has many rows, and two
           CTAs share each tile of B.
Operands   values    A (M, K / 2), the stored elements
           metadata  E, one word per thread for each 64 rows and k-tile, in the order in which the threads read it
           `sparse_operand.compress` makes both, and documents which thread holds which bits (PTX ISA 9.7.15.6.1)
Roles      producer   warpgroup 0, one thread    values, metadata, its half of B for both CTAs
           consumer   warpgroups 1, 2            128 rows each, as two blocks of 64: metadata, wgmma, store
Barriers   full[s]    1 arrival + bytes of the stage, metadata too    producers of the cluster -> consumers
           empty[s]   1 arrival of each consumer of each CTA          -> producers (remote, relaxed)
           read[s]    1 arrival of each consumer's warp               consumers -> producer, for the metadata: threads
                      read it, and one thread's wgmma wait does not cover the other threads' reads
           bar 1, 2   128 threads of a consumer, twice for each of its store boxes
           cluster    before the first remote access, and at the end
Ring       `stages` stages of A 256 x 64 bytes, E 4 x 512 bytes (8-bit: 1024), B tile_n x 128 bytes
Registers  a block's metadata is in one register (8-bit: in two), read while the other block's wgmmas run. It is not
           overwritten before its own wgmmas are complete:

               block 0   [read E][issue t  ]         wait [read E][issue t+1]         wait
               block 1               wait  [read E][issue t  ]          wait  [read E][issue t+1]
               tensor    ...    1 of t-1   ][ 0 of t         ][ 1 of t          ][ 0 of t+1     ]

Timeline   producer    tile 0 [0 1 2 ... n] tile 1 [0 1 2 3] waits      [4 ...
           consumers      tile 0 [wgmmas .......][store] tile 1 [wgmmas ....    stores overlap the next wgmmas
Limits     any M; any K; N of whole 16-byte pieces of D; B's rows begin at multiples of 16 bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from examples.hopper.sparse_operand import PADDED_ROWS, SPARSE_STEPS, TYPES, group_of, metadata_words, sparse_stage_k
from warploom.collective.epilogue.arguments import result_tile
from warploom.collective.epilogue.tma_store import TmaStore
from warploom.collective.mma.wgmma import WGMMA_ROWS, wgmma_accumulators
from warploom.collective.pipeline.tma import State, TmaPipeline
from warploom.collective.tile import cluster
from warploom.collective.tile.raster import grouped
from warploom.collective.tile.roles import WARP, WARPGROUP, each_consumer, producer, warpgroup_index
from warploom.collective.tile.scheduler import Persistent
from warploom.collective.tile.sizes import fits, persistent_grid
from warploom.errors import ArgumentError
from warploom.isa.dtypes import DType, bf16, f32, u32
from warploom.isa.instructions.wgmma import FLOAT_N
from warploom.kernels.fields import check_fields
from warploom.kernels.gemm_mainloop import k_tiles, operand_loads
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem
from warploom.lang.arrays import RegisterArray
from warploom.lang.operand_tile import TileSlice
from warploom.lang.predicate import Predicate
from warploom.lang.shared import BarrierAddress
from warploom.lang.tile import ArrayHandle
from warploom.lang.values import Register

__all__ = ["Config", "build"]

CONSUMERS, BLOCKS = 2, 2
"""Consumers, and blocks of 64 rows of each: while one block's wgmmas run, the other's metadata is read."""
TILE_BLOCKS = CONSUMERS * BLOCKS
TILE_M = TILE_BLOCKS * WGMMA_ROWS
BAND = 8
"""Rows of tiles in a band of the raster."""
PRODUCER_REGISTERS, CONSUMER_REGISTERS, LAUNCH_REGISTERS = 24, 240, 168
"""Registers per thread: of the roles, and at launch, because ptxas does not find the latter itself for a narrow
tile."""
MOST_COLUMNS = 192
"""Most columns of a tile: a consumer's thread has as many accumulators."""
OUTPUTS: tuple[DType, ...] = (bf16, f32)


@dataclass(frozen=True)
class Config:
    """Configuration of a sparse product.

    Attributes:
        a: type of A and B; out: type of D, bf16 or f32.
        tile_n: columns of a tile, a multiple of 16 to 192.
        stages: stages of the ring.
        epi_stages: store boxes for each consumer.
        ctas: CTAs per cluster, one above the other, which share B; 1 or 2.
    """

    a: DType = bf16
    out: DType = bf16
    tile_n: int = 192
    stages: int = 4
    epi_stages: int = 3
    ctas: int = 2

    def check(self) -> None:
        """Raise ArgumentError if no kernel can be built from this."""
        group_of(self.a)
        check_fields(self, {"stages": 2})
        if (
            self.out not in OUTPUTS or self.tile_n not in FLOAT_N or self.tile_n > MOST_COLUMNS
            or self.ctas not in (1, 2) or self.tile_n % (8 * self.ctas) or not fits(self.tile_n, self.out)
        ):  # fmt: skip
            raise ArgumentError(
                "no sparse kernel can be built from this",
                expected=f"out of {', '.join(map(str, OUTPUTS))}, 1 or 2 CTAs, tile_n a multiple of 8 times the CTAs "
                f"to {MOST_COLUMNS}",
                got=self,
            )


@lru_cache(maxsize=64)
def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """D (M, N) = A (M, K) @ Bᵀ with a 2:4 sparse A and B (N, K), of one type; D bf16 or f32; sums in f32.

    Called as kernel(*compress(a, dtype).arguments(b), out=d); `arguments` checks that the sizes match.
    Raises ArgumentError if the configuration does not fit.
    """
    config.check()
    words, tile_k = metadata_words(config.a), sparse_stage_k(config.a)
    assert PADDED_ROWS % (config.ctas * TILE_M) == 0 and config.a in TYPES

    @kernel(
        in_specs={
            "A": Tile.wgmma_a("M", "Stored", config.a, tile_m=TILE_M, tile_k=tile_k // 2, ragged=True),
            "E": Tile("RowBlocks", "Words", u32, box=(WARPGROUP * words, TILE_BLOCKS)),
            "B": Tile.wgmma_b(
                "N", "K", config.a, major="K", tile_n=config.tile_n // config.ctas, tile_k=tile_k, ragged=True
            ),
        },
        out_specs={"D": result_tile("M", "N", config.out, order="rows")},
        grid=persistent_grid((TILE_M, config.tile_n), config.ctas),
        block=(1 + CONSUMERS) * WARPGROUP,
        cluster=(config.ctas, 1, 1),
        arch="sm_90a",
        registers=LAUNCH_REGISTERS,
        pdl=True,
        name="sparse",
    )
    def sparse(A, E, B, D):
        stages = config.stages
        metadata = Metadata(stages, words)
        ring = TmaPipeline(
            stages=stages,
            consumers=CONSUMERS,
            ctas=config.ctas,
            more_bytes=metadata.stage_bytes,
            a=smem.wgmma_tile(config.a, (TILE_M, tile_k // 2), stages=stages, name="ring.a"),
            b=smem.wgmma_tile(config.a, (config.tile_n, tile_k), stages=stages, name="ring.b"),
        )
        out = TmaStore(D, CONSUMERS, epi_stages=config.epi_stages)
        ring.initialise(metadata)
        cta, warpgroup = Cta(config, A, E, B, D, ring, metadata, out), warpgroup_index()
        with producer(warpgroup, PRODUCER_REGISTERS):
            produce(cta)
        for me in each_consumer(warpgroup, CONSUMERS, CONSUMER_REGISTERS):
            consume(cta, me)
        cluster.leave()

    return sparse


class Metadata:
    """The metadata of the ring's stages, and the barriers that signal that threads have read it.

    Args:
        stages: stages of the ring.
        words: words per thread, for 64 rows.
    """

    def __init__(self, stages: int, words: int) -> None:
        self.words = words
        self.array = smem.array(u32, (stages, TILE_BLOCKS, WARPGROUP * words), align=128, name="ring.e")
        self.read = smem.mbarrier(stages, name="read")

    @property
    def stage_bytes(self) -> int:
        """Bytes per stage that `full` expects in addition to the tiles."""
        return self.array.bytes // len(self.array)

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        for barrier in self.read:
            ptx.mbarrier.init(barrier, CONSUMERS * WARPGROUP // WARP)

    def load(self, E: ArrayHandle, state: State, k_tile: Register, block: Register, full: BarrierAddress) -> None:
        """The producer: wait until the stage's words have been read, and copy those of a k-tile and four blocks."""
        ptx.mbarrier.wait(self.read[state.index], state.phase)
        place = (k_tile * (WARPGROUP * self.words), block)
        ptx.cp.async_.bulk.tensor(self.array[state.index], E.tma_desc(), place, full)

    def of(self, state: State, block: int) -> list[Register]:
        """This thread's words of a block of 64 rows in the current stage."""
        first = (ptx.special.tid.x() & (WARPGROUP - 1)) * self.words
        place = self.array[state.index, block, first]
        if self.words == 1:
            return [ptx.load(u32, place)]
        return list(ptx.load(u32, place, vector=self.words))

    def release(self, state: State) -> None:
        """Signal that a consumer's warp has read its words of the stage."""
        ptx.fence.proxy_async_shared_cta()  # what threads have read is overwritten by TMA
        ptx.warp.sync()
        ptx.mbarrier.arrive(self.read[state.index], pred=(ptx.special.tid.x() & (WARP - 1)) == 0)


@dataclass
class Cta:
    """Arrays and shared memory that the roles share. Each role computes the rest itself to save registers."""

    config: Config
    A: ArrayHandle
    E: ArrayHandle
    B: ArrayHandle
    D: ArrayHandle
    ring: TmaPipeline
    metadata: Metadata
    out: TmaStore

    def work(self) -> Persistent:
        """The CTA's tiles."""
        return Persistent(self.D, (TILE_M, self.config.tile_n), grouped(BAND), self.config.ctas)

    def num_k_tiles(self) -> Register:
        """k-tiles per tile."""
        return k_tiles(self.B, sparse_stage_k(self.config.a))


def produce(cta: Cta) -> None:
    """The producer: values, metadata and B of the k-tiles of all tiles, in order."""
    ring, tile_k = cta.ring, sparse_stage_k(cta.config.a)
    work, num_k_tiles, state = cta.work(), cta.num_k_tiles(), ring.producer_state()
    ptx.griddepcontrol.wait()
    for tile in work.tiles():
        load_a, load_b = operand_loads(cta.config.ctas, "b")
        block = tile.row // WGMMA_ROWS
        for k_tile in ptx.range(num_k_tiles):
            with ring.produce(state) as stage:
                load_a(stage.a, cta.A, (k_tile * (tile_k // 2), tile.row), stage.full)
                cta.metadata.load(cta.E, state, k_tile, block, stage.full)
                load_b(stage.b, cta.B, (k_tile * tile_k, tile.column), stage.full)
    ptx.griddepcontrol.launch_dependents()


def consume(cta: Cta, me: int) -> None:
    """Consumer `me`: multiplies and stores its 128 rows of every tile."""
    state, first = cta.ring.consumer_state(), me * BLOCKS
    acc, num_k_tiles = wgmma_accumulators(BLOCKS * WGMMA_ROWS, cta.config.tile_n), cta.num_k_tiles()
    for tile in cta.work().tiles():
        multiply(cta, state, acc, first, num_k_tiles)
        cta.out.store(acc, me, tile.row + first * WGMMA_ROWS, tile.column)
    cta.out.finish()


def multiply(cta: Cta, state: State, acc: list[RegisterArray], first: int, num_k_tiles: Register) -> None:
    """A consumer, for one tile: block by block, each a group of its own, with one group always in flight.

    `first`: number of its first block in the tile. When a block's group has been issued, the previous group, the other
    block's, is complete. Its metadata may then be overwritten, and after block 0 the previous stage is free.
    """
    ring, previous = cta.ring, reg.scalar(u32, init=0)
    for k_tile in ptx.range(num_k_tiles):
        stage = ring.consumer_wait(state)
        later = k_tile != 0
        for index, block in enumerate(acc):
            metadata = cta.metadata.of(state, first + index)
            if index == BLOCKS - 1:
                cta.metadata.release(state)
            ptx.wgmma.fence()
            rows = stage.a.rows((first + index) * WGMMA_ROWS, WGMMA_ROWS)
            sparse_block(block, rows, stage.b, metadata, accumulate=later)
            ptx.wgmma.commit_group()
            ptx.wgmma.wait_group(1)
            if index == 0:
                ring.consumer_release(previous, only=later)
        previous.set(state.index)
        ring.advance(state)
    ptx.wgmma.wait_group(0)
    ring.consumer_release(previous)


def sparse_block(
    block: RegisterArray, a: TileSlice, b: TileSlice, metadata: Sequence[Register], *, accumulate: bool | Predicate
) -> None:
    """block += A @ Bᵀ of 64 rows and one stage of two instructions, without fence and commit.

    For 16- and 32-bit elements, a register holds the metadata of half an instruction for two rows. Of four adjacent
    threads, two then hold all metadata of the first instruction and two all of the second: both instructions get the
    same register, with different selectors. For bytes, all four threads are needed for one instruction, and each
    instruction has its own register (PTX ISA 9.7.15.6.1).

    Args:
        block: a thread's accumulators.
        a, b: K-major tiles, 64 and 128 bytes deep.
        metadata: `metadata_words` registers, b32 or u32, which must not be written before the wgmmas are complete.
        accumulate: if false, the first wgmma overwrites the accumulators.
    """
    words = metadata_words(b.layout.dtype)
    for step in range(SPARSE_STEPS):
        word, selector = (metadata[step], 0) if words == SPARSE_STEPS else (metadata[0], step)
        ptx.wgmma.mma_async(
            shape=(WGMMA_ROWS, b.rows_count, 2 * b.layout.instruction_k), dtype_d=block.dtype,
            dtype_a=a.layout.dtype, dtype_b=b.layout.dtype, d=block, a=a.k(step), b=b.k(step, width=2),
            scale_d=accumulate if step == 0 else True, metadata=word, selector=selector,
        )  # fmt: skip
