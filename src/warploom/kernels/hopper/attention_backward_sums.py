"""The sums of dQ: many CTAs add to each tile of a workspace in f32, in a fixed order; another kernel converts it.

    consumer   wait for the buffer | write its parts of dQᵀ, in the order of its registers | arrive
    adder                            wait for the parts | wait for its turn | add them in bulk | free | pass the turn on

A consumer's parts of a tile are contiguous in the workspace, in the order in which a warpgroup's threads hold them:
thread t has elements 4t to 4t + 3 of each group of four registers. So writes have no bank conflicts, and an addition is
one instruction. The kernel that converts reads parts in the same order.

In a deterministic launch, the CTAs add to a tile in the order of their blocks of keys. The first block that sees the
tile stores instead of adding, so the workspace need not be zeroed. Each later one waits until as many blocks have added
as come before it. A CTA waits only for CTAs with earlier tickets, which are running or done. They never wait for it, so
the wait ends even if few CTAs fit on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...collective.epilogue.transposed_panel import PANEL_BYTES, TransposedPanel
from ...collective.mma.fragment import ACC_REGS, Fragment, thread_of_warpgroup
from ...collective.pipeline.swizzling import swizzled
from ...collective.tile.roles import WARP, WARPGROUP
from ...isa.dtypes import b32, f32, s32, u32, u64
from ...isa.swizzle import CHUNK_BYTES, Swizzle
from ...lang import Kernel, Scalar, Tile, kernel, ptx, reg, smem
from ...lang.arrays import RegisterArray
from ...lang.smem import SharedAddress, SharedArray
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..fields import builder
from .attention_backward_config import SUM_ROWS, BackwardConfig
from .attention_backward_rows import BlockGrid, BlockIndex, bounds, padded_begin, sequence_at
from .attention_config import Attention
from .attention_key_blocks import KeyBlock
from .attention_visits import line_of, visitor_tiles
from .description import PANEL

ADDER = WARPGROUP + WARP
"""Threads at the barriers of a part: a consumer, and the warp that adds what it writes."""
_VECTOR_BYTES = ACC_REGS * f32.bytes


@dataclass
class SumBuffer:
    """The parts of dQᵀ on their way to the workspace, one per consumer, and the barriers that guard them.

    Attributes:
        memory: f32, (consumers, parts that are added together, elements of a part).
        first_barrier: named barriers from here: for each consumer one that says that its part is full, then as many
            that say that it is free.
    """

    memory: SharedArray
    first_barrier: int
    consumers: int

    @classmethod
    def allocate(cls, of: Attention, config: BackwardConfig, first_barrier: int) -> SumBuffer:
        """Allocate the buffer."""
        memory = smem.array(f32, (config.consumers, config.parts_per_add, config.part_elements(of)), name="dQ")
        return cls(memory, first_barrier, config.consumers)

    def full(self, me: int) -> int:
        """The barrier that says that consumer `me` has written its part."""
        return self.first_barrier + me

    def free(self, me: int) -> int:
        """The barrier that says that the part has been read."""
        return self.first_barrier + self.consumers + me

    def write(self, acc: RegisterArray, me: int, part: int) -> None:
        """Write a part, the first of those that are added together when they are free; called by all threads of
        consumer `me`."""
        slots = self.memory.shape[1]
        slot = part % slots
        if slot == 0:
            ptx.bar.sync(self.free(me), ADDER)
        start = (self.memory[me, slot, 0] + thread_of_warpgroup() * _VECTOR_BYTES).register()
        for index in range(0, len(acc), ACC_REGS):
            place = ptx.addr(start, index * WARPGROUP * f32.bytes)
            ptx.store(place, acc[index : index + ACC_REGS], space="shared")
        if slot == slots - 1:
            ptx.fence.proxy_async_shared_cta()
            ptx.bar.arrive(self.full(me), ADDER)


class Adder:
    """A warp that adds the parts that consumer `me` writes to the workspace.

    Args:
        call: the kernel's arguments. `sums`: the workspace, f32, (B, H, elements of a head). `turns`: u32: for
            each consumer's parts of a tile the number of blocks that have added to them, 0 at first.
        block: this CTA's block of keys.
    """

    def __init__(
        self, of: Attention, config: BackwardConfig, buffer: SumBuffer, call: dict[str, Any], block: KeyBlock, me: int
    ) -> None:
        self.config, self.buffer, self.me = config, buffer, me
        self.block, self.first = block.row.view(u32) // config.tile_n, block.first
        self.begin_tile = None if block.packed is None else block.packed.padded // config.tile_m
        self.sums, self.turns = call["sums"], call["turns"]
        self.elements = config.part_elements(of) * config.parts_per_add
        self.times = config.parts(of) // config.parts_per_add
        self.leader = (ptx.special.tid.x() & (WARP - 1)) == 0

    def begin(self) -> None:
        """Say that the part is free; called by all threads of the warp before the first `add`."""
        ptx.bar.arrive(self.buffer.free(self.me), ADDER)

    def add(self, line: Register, tile: Register, listed: Register | None = None) -> None:
        """Add the next parts to a tile (u32) of a head, whose number among all heads and batches is `line` (u32).

        The parts of a tile have one turn: it is passed on when all of them have been added. listed: the number of
        blocks that add to the tile before this one (u32), if lists say it.
        """
        ordered, place = self.config.deterministic, tile if self.begin_tile is None else tile + self.begin_tile
        for time in range(self.times):
            ptx.bar.sync(self.buffer.full(self.me), ADDER)
            with ptx.if_(self.leader):
                before = self._before(tile) if listed is None else listed
                if ordered and time == 0:
                    self._wait(self._turn(line, place), before)
                number = (place * self.config.consumers + self.me) * self.times + time
                first = line.to(u64) * self.sums.shape[2] + number.to(u64) * self.elements
                self._add(self.sums.pointer() + first * f32.bytes, before)
                ptx.cp.async_.bulk.commit_group()
                ptx.cp.async_.bulk.wait_group_read(0)
            ptx.warp.sync()
            ptx.bar.arrive(self.buffer.free(self.me), ADDER)
        if ordered:
            with ptx.if_(self.leader):
                ptx.cp.async_.bulk.wait_group(0)
                ptx.fence.proxy_async_global()
                turn = ptx.addr(self._turn(line, place))
                ptx.inst("st.release.gpu.global.u32", turn, (self._before(tile) if listed is None else listed) + 1)
            ptx.warp.sync()

    def _before(self, tile: Register) -> Register:
        """The number of blocks that add to a tile before this one."""
        if self.first is None:
            return self.block
        lowest = ptx.math.max((tile * self.config.tile_m).view(s32) + self.first, 0)
        return self.block - lowest.view(u32) // self.config.tile_n

    def _turn(self, line: Register, place: Register) -> Register:
        """The address of the turn of this consumer's parts of a tile."""
        tiles = self.sums.shape[2] // (self.elements * self.times * self.config.consumers)
        number = (line * tiles + place) * self.config.consumers + self.me
        return self.turns.pointer() + number.to(u64) * u32.bytes

    def finish(self) -> None:
        """Wait until all additions are complete."""
        with ptx.if_(self.leader):
            ptx.cp.async_.bulk.wait_group(0)

    def _wait(self, turn: Register, before: Register) -> None:
        """Wait until all blocks before this one have added."""
        seen = reg.scalar(u32)

        def look() -> Any:
            ptx.inst("ld.acquire.gpu.global.u32", seen, ptx.addr(turn))
            return seen != before

        with ptx.while_(look):
            pass
        ptx.fence.proxy_async_global()

    def _add(self, place: Register, before: Register) -> None:
        """Issue the addition, or for the first block in a fixed order the store."""
        source, size = self.buffer.memory[self.me, 0, 0], self.elements * f32.bytes

        def add() -> None:
            opcode = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"
            ptx.inst(opcode, ptx.addr(place), source, size)

        if not self.config.deterministic:
            add()
            return
        with ptx.if_(before == 0):
            ptx.cp.async_.bulk.store(ptx.addr(place), source, size)
        with ptx.else_():
            add()


