"""dQ: a block of queries and their dO stay in shared memory; tiles of keys and values pass by.

Roles      producer    warpgroup 0, one thread      TMA of Q and dO once, then of K and V, tile by tile
           consumer    warpgroups 1, 2              64 queries each; dQ, lse2 and delta in registers
Memory     Q, dO       the CTA's queries, one stage; each consumer's rows of Q become its dQ at the end
           K, V        a ring of tiles of keys
Barriers   q.full           1 arrival + bytes of Q and dO             producer -> consumers, once
           k.full[s]        1 arrival + bytes of a tile               producer -> consumers
           k.empty[s]       1 arrival of each consumer                consumers -> producer
           1, 2 (named)     a consumer's own warps, around its store of dQ
Timeline   of a consumer, while the other one multiplies

           S = Q Kᵀ | dP = dO Vᵀ | P, dS in registers | dQ += dS K, under the next S

K is loaded once and read twice: as n x k for S, and as k x n for dQ (`OperandTile.transposed`).
"""

from __future__ import annotations

from typing import Any

from ...collective import TmaPipeline, each_consumer, producer, warpgroup_index
from ...collective.epilogue.whole_store import WholeStore
from ...collective.mma.fragment import Fragment
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_block
from ...isa.dtypes import f32, s32, u32, u64
from ...lang import Kernel, kernel, ptx, reg, smem
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..fields import builder
from .attention_backward import (
    BackwardConfig,
    BlocksOf,
    Here,
    arguments,
    modified,
    padded_begin,
    queries_config,
    stored,
    weight,
)
from .attention_backward_functions import At, Modified, weighted
from .attention_config import QUERY_ROWS, REGISTERS, Attention, Config
from .attention_rows import Rows, from_, store_part
from .attention_tiles import Block, Blocks


@builder()
def build(of: Attention, config: BackwardConfig | None = None) -> Kernel:
    """dQ (B, S, H, D) of Q, K, V, dO and of lse2 and delta (B, H, P).

    `scale` is log2(e) times that of the scores, `factor` that of the scores; else as the forward kernel.
    """
    config = config or queries_config(of)
    chosen = config
    few, many, at_launch = REGISTERS[config.consumers]
    grid = BlocksOf("S", "H", config.rows, of.varlen, config.folded)

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

        def blocks(ends: tuple[ArrayHandle, ArrayHandle] | None = None) -> Blocks:
            return Blocks(of, tiled, call["Q"], call["K"], None, call.get("last"), call.get("first"), ends)

        def roles(block: Block, sums: Register | None = None) -> None:
            warpgroup = warpgroup_index()
            with producer(warpgroup, few):
                load(chosen, call, fixed, ring, block)
            for me in each_consumer(warpgroup, chosen.consumers, many):
                consume(of, chosen, call, fixed, ring, block, me, sums)

        here = Here(grid, call["Q"], ends=call.get("q_ends"))
        if not of.varlen:
            fixed.initialise(ring)
            whole = blocks()
            roles(whole.block((whole.per_head - 1) - here.block(), here.head(), here.batch()))
            return
        some = blocks((call["q_ends"], call["k_ends"]))
        some.initialise()
        fixed.initialise(ring)
        some.begin()
        number = here.block()
        with ptx.if_(number < some.per_head):
            sequence = some.find(number)
            begin = padded_begin(sequence.query_begin, sequence.number)
            roles(some.of_sequence(sequence, here.head()), begin)

    return kernel(
        in_specs=arguments(of, config.rows, config.tile),
        out_specs={"dQ": stored(of, "S", "H", of.head_dim)},
        grid=grid, block=128 * (1 + config.consumers), arch="sm_90a",
        registers=at_launch, name="attention_queries",
    )(attention_queries)  # fmt: skip


def load(config: BackwardConfig, call: dict[str, Any], fixed: TmaPipeline, ring: TmaPipeline, block: Block) -> None:
    """The producer."""
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


