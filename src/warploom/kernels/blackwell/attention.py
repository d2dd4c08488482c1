"""Attention forward on sm_100, in the style of FlashAttention-4: five kinds of warps, S, P and O in tensor memory.

Idea       A CTA has two tiles of 128 queries, strands 0 and 1: while one is in its softmax, the matrix unit multiplies
           for the other. A softmax thread has its own row, so maxima and sums need no other lane, and it never touches
           O: if a row's maximum grew by more than 2^8, it tells the correction warps, which scale O in tensor memory
           before the next P V. P goes to tensor memory and is the A operand of P V from there.
Roles      softmax      warps 0 to 3, 4 to 7     S to registers, maximum, exponentials, P; 128 threads per strand
           correction   warps 8 to 11            O times a factor if needed; at the end O / sum to shared memory
           multiply     warp 12, one thread      S = Q Kᵀ, O += P V, both strands
           store        warp 13, one thread      O by TMA
           load         warp 14, one thread      Q, K, V, K, V ... by TMA
Barriers   q.full[s], q.empty[s]      queries of a strand; kv.full, kv.empty   the ring of keys and values
           scores[s]     1, commit    S is complete, and so is every earlier MMA
           ready[s]      8 warps      P is written, S has been read, and O is scaled: softmax and correction
           drained[s]    1, commit    P V is complete, so that S may be written over P; only if they share columns
           finished[s]   1, commit    the last P V of a block is complete
           told[s], heard[s]   4, 4   a factor per row: softmax -> correction
           stored[s], free[s]  4, 1   O in shared memory: correction -> store
Buffers    128 wide: queries and O 64 KiB each, 3 stages of 32 KiB; columns S 2 x 128 (P in the upper half of each), O
           2 x 128. 64 wide: 32 KiB each, 6 stages of 16 KiB; P has its own 2 x 64 columns
Timeline   multiply   S0 S1 | O0 S0 | O1 S1 | O0 S0 | ...     softmax 0 runs under "O1 S1", softmax 1 under "O0 S0"
Order      The ISA orders neither MMAs of different accumulators, nor an MMA that overwrites what another reads as A.
           So `drained` is waited for before S is written over P; FlashAttention-4 relies on the unit there
Numbers    assembled and emulated, not run on hardware by the authors
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...collective.pipeline.tma import State
from ...collective.pipeline.umma import UmmaPipeline
from ...collective.tile.roles import WARPGROUP, warpgroup_index
from ...collective.tile.warp_roles import one_thread
from ...isa.dtypes import f32, s32, u32
from ...lang import Kernel, Scalar, Tile, ptx, reg, smem, tmem
from ...lang.predicate import Predicate
from ...lang.tensor_address import TensorAddress
from ..fields import builder
from ..hopper.attention_config import Attention, OnePerSm
from ..hopper.attention_tiles import BlockScheduler, QueryBlock
from ..hopper.description import PANEL
from .attention_config import COLUMNS, LAUNCH_REGISTERS, REGISTERS, ROWS, STRANDS, Config
from .attention_rows import Correction, Softmax
from .operands import blackwell_kernel

THREADS = 4 * WARPGROUP
MULTIPLY, STORE, LOAD = 12, 13, 14


COUNTS = {"scores": 1, "ready": 8, "drained": 1, "finished": 1, "told": 4, "heard": 4, "stored": 4, "free": 1}
"""Arrivals per phase."""


class Barriers:
    """The barriers between the roles, two of each; see the module's docstring."""

    def __init__(self) -> None:
        made = (smem.mbarrier(STRANDS, name=name) for name in COUNTS)
        self.scores, self.ready, self.drained, self.finished, self.told, self.heard, self.stored, self.free = made

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        for name, count in COUNTS.items():
            for strand in range(STRANDS):
                ptx.mbarrier.init(getattr(self, name)[strand], count)