@builder()
def build_convert(of: Attention, config: BackwardConfig, folded: bool = False) -> Kernel:
    """dQ (B, S, H, D), 16 bits, of a workspace (B, H, elements of a head) and `factor`: the sums times the factor.

    With a left edge of a window, tiles that begin after the last of `keys` have no sums, and dQ is 0. So is that of a
    packed sequence without keys, and of a tile that no block of keys visits, if lists say which do.
    """
    chosen = config
    _, _, queries = config.part(of, 0, 0)
    grid = BlockGrid("S", "H", config.tile_m, of.varlen, folded)
    parts = config.parts_per_tile(of)

    def attention_convert(**call: Any) -> None:
        panel = smem.wgmma_tile(of.dtype, (queries, PANEL), stages=parts, name="dQ")
        dq, edge, end, reached = call["dQ"], call.get("first"), None, None
        index = BlockIndex(grid, dq, ends=call.get("q_ends"))
        tile, head, batch = index.block(), index.head(), index.batch()
        thread, me = thread_of_warpgroup(), ptx.special.tid.x() // WARPGROUP
        row = (tile * chosen.tile_m).view(s32)
        keys: Any
        if of.varlen:
            begin, end, keys, inside = _sequence(call, tile * chosen.tile_m, chosen.tile_m)
            row, reached = inside + begin, keys > 0
            edge = None if edge is None else edge + (keys - (end - begin))
        else:
            inside, keys = row, call.get("keys")
        if of.block_mask:
            visitors = call["visitors"]
            visited = (line_of(visitors, batch, head) * visitors.shape[2] + tile).to(u64)
            reached = ptx.load(s32, ptx.addr(visitors.pointer() + visited * s32.bytes)) > 0
        seen = reached if edge is None else inside + edge < keys
        if edge is not None and reached is not None:
            seen = seen & reached
        elements = chosen.part_elements(of)
        line = (batch * dq.shape[2] + head).to(u64) * call["sums"].shape[2]
        writer = TransposedPanel()
        for part in range(0, parts, chosen.consumers):
            number = ((tile * chosen.consumers + me) * chosen.parts(of) + part // chosen.consumers).to(u64)
            start = call["sums"].pointer() + (line + number * elements + thread * ACC_REGS) * f32.bytes
            values = []
            for group in range(elements // (WARPGROUP * ACC_REGS)):
                values += list(ptx.load(f32, ptx.addr(start, group * WARPGROUP * _VECTOR_BYTES), vector=ACC_REGS))
            if seen is not None:
                values = [ptx.select(seen, value, 0.0) for value in values]
            fragment = Fragment(RegisterArray([value * call["factor"] for value in values]))
            writer.write(fragment.as_a(of.dtype), panel[me + part])
        ptx.fence.proxy_async_shared_cta()
        ptx.bar.sync(0)
        for place in range(parts):
            consumer = place % chosen.consumers
            column, query, _ = chosen.part(of, consumer, place // chosen.consumers)
            with ptx.if_(me == consumer):
                if end is None:
                    with ptx.if_(thread == 0):
                        ptx.tma.store(dq.tma_desc(), panel[place], (column, head, row + query, batch))
                else:
                    _store_rows(dq, panel[place], thread, queries, (row + query, end, head, column))
        if end is None:
            ptx.cp.async_.bulk.commit_group()
            ptx.cp.async_.bulk.wait_group(0)

    return kernel(
        in_specs={
            "sums": Tile("B", "H", "W", f32), "factor": Scalar(f32),
            **({"first": Scalar(s32)} if of.window_left else {}),
            **({"q_ends": Tile("N", s32), "k_ends": Tile("N", s32), "keys": Scalar(s32)} if of.varlen else
               {"keys": Scalar(s32)} if of.window_left else {}),
            **visitor_tiles(of),
        },
        out_specs={"dQ": Tile("B", "S", "H", of.head_dim, of.dtype, box=(PANEL, 1, queries, 1), swizzle="128B",
                              order="rows")},
        grid=grid, block=WARPGROUP * config.consumers, arch="sm_90a", name="attention_convert",
    )(attention_convert)  # fmt: skip


def _sequence(call: dict[str, Any], padded: Register, tile: int) -> tuple[Register, ...]:
    """Of the packed sequence that index `padded` of the sums belongs to: its first query and the one after its last,
    its number of keys, and the query of the index in it."""
    number = sequence_at(call["q_ends"], padded, tile)
    begin, end = bounds(call["q_ends"], number, call["dQ"].shape[1])
    key_begin, key_end = bounds(call["k_ends"], number, call["keys"].view(u32))
    return begin, end, key_end - key_begin, (padded - padded_begin(begin, number, tile)).view(s32)


def _store_rows(
    array: ArrayHandle, panel: SharedAddress, thread: Register, rows: int,
    at: tuple[Register, Register, Register, int],
) -> None:  # fmt: skip
    """Store the rows of a panel before row `end` of the array (1, rows, heads, columns): 16 bytes per thread and pass.

    at: the array's row of the panel's first, `end`, the head and the first column.
    """
    first, end, head, column = at
    _, _, heads, width = array.shape
    per_row = PANEL * array.dtype.bytes // CHUNK_BYTES
    for start in range(0, rows, WARPGROUP // per_row):
        row, chunk = thread // per_row + start, thread % per_row
        place = chunk * (CHUNK_BYTES // array.dtype.bytes) + column
        there = row.view(s32) + first
        with ptx.if_((row < rows) & (there < end) & (place < width)):
            source = panel + swizzled(row * PANEL_BYTES + chunk * CHUNK_BYTES, Swizzle.B128)
            index = ((there.view(u32) * heads + head).to(u64) * width + place) * array.dtype.bytes
            ptx.store(ptx.addr(array.pointer() + index), ptx.load(b32, source, vector=4))


assert SUM_ROWS == PANEL
