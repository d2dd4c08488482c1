"""dQ, dK and dV together, with five products: a block of keys stays; tiles of queries and dO stream past.

Roles      producer    warp 0, one thread           TMA of K and V once, then of Q, dO, lse2 and delta, tile by tile
           adder       warps 1, 2                   each adds what one consumer computes of dQ to a workspace
           consumer    warpgroups 1, 2              64 keys each; dK and dV in registers, a part of each tile of dQ
Memory     K, V        the CTA's keys, one stage; each consumer's rows become its dK and dV at the end
           Q, dO       two rings of tiles of queries, with lse2 and with delta
           dS          queries x keys, written by both consumers, each its keys, and read by both
           dQ          the consumers' parts of a tile in f32, on their way to the workspace
Barriers   k.full                   1 arrival + bytes of K and V            producer -> consumers, once
           q.full[s], o.full[s]     1 arrival + bytes of a tile        producer -> consumers
           q.empty[s], o.empty[s]   1 arrival of each consumer         consumers -> producer
           1, 2 (named)        the warps of one consumer, around its stores of dV and dK
           3 (named)           both consumers: dS is written, and all have read lse2 and delta; with one buffer of
                               dS, also: dS of the tile before has been read
           4, 5; 6, 7 (named)  a part of dQ is full; it is free        consumer <-> its adder
Timeline   Sᵀ = K Qᵀ | dPᵀ = V dOᵀ | Pᵀ, dSᵀ in registers | dV += Pᵀ dO | dQᵀ = Kᵀ dSᵀ | dK += dSᵀ Q | dQ to memory

Sᵀ and dPᵀ have the keys as rows, so Pᵀ and dSᵀ are in the registers of the consumer that adds them up in dV and dK. A
tile of dQ needs dS of all keys of the block, so dS passes through shared memory, and the consumers divide dQ into parts
of 64 columns, or if that is uneven into shares of the queries. `attention_backward_sums` says how the blocks' parts of
dQ are added in a fixed order. Tiles of queries are read from the last to the first: with a causal mask, every block of
keys sees the last tile, so blocks that begin together add to the same tiles at the same time, each a little after the
one before it, and the order costs a wait only at the beginning.

Query heads that share a key head are processed one after the other. A window bounds the tiles at both ends. With
`of.block_mask`, lists say which tiles see a block of keys (`attention_visits`), and the function of masks applies to
those that see it partly.

If registers do not hold dK and dV, this kernel computes dK and dQ, and a second one dV (Sᵀ | Pᵀ | dV += Pᵀ dO).
"""

from __future__ import annotations

from typing import Any

from ...collective import TmaPipeline, each_consumer, warpgroup_index
from ...collective.tile.roles import WARP, WARPGROUP, producer_warpgroup
from ...isa.dtypes import f32, u32, u64
from ...lang import Kernel, Scalar, Tile, kernel, ptx
from ..fields import builder
from .attention_backward_config import BackwardConfig, TicketGrid, backward_config, modified
from .attention_backward_consumer import Consumer, Memory, Rings
from .attention_backward_reads import workspace_tiles
from .attention_backward_rows import arguments, stored
from .attention_backward_sums import Adder
from .attention_config import Attention
from .attention_key_blocks import KeyBlock, KeyBlocks
from .attention_visits import list_tiles