@dataclass
class Cta:
    """The data that the roles share."""

    of: Attention
    config: Config
    blocks: BlockScheduler
    bars: Barriers
    queries: UmmaPipeline
    ring: UmmaPipeline
    values: smem.OperandTile
    out: smem.OperandTile
    scores: Any
    sums: Any
    P: Any

    def each_block(self) -> Any:
        """This CTA's blocks, longest first; a run-time loop in each role."""
        for number in ptx.range(ptx.special.ctaid.x(), self.blocks.count, ptx.special.nctaid.x()):
            yield self.blocks.block_at(number)

    def p(self, strand: Any) -> TensorAddress:
        """P of a strand, as an A operand: its own columns, or the upper half of S."""
        if self.P is not None:
            return self.P[strand]
        place = self.scores[strand]
        return TensorAddress(place.base, place.column + self.config.tile_n // 2, self.of.dtype)


@builder()
def build(of: Attention, config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """Build the kernel: O (B, S, H, D) and LSE (B, H, S) of Q (B, S, H, D), K and V (B, T, G, D), H divisible by G.

    Any strides but the innermost; any lengths. `scale` is log2(e) times the scale of the scores. `last`, if `of` has a
    diagonal: query i sees keys up to i + last. `section`: heads whose blocks are computed next to each other.
    Raises ArgumentError for head sizes other than 64 and 128, and for anything but full or causal attention.
    """
    config.check(of)
    wide, stages = of.head_dim, config.shared_stages(of)
    of_queries = Tile.operand("B", "S", "H", wide, of.dtype, along=1, tile=(ROWS, wide))
    of_keys = Tile.operand("B", "T", "G", wide, of.dtype, along=1, tile=(config.tile_n, wide))

    def attention(Q, K, V, scale, section, O, LSE, last=None):  # noqa: E741, N803 - the field's names
        q, out = (smem.umma_tile(of.dtype, (ROWS, wide), stages=STRANDS, name=name) for name in "QO")
        kv = smem.umma_tile(of.dtype, (config.tile_n, wide), stages=stages, name="KV")
        queries, ring = UmmaPipeline(stages=STRANDS, q=q), UmmaPipeline(stages=stages, kv=kv)
        factors = smem.array(f32, STRANDS * ROWS, name="factors")
        blocks, bars = BlockScheduler(of, config, Q, K, section, last, None), Barriers()
        queries.initialise(ring, bars)
        memory = tmem.alloc(COLUMNS, warp=8)
        scores = memory.accumulator(ROWS, config.tile_n, buffers=STRANDS, name="S")
        sums = memory.accumulator(ROWS, wide, buffers=STRANDS, name="O")
        own = None if config.overlaid(of) else memory.matrix_a(config.tile_n, of.dtype, buffers=STRANDS, name="P")
        cta = Cta(of, config, blocks, bars, queries, ring, kv.transposed(), out, scores, sums, own)
        warpgroup = warpgroup_index()
        with ptx.if_(warpgroup == 3):
            ptx.setmaxnreg.dec(REGISTERS["others"])
            with one_thread("multiply", MULTIPLY):
                Multiplier(cta).run()
            with one_thread("store", STORE):
                store(cta, O)
            with one_thread("load", LOAD):
                load(cta, Q, K, V)
        with ptx.elif_(lambda: warpgroup == 2):
            ptx.setmaxnreg.dec(REGISTERS["correction"])
            Correction(cta, factors).run()
        with ptx.else_():
            ptx.setmaxnreg.inc(REGISTERS["softmax"])
            Softmax(cta, factors, warpgroup, scale, LSE).run()
        memory.dealloc(warp=8)

    return blackwell_kernel(
        in_specs={
            "Q": of_queries, "K": of_keys, "V": of_keys, "scale": Scalar(f32), "section": Scalar(u32),
            **({"last": Scalar(s32)} if of.window_right else {}),
        },
        out_specs={
            "O": Tile("B", "S", "H", wide, of.dtype, box=(PANEL, 1, ROWS, 1), swizzle="128B", order="rows"),
            "LSE": Tile("B", "H", "S", f32),
        },
        grid=OnePerSm(config.tile_m), block=THREADS, registers=LAUNCH_REGISTERS, name="blackwell_attention",
    )(attention)  # fmt: skip


def load(cta: Cta, Q: Any, K: Any, V: Any) -> None:
    """Load both tiles of queries, then keys and values alternately, in the order in which they are multiplied."""
    at_q, at = cta.queries.producer_state(), cta.ring.producer_state()
    for block in cta.each_block():
        start = block.start.copy()

        def fetch(array: Any, start: Any = start, block: QueryBlock = block) -> None:
            with cta.ring.produce(at) as stage:
                ptx.tma.load(stage.kv, array.tma_desc(), (0, block.kv_head, start, block.batch), stage.full)

        for strand in range(STRANDS):
            with cta.queries.produce(at_q) as stage:
                ptx.tma.load(stage.q, Q.tma_desc(), (0, block.head, block.row + ROWS * strand, block.batch), stage.full)
            if strand == 0:
                fetch(K)
        for _ in ptx.range(block.after_first):
            fetch(V)
            start -= cta.config.tile_n
            fetch(K)
        fetch(V)


class Multiplier:
    """The thread that issues all MMAs, and its position in the rings."""

    def __init__(self, cta: Cta) -> None:
        self.cta, self.bars, self.overlaid = cta, cta.bars, cta.P is None
        self.queries = [cta.queries.tiles["q"][strand] for strand in range(STRANDS)]
        self.scores = [cta.scores[strand] for strand in range(STRANDS)]
        self.sums = [cta.sums[strand] for strand in range(STRANDS)]
        self.p = [cta.p(strand) for strand in range(STRANDS)]
        self.at = cta.ring.consumer_state()
        self.tile, self.block = (reg.scalar(u32, init=0) for _ in range(2))  # parities

    def take(self) -> State:
        """Wait for the next keys or values. Returns their position in the ring."""
        here = State(self.at.index.copy(), self.at.phase)
        self.cta.ring.consumer_wait(self.at)
        self.cta.ring.advance(self.at)
        return here

    def multiply_keys(self, strand: int, here: State) -> None:
        """S = Q Kᵀ."""
        keys = self.cta.ring.tiles["kv"][here.index]
        ptx.tcgen05.multiply(self.scores[strand], self.queries[strand], keys, accumulate=False)
        ptx.tcgen05.commit(self.bars.scores[strand])

    def multiply_values(self, strand: int, here: State, accumulate: Predicate) -> None:
        """O += P V, once P is written and O is scaled."""
        ptx.mbarrier.wait(self.bars.ready[strand], self.tile)
        ptx.tcgen05.fence_after_thread_sync()
        ptx.tcgen05.multiply(self.sums[strand], self.p[strand], self.cta.values[here.index], accumulate=accumulate)

    def run(self) -> None:
        """Issue all MMAs of the CTA."""
        cta, bars = self.cta, self.bars
        drained = reg.scalar(u32, init=0)
        for block in cta.each_block():
            keys: State | None = None
            for strand in range(STRANDS):
                ptx.mbarrier.wait(cta.queries.full[strand], self.block)
                keys = keys or self.take()
                self.multiply_keys(strand, keys)
            assert keys is not None
            cta.ring.consumer_commit(keys)
            later = reg.scalar(u32, init=0)
            for _ in ptx.range(block.after_first):
                values = self.take()
                following: State | None = None
                for strand in range(STRANDS):
                    self.multiply_values(strand, values, later != 0)
                    if self.overlaid:
                        ptx.tcgen05.commit(bars.drained[strand])
                    following = following or self.take()
                    if strand == STRANDS - 1:
                        cta.ring.consumer_commit(values)
                    if self.overlaid:
                        ptx.mbarrier.wait(bars.drained[strand], drained)
                    self.multiply_keys(strand, following)
                assert following is not None
                cta.ring.consumer_commit(following)
                drained ^= 1
                self.tile ^= 1
                later.set(1)
            values = self.take()
            for strand in range(STRANDS):
                ptx.tcgen05.commit(cta.queries.empty[strand])
                self.multiply_values(strand, values, later != 0)
                ptx.tcgen05.commit(bars.finished[strand])
            cta.ring.consumer_commit(values)
            if self.overlaid:  # S of the next block is written where P was
                for strand in range(STRANDS):
                    ptx.mbarrier.wait(bars.finished[strand], self.block)
            self.tile ^= 1
            self.block ^= 1


def store(cta: Cta, O: Any) -> None:  # noqa: E741, N803
    """Store O of a strand, panel by panel, as soon as the correction warps have written it."""
    phase = reg.scalar(u32, init=0)
    for block in cta.each_block():
        for strand in range(STRANDS):
            ptx.mbarrier.wait(cta.bars.stored[strand], phase)
            for panel in range(cta.of.head_dim // PANEL):
                source = cta.out[strand] + panel * cta.out.layout.panel_bytes
                place = (panel * PANEL, block.head, block.row + ROWS * strand, block.batch)
                ptx.tma.store(O.tma_desc(), source, place)
            ptx.cp.async_.bulk.commit_group()
            ptx.cp.async_.bulk.wait_group_read(0)
            ptx.mbarrier.arrive(cta.bars.free[strand])
        phase ^= 1
    ptx.cp.async_.bulk.wait_group(0)
