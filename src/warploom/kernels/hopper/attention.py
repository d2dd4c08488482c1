"""Attention forward: O = softmax(scale Q Kᵀ + mask) V in one kernel, S and P in registers only.

Idea       S of the next tile is issued before P V of this one, so a consumer's exponentials overlap its own P V and
           the other consumer's products. P never leaves the registers: the accumulator of S already has the layout
           of an A operand. The guarded softmax (`attention_softmax`) needs no maxima after a row's first tile.
           wgmma reads e4m3 V as columns x keys, so idle warps transpose it in shared memory
           (`attention_transpose`).
Roles      producer    warpgroup 0, one thread   takes block numbers from the queue; TMA of Q, then K, V, K, V ...
           transposers warps 1 to 3 of it        e4m3 only: transpose keys x columns into columns x keys
           consumer    warpgroups 1, 2 (3)       64 queries each
Memory     Q   `query_stages` blocks; O is stored through the rows of its queries (e4m3: through its own buffer)
           K, V (e4m3: and Vt)    rings of tiles
Barriers   q.full, q.empty    a block of queries, released when TMA has read O from its memory
           k.full, k.empty    a tile of keys
           v.full, v.empty    a tile of values, released one tile later than its keys
           t.full, t.empty    e4m3: a tile of transposed values, written by the transposers
           queue.full, .empty block numbers, longest first
           1 to 3 (named)     the warps of one consumer, around its store of O
           the next ones      consumers take turns issuing their products (`ping_pong`)
Timeline   a consumer, from the second tile of a block

           S_j = Q K_j | wait | exponentials of S_j ............ | wait | rescale O if needed
                   O += P_j-1 V_j-1 ............................. |

           With `query_stages` 2, the next block's first S follows this block's last P V and overlaps its epilogue.
"""

from __future__ import annotations

from typing import Any

from ...collective import TileQueue, TmaPipeline, each_consumer, producer, warpgroup_index
from ...collective.tile.roles import WARP, WARPGROUP, producer_warpgroup
from ...collective.tile.sizes import OneCtaPerSm
from ...isa.dtypes import f32, s32, u32
from ...lang import Kernel, Scalar, Tile, kernel, ptx, smem
from ...lang.values import Register
from ..fields import builder
from .attention_config import QUERY_ROWS, REGISTERS, TRANSPOSE_WARPS, Attention, Config, OnePerSm, default
from .attention_consumer import Arguments, Consumer, Rings, function_arrays
from .attention_tiles import BlockScheduler, KeyTileIterator
from .attention_transpose import TransposeWarp, transpose_warp_index
from .description import PANEL

ARCH = "sm_90a"