@builder()
def build(of: Attention, config: BackwardConfig | None = None) -> Kernel:
    """The kernel of dK (B, T, G, D), dV (B, T, G, E) and the sums of dQ, or of some of them (`BackwardConfig`).

    `factor` is the scale of the scores and `scale` is log2(e) times it. `section` is the number of key heads whose
    blocks are interleaved; `turns` are zeros, if the order is fixed. `build_convert` makes dQ of the sums. Without a
    fixed order, the sums must be zeros.
    """
    config = config or backward_config(of)
    chosen = config
    producer_regs, consumer_regs, launch_regs = config.registers(of)

    def attention_backward(**call: Any) -> None:
        memory = Memory.allocate(of, chosen)
        fixed, rings = memory.fixed, memory.rings
        blocks = KeyBlocks(of, chosen, call)
        blocks.initialise()
        fixed.initialise(rings.q, rings.o)

        def roles() -> None:
            block = blocks.block()
            warpgroup = warpgroup_index(reduced=True)
            with producer_warpgroup(warpgroup, producer_regs):
                warp = ptx.special.tid.x() // WARP
                with ptx.if_(ptx.special.tid.x() == 0):
                    load(chosen, call, fixed, rings, block)
                sums = memory.sums
                if sums is not None:
                    for me in range(chosen.consumers):
                        with ptx.if_(warp == 1 + me):
                            add_sums(block, call, Adder(of, chosen, sums, call, block, me))
            for me in each_consumer(warpgroup, chosen.consumers, consumer_regs):
                Consumer(of, chosen, call, memory, blocks, block, me).run()

        if of.varlen:
            with ptx.if_(blocks.exists()):
                roles()
        else:
            roles()

    sums = {"sums": Tile("B", "H", "W", f32, inout=True), "turns": Tile("places", u32, inout=True)}
    sums |= workspace_tiles(of)
    return kernel(
        in_specs={
            **arguments(of, config.tile_m, config.tile_n), **list_tiles(of), "section": Scalar(u32),
            **(sums if config.compute_dk_dq else {}),
        },
        out_specs={
            **({"dK": stored(of, "T", "G", of.head_dim)} if config.compute_dk_dq else {}),
            **({"dV": stored(of, "T", "G", of.value_dim)} if config.compute_dv else {}),
        },
        grid=TicketGrid(config.tile_n, of.varlen), block=WARPGROUP * (1 + config.consumers), arch="sm_90a",
        registers=launch_regs, name="attention_backward" if config.compute_dk_dq else "attention_values",
        # what a user's function needs is not known here
        allow_spills=modified(of),
    )(attention_backward)  # fmt: skip


def load(config: BackwardConfig, call: dict[str, Any], fixed: TmaPipeline, rings: Rings, block: KeyBlock) -> None:
    """The producer: loads K and V once, then every tile of queries, from the last to the first."""
    packed = block.packed
    with fixed.produce(fixed.producer_state()) as stage:
        row = block.row if packed is None else block.row + packed.key
        for name in ("k", "v"):
            at = (0, block.kv_head, row, block.batch)
            ptx.tma.load(stage.tiles[name], call[name.upper()].tma_desc(), at, stage.full)
    heads, (q, o) = call["Q"].shape[2], (ring.producer_state() for ring in (rings.q, rings.o))
    parts = ((rings.q, q, "q", "Q", rings.lse2, "lse2"), (rings.o, o, "o", "dO", rings.delta, "delta"))
    for member in ptx.range(block.group):
        head = block.kv_head * block.group + member
        line = (block.batch * heads + head).to(u64) * call["delta"].shape[2]
        line = line if packed is None else line + packed.padded
        for query in block.queries(head, config.tile_m):
            row = query if packed is None else query + packed.query
            for ring, state, name, array, vector, rows in parts:
                with ring.produce(state) as stage:
                    ptx.tma.load(stage.tiles[name], call[array].tma_desc(), (0, head, row, block.batch), stage.full)
                    source = ptx.addr(call[rows].pointer() + (line + query.view(u32)) * f32.bytes)
                    ptx.cp.async_.bulk.load(vector[state.index, 0], source, config.tile_m * f32.bytes, stage.full)


def add_sums(block: KeyBlock, call: dict[str, Any], adder: Adder) -> None:
    """An adder: takes the parts of each tile, in the order of the consumers."""
    adder.begin()
    heads = call["Q"].shape[2]
    for member in ptx.range(block.group):
        line = block.batch * heads + block.kv_head * block.group + member
        if block.visits is not None:
            for visit in block.visits.walk(block.kv_head * block.group + member):
                adder.add(line, visit.tile.view(u32), visit.before)
        else:
            tile = block.end - 1
            for _ in ptx.range(block.begin, block.end):
                adder.add(line, tile.view(u32))
                tile -= 1
    adder.finish()