def consume(
    of: Attention, config: BackwardConfig, call: dict[str, Any], fixed: TmaPipeline, ring: TmaPipeline, block: Block,
    me: int, sums: Register | None = None,
) -> None:  # fmt: skip
    """A consumer. sums: where the block's sequence begins in lse2 and delta."""
    leader, state = ring.leader(), ring.consumer_state()
    (scores,), (gradients,) = (wgmma_accumulators(QUERY_ROWS, config.tile) for _ in range(2))
    (out,) = wgmma_accumulators(QUERY_ROWS, of.depth)
    s, result, store = Fragment(scores), Fragment(out), WholeStore(call["dQ"], 1 + me)
    turned = ring.tiles["k"].transposed()
    first = block.row + QUERY_ROWS * me
    rows = [row.view(s32) + first for row in s.rows]
    line = (block.batch * call["Q"].shape[2] + block.head).to(u64) * call["delta"].shape[2]
    line = line if sums is None else line + sums
    lse2, delta = (
        [ptx.load(f32, ptx.addr(call[name].pointer() + (line + row.view(u32)) * 4)) for row in rows]
        for name in ("lse2", "delta")
    )
    functions = Modified(of, call, block.batch.view(s32)) if modified(of) else None
    accumulate = reg.predicate(False)
    held = fixed.consumer_wait(fixed.consumer_state())
    q, o = (held.tiles[name].rows(QUERY_ROWS * me, QUERY_ROWS) for name in ("q", "o"))

    def step(start: Register, masked: bool) -> None:
        stage = ring.consumer_wait(state)
        ptx.wgmma.fence()
        wgmma_block(scores, q.first_k(of.depth), stage.k.first_k(of.depth), accumulate=False)
        ptx.wgmma.commit_group()
        wgmma_block(gradients, o.first_k(of.columns), stage.v.first_k(of.columns), accumulate=False)
        ptx.wgmma.commit_group()
        ptx.wgmma.wait_group(0 if functions else 1)
        if functions is not None:
            functions.apply(
                scores, gradients, block.head.view(s32),
                lambda index: At(rows[index // 2 % 2], s.column_of(index).view(s32) + start),
                lambda index: delta[index // 2 % 2],
            )  # fmt: skip
        if masked:
            stop = [block.keys] * 2
            if block.last is not None:
                stop = [ptx.math.min(block.keys, row + block.last + 1) for row in rows]
            begin = None if block.first is None else [row + block.first - start for row in rows]
            s.keep_columns([bound - start for bound in stop], begin)
        for index, score in enumerate(scores):
            score.set(weight(score, call["scale"], lse2[index // 2 % 2]))
        ptx.wgmma.wait_group(0)
        for index, (score, gradient) in enumerate(zip(scores, gradients, strict=True)):
            if functions is not None:
                score.set(weighted(score, gradient))
            else:
                score.set(score * (gradient - delta[index // 2 % 2]))
        weights = s.as_a(of.dtype)
        ptx.wgmma.fence()
        wgmma_block(out, weights, turned[state.index].rows(0, of.depth), accumulate=accumulate)
        ptx.wgmma.commit_group()
        ptx.wgmma.wait_group(0)
        ring.consumer_release(state, leader=leader)
        ring.advance(state, branch=False)
        accumulate.set(True)

    start = block.start.copy()
    for count, masked in ((block.above + 1, True), (block.full, False), (block.low, True)):
        if count is block.low and not of.below:
            continue
        for _ in ptx.range(count):
            step(start, masked)
            start -= config.tile
    result.scale_rows([call["factor"]] * 2)
    row = from_(block.query_begin, first)

    def whole() -> None:
        store.store(out, q, lambda column: (column, block.head, row, block.batch))

    if not of.varlen:
        whole()
    else:
        rows_of = Rows(first, block.query_begin, block.queries, block.head, call["Q"].shape[2])
        store_part(whole, call["dQ"], result, rows_of, of.head_dim)
    store.finish()
