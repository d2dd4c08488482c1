"""Decode attention: few queries and long K and V, which are read once, at the rate of memory.

Idea       Time is the bytes of K and V. All shared memory holds stages in flight, and each CTA gets an equal share of
           all tiles of all sequences (`attention_decode_work`), so all CTAs finish together. The rows of a key head
           (its query heads, for all queries) fit the 16 rows of mma.sync; they would fill a quarter of wgmma's 64.
Roles      producer   the last warps: TMA of a tile's keys and values; paged: one lane per part of a page
           consumer   4 warps, or 8 for 17 to 32 rows: each multiplies 16 rows by 16 keys (`attention_decode_warp`)

               producer   [lengths] wait [tile][tile][tile] ...            up to a ring ahead, also into the next head
               consumer   [lengths] wait [Q][tile][tile] ... [meet, store or share] [Q][tile] ...

           wait: griddepcontrol.wait, until the previous kernel has ended and its writes are visible. Before it, one
           warp prefetches some of the CTA's tiles into L2, by lengths that may be old; they are read again after it.
Barriers   full[s]    1 arrival + bytes of a tile            producer -> consumers
           empty[s]   1 arrival for each consumer warp       consumers -> producer
           bar 0      all threads: the barriers and the count of tiles are ready
           bar 1      the consumers, around their exchange (`attention_decode_combine`)
Limits     1 to 16 queries, 1024 sequences, head dimensions in multiples of 8 up to 256; pages of any size
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...collective.pipeline.cache_policy import read_once
from ...collective.pipeline.tma import TmaPipeline
from ...collective.tile.roles import WARP
from ...collective.tile.sizes import OneCtaPerSm
from ...isa.dtypes import f32, s32, u32, u64
from ...lang import Kernel, Scalar, Tile, kernel, ptx, reg, smem
from ...lang.protocol import Role
from ...lang.tile import ArrayHandle
from ...lang.trace import Trace
from ...lang.values import Register
from ..fields import builder
from .attention_decode_cluster import ClusterCombine, ClusterGrid, ClusterPartition, EarlySegment
from .attention_decode_combine import SplitCombine
from .attention_decode_config import SPREAD, Decode, DecodeConfig
from .attention_decode_warp import DecodeWarp, RowAddresses
from .attention_decode_work import Segment, WorkPartition


@builder(keep=64)
def build(of: Decode, config: DecodeConfig = DecodeConfig()) -> Kernel:  # noqa: B008 - frozen
    """The kernel: O (B, R, H, value_dim) and LSE (B, H, R) of Q (B, R, H, D) and of K and V.

    K is (N, T, G, D) and V (N, T, G, value_dim), where N is B and T the capacity. If paged, they are N pages of T keys,
    and `table` (B, W) s32 lists the pages of each sequence in order. `lengths` (B,) s32: keys of each sequence.
    With `of.scaled`, `k_scale` and `v_scale` (B, G) f32; with `of.fp8_kv` alone, the scalar `v_factor`.
    Scalars: `scale`, `inner` as in `attention.build`; `causal` 1 if each query sees one key less than the next query,
    else 0; `left`: keys that a query sees before its own.
    """
    config.check(of=of)

    def decode(**call: Any) -> None:
        Q, K, V = (call[name] for name in "QKV")
        _, queries, heads, _ = Q.shape
        _, room, kv_heads, _ = K.shape
        table = call.get("table")
        group = heads // kv_heads
        most = room if table is None else room * table.shape[1]
        ring = TmaPipeline(
            stages=config.stages, consumers=config.warps, producers=config.producer_warps,
            k=smem.wgmma_tile(of.kv_dtype, (config.tile_n, of.key_columns), stages=config.stages, name="K"),
            v=smem.wgmma_tile(of.kv_dtype, (config.tile_n, of.value_columns), stages=config.stages, name="V"),
        )  # fmt: skip
        partition, combination = (ClusterPartition, ClusterCombine) if config.cluster else (WorkPartition, SplitCombine)
        work = partition(config, call["lengths"], most, queries, group, kv_heads, call["causal"], call.get("left"))
        combine = combination(
            of, config, work, call.get("workspace"), call.get("counters"), RowAddresses(call["O"], group), call["LSE"],
            call.get("sinks"),
        )  # fmt: skip
        combine.initialise()
        if config.pdl:
            ptx.griddepcontrol.launch_dependents()
        if config.early_prologue:
            with ptx.if_(ptx.special.tid.x() == WARP * config.warps):
                for array in (K, V):
                    ptx.tma.prefetch_descriptor(array.tma_desc())
            ring.initialise()
        if config.provisional:
            with work.provisionally():
                work.initialise()
                ptx.bar.sync(0)
                with ptx.if_(ptx.special.tid.x() // WARP == config.warps):
                    work.begin()
                    prefetch(config, work, ring, K, V, table)
            ptx.bar.sync(0)
        if config.pdl and not config.promised:
            ptx.griddepcontrol.wait()
        work.initialise()
        if config.early_prologue:
            ptx.bar.sync(0)
        else:
            ring.initialise()
        work.begin()
        producers = (config.warps, config.warps + config.producer_warps - 1)
        name = f"warps {producers[0]} to {producers[1]}" if config.producer_warps > 1 else f"warp {producers[0]}"
        for role in (
            Role("producer", name, None, producers),
            Role("consumer", f"warps 0 to {config.warps - 1}", None, (0, config.warps - 1), 1),
        ):
            Trace.current().protocol.roles.append(role)
        with ptx.if_(ptx.special.tid.x() >= WARP * config.warps):
            if config.producer_warps == 1:
                load(config, work, ring, K, V, table)
            else:
                number = ptx.special.tid.x() // WARP - config.warps
                for me in range(config.producer_warps):
                    with ptx.if_(number == me):
                        load(config, work, ring, K, V, table, me)
            if config.cluster:
                ptx.cluster.wait()
        with ptx.else_():
            if config.promised:
                ptx.griddepcontrol.wait()
            rows = RowAddresses(Q, group)
            warp = DecodeWarp(of, config, work, ring, rows, call)
            for segment in work.segments():
                combine.run(warp, segment, warp.run(segment))

    box = (of.panel, 1, config.copy_rows, 1)
    memory = {
        "workspace": Tile("blocks", config.block_elements(of), f32, inout=True),
        "counters": Tile("places", u32, inout=True),
    }
    factors = ("k_scale", "v_scale") if of.scaled else ()
    return kernel(
        in_specs={
            "Q": Tile("B", "R", "H", of.head_dim, of.dtype, order="rows"),
            "K": Tile("N", "T", "G", of.head_dim, of.kv_dtype, box=box, swizzle="128B", order="rows"),
            "V": Tile("N", "T", "G", of.value_dim, of.kv_dtype, box=box, swizzle="128B", order="rows"),
            "lengths": Tile("B", s32),
            **({"table": Tile("B", "W", s32)} if of.paged else {}),
            **({"sinks": Tile("H", f32)} if of.sinks else {}),
            **{name: Tile("B", "G", f32) for name in factors},
            **({} if config.cluster else memory),
            "scale": Scalar(f32),
            "causal": Scalar(s32),
            **({"v_factor": Scalar(f32)} if of.fp8_kv and not of.scaled else {}),
            **({"inner": Scalar(f32)} if of.softcap else {}),
            **({"left": Scalar(s32)} if of.window_left else {}),
        },
        out_specs={
            "O": Tile("B", "R", "H", of.value_dim, of.dtype, order="rows"),
            "LSE": Tile("B", "H", "R", f32),
        },
        grid=ClusterGrid(config.cluster, config.tile_m) if config.cluster else OneCtaPerSm(),
        cluster=(max(1, config.cluster), 1, 1), block=config.threads, arch="sm_90a",
        registers=config.registers, pdl=config.pdl, name="attention_decode",
    )(decode)  # fmt: skip


def load(
    config: DecodeConfig, work: WorkPartition, ring: TmaPipeline, K: ArrayHandle, V: ArrayHandle,
    table: ArrayHandle | None, me: int = 0,
) -> None:  # fmt: skip
    """Producer warp `me` of `config.producer_warps`: loads its boxes tile by tile, across heads and sequences."""
    lane, state, policy = ptx.special.tid.x() & (WARP - 1), ring.producer_state(), read_once()
    boxes = [(array, name, box) for array, name in ((K, "k"), (V, "v")) for box in ring.tiles[name].layout.boxes]
    across = min(config.producer_warps, len(boxes))
    mine = boxes[me % across :: across]
    count = config.copies * across // config.producer_warps
    first = me // across * count
    span = ring.tiles["k"].layout.swizzle.span
    expected = ring.stage_bytes if config.producer_warps == 1 else len(mine) * count * config.copy_rows * span
    if config.promised:
        if me == 0:
            prefetch(config, work, ring, K, V, table)
        ptx.griddepcontrol.wait()
    for segment in work.segments():
        if table is not None:
            segment = work.measured(segment)  # the page of a key beyond the end is not read
        start = segment.start.copy()

        def copies(segment: Segment = segment, start: Register = start) -> Iterator[KeyCopy]:
            for begin in range(first, first + count, WARP):
                copy = lane + begin
                with ptx.if_(copy < first + count):
                    yield KeyCopy(copy, *place(K, work, table, segment, (copy * config.copy_rows).view(s32) + start))

        next_copies = (
            [KeyCopy(found.number, found.block.copy(), found.row.copy()) for found in copies()]
            if config.prefetch_page_index
            else []
        )
        for _ in each_tile(work, segment):
            ptx.mbarrier.wait(ring.empty[state.index], state.phase)
            stage = ring.stage(state)
            ptx.mbarrier.arrive_expect_tx(stage.full, expected, pred=lane == 0)
            for copy in lane_copies(next_copies, first + count) if next_copies else copies():
                for array, name, box in mine:
                    into = stage.tiles[name] + box.offset + copy.number * (config.copy_rows * span)
                    at = (box.coordinates[0], segment.head, copy.row, copy.block)
                    ptx.cp.async_.bulk.tensor(into, array.tma_desc(), at, stage.full, cache_hint=policy)
            ring.advance(state, branch=False)
            start += segment.step
            if next_copies:
                for copy, found in zip(next_copies, copies(), strict=True):
                    copy.block.set(found.block)
                    copy.row.set(found.row)


def each_tile(work: WorkPartition, segment: Segment) -> Iterator[None]:
    """Loop over a segment's tiles; an early segment's first one is loaded before its length is known."""
    if not isinstance(segment, EarlySegment):
        for _ in ptx.range(segment.tiles, unroll=False):
            yield
        return
    yield
    for _ in ptx.range(1, work.measured(segment).tiles, unroll=False):
        yield


def prefetch(
    config: DecodeConfig, work: WorkPartition, ring: TmaPipeline, K: ArrayHandle, V: ArrayHandle,
    table: ArrayHandle | None,
) -> None:  # fmt: skip
    """Prefetch some of a CTA's tiles into L2 before the previous kernel ends; the lanes of one warp divide the copies.

    They are `SPREAD` tiles apart, so that the CTA reads others from memory between them. If they were its first tiles,
    memory would be idle while the CTA reads them from L2.
    """
    lane, stage = ptx.special.tid.x() & (WARP - 1), ring.stage(ring.producer_state())
    for segment in work.segments(most=(config.prefetch or config.stages) * SPREAD):
        tiles = (segment.tiles + (SPREAD - 1)) // SPREAD
        for copy in ptx.range(lane, tiles * config.copies, WARP, unroll=False):
            tile, part = copy // config.copies, copy % config.copies
            key = segment.start + (tile * (SPREAD * segment.step) + part * config.copy_rows).view(s32)
            block, row = place(K, work, table, segment, key)
            for array, name in ((K, "k"), (V, "v")):
                ptx.tma.prefetch(stage.tiles[name], array.tma_desc(), (0, segment.head, row, block))


@dataclass
class KeyCopy:
    """A lane's copy: its number in the tile and its source."""

    number: Register
    block: Register
    row: Register


def lane_copies(copies: Sequence[KeyCopy], all_: int) -> Iterator[KeyCopy]:
    """Yield the copies whose number is less than `all_`."""
    for copy in copies:
        with ptx.if_(copy.number < all_):
            yield copy


def place(
    K: ArrayHandle, work: WorkPartition, table: ArrayHandle | None, segment: Segment, key: Register
) -> tuple[Register, Register]:
    """Block and row of a key in memory. Beyond a sequence's end the block is out of bounds: TMA gives zeros."""
    if table is None:
        return segment.sequence, key
    pages, size, _, _ = K.shape
    number = key.view(u32) // size
    block = reg.scalar(u32, init=pages)
    with ptx.if_(key < segment.keys.length):
        entry = (segment.sequence * table.shape[1] + number).to(u64) * u32.bytes
        block.set(work.read(u32, table.pointer() + entry))
    return block, key.view(u32) - number * size