@builder()
def build(of: Attention, config: Config | None = None) -> Kernel:
    """The kernel: O (B, S, H, value_dim) and LSE (B, H, S) of Q (B, S, H, D), K and V (B, T, G, ...), H divisible by G.

    The innermost stride is 1; other strides and all lengths are free. Scalars, if `of` needs them: `scale` is log2(e)
    times the scale of the scores (with a softcap: log2(e) cap, and `inner` = scale / cap). With `last` and `first`,
    query i sees keys i + first to i + last. With `of.block_mask`, `tiles` (1 or B, 1 or H, blocks of `config.tile_m`
    queries, tiles of `config.tile_n` keys) s32 lists the tiles that each block sees, partly visible ones first, and
    `counts` (…, blocks, 2) holds the numbers of partly and fully visible tiles.

    In e4m3, O is bf16. If `of.scaled`, Q, K and V are multiplied by `q_scale` (B, H), `k_scale` and `v_scale` (B, G),
    f32; else V is multiplied by the scalar `v_factor`.
    """
    config = config or default(of)
    config.check(of)
    columns = of.query_columns
    producer_regs, consumer_regs, launch_regs = REGISTERS[config.consumers]
    stored, major = (PANEL, 1, QUERY_ROWS, 1), "K" if of.fp8 else "MN"

    def attention(**arguments: Any) -> None:
        functions = {name: arguments.pop(name) for name in function_arrays(of)}
        call = Arguments(**arguments, functions=functions)
        tiles = Rings(
            queries=TmaPipeline(
                stages=config.query_stages, consumers=config.consumers, name="q",
                q=smem.wgmma_tile(of.dtype, (config.tile_m, columns), stages=config.query_stages, name="Q"),
            ),
            keys=TmaPipeline(
                stages=config.key_stages, consumers=config.consumers, name="k",
                k=smem.wgmma_tile(of.dtype, (config.tile_n, of.key_columns), stages=config.key_stages, name="K"),
            ),
            values=TmaPipeline(
                stages=config.value_stages, consumers=TRANSPOSE_WARPS if of.fp8 else config.consumers, name="v",
                v=smem.wgmma_tile(
                    of.dtype, (config.tile_n, of.value_columns), major=major, stages=config.value_stages, name="V"
                ),
            ),
        )  # fmt: skip
        if of.fp8:
            tiles.transposed = TmaPipeline(
                stages=config.value_stages, consumers=config.consumers, producers=TRANSPOSE_WARPS, name="t",
                t=smem.wgmma_tile(
                    of.dtype, (of.columns, config.transposed_keys), stages=config.value_stages, name="Vt"
                ),
            )  # fmt: skip
            tiles.out = smem.wgmma_tile(of.out_dtype, (config.tile_m, of.out_columns), name="O")
        ends = None if call.q_ends is None or call.k_ends is None else (call.q_ends, call.k_ends)
        lists = None if call.tiles is None or call.counts is None else (call.tiles, call.counts)
        blocks = BlockScheduler(of, config, call.Q, call.K, call.section, call.last, call.first, ends, lists)
        queue = TileQueue(call.counter, call.section, config.consumers, others=TRANSPOSE_WARPS * WARP if of.fp8 else 0)
        blocks.initialise()
        tiles.queries.initialise(tiles.keys, tiles.values, *([tiles.transposed] if tiles.transposed else []), queue)
        blocks.begin()
        queue.tiles = blocks.count
        warpgroup = warpgroup_index()
        if tiles.transposed is None:
            with producer(warpgroup, producer_regs):
                load(config, call, tiles, blocks, queue)
        else:
            with producer_warpgroup(warpgroup, producer_regs):
                me = transpose_warp_index(ptx.special.tid.x())
                with ptx.if_(me < TRANSPOSE_WARPS):
                    TransposeWarp(of, config, tiles.values, tiles.transposed, me).run(blocks, queue)
                with ptx.else_(), ptx.if_(ptx.special.tid.x() == 0):
                    load(config, call, tiles, blocks, queue)
        for me in each_consumer(warpgroup, config.consumers, consumer_regs, exclusive=of.fp8):
            Consumer(of, config, call, tiles, blocks, queue, me).run()

    return kernel(
        in_specs={
            "Q": Tile.operand("B", "S", "H", of.head_dim, of.dtype, along=1, tile=(config.tile_m, columns)),
            "K": Tile.operand("B", "T", "G", of.head_dim, of.dtype, along=1, tile=(config.tile_n, of.key_columns)),
            "V": Tile.operand(
                "B", "T", "G", of.value_dim, of.dtype, along=1, tile=(config.tile_n, of.value_columns), major=major
            ),
            **({"q_scale": Tile("B", "H", f32)} if of.scaled else {}),
            **({"k_scale": Tile("B", "G", f32), "v_scale": Tile("B", "G", f32)} if of.scaled else {}),
            **({"sinks": Tile("H", f32)} if of.sinks else {}),
            **({"tiles": Tile("LB", "LH", "QB", "KB", s32)} if of.block_mask else {}),
            **({"counts": Tile("LB", "LH", "QB", 2, s32)} if of.block_mask else {}),
            **({"q_ends": Tile("N", s32), "k_ends": Tile("N", s32)} if of.varlen else {}),
            **function_arrays(of),
            "counter": Tile(1, u32, workspace=True),
            "scale": Scalar(f32),
            "section": Scalar(u32),
            **({"inner": Scalar(f32)} if of.softcap or of.score_mod is not None else {}),
            **({"v_factor": Scalar(f32)} if of.fp8 and not of.scaled else {}),
            **({"last": Scalar(s32)} if of.window_right else {}),
            **({"first": Scalar(s32)} if of.window_left else {}),
        },
        out_specs={
            "O": Tile("B", "S", "H", of.value_dim, of.out_dtype, box=stored, swizzle="128B", order="rows"),
            "LSE": Tile("B", "H", "S", f32),
        },
        grid=OneCtaPerSm() if of.varlen else OnePerSm(config.tile_m), block=WARPGROUP * (1 + config.consumers),
        arch=ARCH, registers=launch_regs, name="attention",
        # packed sequences may need a few registers more, and what a user's function needs is not known here
        allow_spills=of.has_functions or of.varlen,
    )(attention)  # fmt: skip


def load(config: Config, call: Arguments, tiles: Rings, blocks: BlockScheduler, queue: TileQueue) -> None:
    """The producer: loads keys one tile ahead of values, in the order of their products."""
    at_q, at_k, at_v = (ring.producer_state() for ring in (tiles.queries, tiles.keys, tiles.values))
    at_queue = queue.producer_state()

    def load_keys(start: Register, head: Register, batch: Register) -> None:
        with tiles.keys.produce(at_k) as stage:
            ptx.tma.load(stage.k, call.K.tma_desc(), (0, head, start, batch), stage.full)

    def load_values(start: Register, head: Register, batch: Register) -> None:
        with tiles.values.produce(at_v) as stage:
            ptx.tma.load(stage.v, call.V.tma_desc(), (0, head, start, batch), stage.full)

    def load_queries(row: Register, head: Register, batch: Register) -> None:
        with tiles.queries.produce(at_q) as stage:
            ptx.tma.load(stage.q, call.Q.tma_desc(), (0, head, row, batch), stage.full)

    number = queue.fetch(at_queue).copy()
    with ptx.if_(number < queue.tiles):
        with ptx.do_while(lambda: number < queue.tiles):
            block = blocks.block_at(number)
            start, of_keys = block.start + block.key_begin, (block.kv_head, block.batch)
            walk = KeyTileIterator(block, start, config.tile_n)
            load_keys(start, *of_keys)
            load_queries(block.row + block.query_begin, block.head, block.batch)
            for _ in ptx.range(block.after_first):
                values = start.copy()
                walk.next()
                load_keys(start, *of_keys)
                load_values(values, *of_keys)
            load_values(start, *of_keys)
            number.set(queue.fetch(at_queue))
        if config.query_stages > 1:  # consumers multiply one block too many, rather than branch around it
            batch, zero = blocks.outside()
            load_keys(zero, zero, batch)
            load_queries(zero, zero, batch)
