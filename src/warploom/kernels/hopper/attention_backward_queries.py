"""dQ: a block of queries and their dO stay in shared memory; tiles of keys and values stream past.

Roles      producer    warpgroup 0, one thread      TMA of Q and dO once, then of K and V, tile by tile
           consumer    warpgroups 1, 2              64 queries each; dQ, lse2 and delta in registers
Memory     Q, dO       the CTA's queries, one stage; each consumer's rows of Q become its dQ at the end
           K, V        a ring of tiles of keys
Barriers   q.full           1 arrival + bytes of Q and dO             producer -> consumers, once
           k.full[s]        1 arrival + bytes of a tile               producer -> consumers
           k.empty[s]       1 arrival of each consumer                consumers -> producer
           1, 2 (named)     the warps of one consumer, around its store of dQ
Timeline   a consumer, while the other one multiplies

           S = Q Kᵀ | dP = dO Vᵀ | P, dS in registers | dQ += dS K

K is loaded once and read twice: as n x k for S, and as k x n for dQ (`OperandTile.transposed`).
"""

from __future__ import annotations

from typing import Any

from ...collective import TmaPipeline, each_consumer, producer, warpgroup_index
from ...collective.epilogue.whole_store import WholeStore
from ...collective.mma.fragment import Fragment, half_of
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_block
from ...collective.tile.roles import WARPGROUP
from ...isa.dtypes import f32, s32, u32, u64
from ...lang import Kernel, kernel, ptx, reg, smem
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..fields import builder
from .attention_backward import (
    BackwardConfig,
    BlockGrid,
    BlockIndex,
    arguments,
    modified,
    padded_begin,
    queries_config,
    stored,
    weight,
)
from .attention_backward_functions import ScoreFunctions, ScorePosition, weighted
from .attention_config import QUERY_ROWS, REGISTERS, Attention, Config
from .attention_rows import Rows, from_, store_part
from .attention_tiles import BlockScheduler, QueryBlock


@builder()
def build(of: Attention, config: BackwardConfig | None = None) -> Kernel:
    """The kernel of dQ (B, S, H, D) of Q, K, V, dO and of lse2 and delta (B, H, P).

    `factor` is the scale of the scores and `scale` is log2(e) times it; other scalars are those of the forward kernel.
    """
    config = config or queries_config(of)
    chosen = config
    few, many, at_launch = REGISTERS[config.consumers]
    grid = BlockGrid("S", "H", config.rows, of.varlen, config.folded)

    def attention_queries(**call: Any) -> None:
        fixed = TmaPipeline(
            stages=1, consumers=chosen.consumers, name="q",
            q=smem.wgmma_tile(of.dtype, (chosen.rows, of.key_columns), name="Q"),
            o=smem.wgmma_tile(of.dtype, (chosen.rows, of.value_columns), name="dO"),
        )  # fmt: skip
        ring = TmaPipeline(
            stages=chosen.stages, consumers=chosen.consumers, name="k",
            k=smem.wgmma_tile(of.dtype, (chosen.tile, of.key_columns), stages=chosen.stages, name="K"),
            v=smem.wgmma_tile(of.dtype, (chosen.tile, of.value_columns), stages=chosen.stages, name="V"),
        )  # fmt: skip
        tiled = Config(keys=chosen.tile, consumers=chosen.consumers)

        def blocks(ends: tuple[ArrayHandle, ArrayHandle] | None = None) -> BlockScheduler:
            return BlockScheduler(of, tiled, call["Q"], call["K"], None, call.get("last"), call.get("first"), ends)

        def roles(block: QueryBlock, sums: Register | None = None) -> None:
            warpgroup = warpgroup_index()
            with producer(warpgroup, few):
                load(chosen, call, fixed, ring, block)
            for me in each_consumer(warpgroup, chosen.consumers, many):
                Consumer(of, chosen, call, fixed, ring, block, me, sums).run()

        index = BlockIndex(grid, call["Q"], ends=call.get("q_ends"))
        if not of.varlen:
            fixed.initialise(ring)
            whole = blocks()
            roles(whole.block((whole.per_head - 1) - index.block(), index.head(), index.batch()))
            return
        some = blocks((call["q_ends"], call["k_ends"]))
        some.initialise()
        fixed.initialise(ring)
        some.begin()
        number = index.block()
        with ptx.if_(number < some.per_head):
            sequence = some.find(number)
            begin = padded_begin(sequence.query_begin, sequence.number)
            roles(some.sequence_block(sequence, index.head()), begin)

    return kernel(
        in_specs=arguments(of, config.rows, config.tile),
        out_specs={"dQ": stored(of, "S", "H", of.head_dim)},
        grid=grid, block=WARPGROUP * (1 + config.consumers), arch="sm_90a",
        registers=at_launch, name="attention_queries",
    )(attention_queries)  # fmt: skip


def load(
    config: BackwardConfig, call: dict[str, Any], fixed: TmaPipeline, ring: TmaPipeline, block: QueryBlock
) -> None:
    """The producer: loads Q and dO once, then every tile of keys and values."""
    with fixed.produce(fixed.producer_state()) as stage:
        for name, array in (("q", "Q"), ("o", "dO")):
            at = (0, block.head, from_(block.query_begin, block.row), block.batch)
            ptx.tma.load(stage.tiles[name], call[array].tma_desc(), at, stage.full)
    state, start = ring.producer_state(), block.start.copy()
    for _ in ptx.range(block.after_first + 1):
        with ring.produce(state) as stage:
            for name in ("k", "v"):
                at = (0, block.kv_head, from_(block.key_begin, start), block.batch)
                ptx.tma.load(stage.tiles[name], call[name.upper()].tma_desc(), at, stage.full)
        start -= config.tile


class Consumer:
    """A consumer: dQ of 64 queries of a block.

    Args:
        sums: first index of the block's sequence in lse2 and delta; None if each sequence has its own batch.
    """

    def __init__(
        self, of: Attention, config: BackwardConfig, call: dict[str, Any], fixed: TmaPipeline, ring: TmaPipeline,
        block: QueryBlock, me: int, sums: Register | None,
    ) -> None:  # fmt: skip
        self.of, self.config, self.call, self.ring, self.block = of, config, call, ring, block
        self.leader, self.state = ring.leader(), ring.consumer_state()
        (self.scores,), (self.gradients,) = (wgmma_accumulators(QUERY_ROWS, config.tile) for _ in range(2))
        (self.out,) = wgmma_accumulators(QUERY_ROWS, of.depth)
        self.s, self.result, self.store = Fragment(self.scores), Fragment(self.out), WholeStore(call["dQ"], 1 + me)
        self.turned = ring.tiles["k"].transposed()
        self.first = block.row + QUERY_ROWS * me
        self.rows = [row.view(s32) + self.first for row in self.s.rows]
        self.lse2, self.delta = self.load_sums(sums)
        self.functions = ScoreFunctions(of, call, block.batch.view(s32)) if modified(of) else None
        self.accumulate = reg.predicate(False)
        held = fixed.consumer_wait(fixed.consumer_state())
        self.q, self.o = (held.tiles[name].rows(QUERY_ROWS * me, QUERY_ROWS) for name in ("q", "o"))

    def load_sums(self, sums: Register | None) -> tuple[list[Register], ...]:
        """Load lse2 and delta of this thread's two rows."""
        block, call = self.block, self.call
        line = (block.batch * call["Q"].shape[2] + block.head).to(u64) * call["delta"].shape[2]
        line = line if sums is None else line + sums
        return tuple(
            [ptx.load(f32, ptx.addr(call[name].pointer() + (line + row.view(u32)) * f32.bytes)) for row in self.rows]
            for name in ("lse2", "delta")
        )

    def run(self) -> None:
        """Process all tiles of keys that the block sees."""
        block = self.block
        start = block.start.copy()
        for count, masked in ((block.above + 1, True), (block.full, False), (block.low, True)):
            if count is block.low and not self.of.below:
                continue
            for _ in ptx.range(count):
                self.step(start, masked)
                start -= self.config.tile
        self.finish()

    def step(self, start: Register, masked: bool) -> None:
        """Process a tile of keys that starts at `start`."""
        stage = self.ring.consumer_wait(self.state)
        self.multiply(stage)
        ptx.wgmma.wait_group(0 if self.functions else 1)
        if self.functions is not None:
            self.apply_functions(self.functions, start)
        if masked:
            self.hide(start)
        for index, score in enumerate(self.scores):
            score.set(weight(score, self.call["scale"], self.lse2[half_of(index)]))
        ptx.wgmma.wait_group(0)
        self.differentiate()
        self.add_keys()
        self.ring.consumer_release(self.state, leader=self.leader)
        self.ring.advance(self.state, branch=False)
        self.accumulate.set(True)

    def multiply(self, stage: Any) -> None:
        """Issue S = Q Kᵀ and dP = dO Vᵀ, one group of wgmmas each."""
        ptx.wgmma.fence()
        wgmma_block(self.scores, self.q.first_k(self.of.depth), stage.k.first_k(self.of.depth), accumulate=False)
        ptx.wgmma.commit_group()
        wgmma_block(self.gradients, self.o.first_k(self.of.columns), stage.v.first_k(self.of.columns), accumulate=False)
        ptx.wgmma.commit_group()

    def apply_functions(self, functions: ScoreFunctions, start: Register) -> None:
        """Apply the caller's functions to S and their derivatives to dP."""
        functions.apply(
            self.scores, self.gradients, self.block.head.view(s32),
            lambda index: ScorePosition(self.rows[half_of(index)], self.s.column_of(index).view(s32) + start),
            lambda index: self.delta[half_of(index)],
        )  # fmt: skip

    def hide(self, start: Register) -> None:
        """Set -inf where a query does not see a key."""
        block = self.block
        stop = [block.keys] * 2
        if block.last is not None:
            stop = [ptx.math.min(block.keys, row + block.last + 1) for row in self.rows]
        begin = None if block.first is None else [row + block.first - start for row in self.rows]
        self.s.keep_columns([bound - start for bound in stop], begin)

    def differentiate(self) -> None:
        """Overwrite P with dS = P (dP - delta)."""
        for index, (score, gradient) in enumerate(zip(self.scores, self.gradients, strict=True)):
            if self.functions is not None:
                score.set(weighted(score, gradient))
            else:
                score.set(score * (gradient - self.delta[half_of(index)]))

    def add_keys(self) -> None:
        """Compute dQ += dS K and wait for it."""
        weights = self.s.as_a(self.of.dtype)
        ptx.wgmma.fence()
        keys = self.turned[self.state.index].rows(0, self.of.depth)
        wgmma_block(self.out, weights, keys, accumulate=self.accumulate)
        ptx.wgmma.commit_group()
        ptx.wgmma.wait_group(0)

    def finish(self) -> None:
        """Store dQ through the shared memory of its queries."""
        block, result = self.block, self.result
        result.scale_rows([self.call["factor"]] * 2)
        row = from_(block.query_begin, self.first)

        def whole() -> None:
            self.store.store(self.out, self.q, lambda column: (column, block.head, row, block.batch))

        if not self.of.varlen:
            whole()
        else:
            rows = Rows(self.first, block.query_begin, block.queries, block.head, self.call["Q"].shape[2])
            store_part(whole, self.call["dQ"], result, rows, self.of.head_dim)
        self.store.finish()
