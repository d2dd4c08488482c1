"""Transpose tiles of 8-bit values in shared memory: TMA loads keys x columns, wgmma reads columns x keys.

A warp takes 32 keys and 16 columns at a time. ldmatrix.trans gives each lane two columns of two keys per register,
prmt packs four keys of one column into a register, and stmatrix writes them as part of a row.

    ldmatrix   keys 2i, 2i + 1 (register 0) and 8 + 2i, 9 + 2i (1)    of columns 2g, 2g + 1      lane 4g + i
    prmt       keys 2i, 2i + 1, 8 + 2i, 9 + 2i                        of column 2g; of 2g + 1
    stmatrix   4i to 4i + 3 of 16                                     row 2g; row 2g + 1

P's registers hold keys in the same order (`a_elements`), so no further permutation is needed. Lanes with g > 3 swap
their two columns, so that the 8 rows of each stored matrix are in different banks.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import TileQueue, TmaPipeline
from ...collective.pipeline.swizzling import swizzled
from ...collective.pipeline.tma import State
from ...collective.tile.roles import WARP
from ...isa.dtypes import b32, u32
from ...isa.swizzle import CHUNK_BYTES, Swizzle
from ...lang import ptx, reg
from ...lang.operand_tile import TileSlice
from ...lang.values import Register
from .attention_config import PANEL_BYTES, TRANSPOSE_WARPS, Attention, Config
from .attention_tiles import BlockScheduler

KEYS, COLUMNS = 32, 16
"""The keys and columns that a warp transposes in one step."""
EVEN, ODD = 0x6420, 0x7531
"""Selectors of prmt: the first columns of two registers, and the second columns."""
_PER_PANEL = PANEL_BYTES // COLUMNS


@dataclass
class Offsets:
    """Offsets in the tiles at which a lane reads and writes 32 keys."""

    read: Register
    written: Register


class TransposeWarp:
    """A transposing warp: warp `me` of `TRANSPOSE_WARPS` takes groups me, me + 3, ... of 32 keys in each tile.

    Args:
        of, config: the kernel.
        values, transposed: the rings of loaded and of transposed values, with equal numbers of stages.
        me: a register, uniform across the warp.
    """

    def __init__(
        self, of: Attention, config: Config, values: TmaPipeline, transposed: TmaPipeline, me: Register
    ) -> None:
        self.of, self.values, self.transposed, self.me = of, values, transposed, me
        self.groups = config.tile_n // KEYS
        layout = transposed.tiles["t"].layout
        self.pitch = layout.swizzle.span
        in_panel = self.pitch // KEYS
        self.at = values.consumer_state()
        lane = ptx.special.tid.x() & (WARP - 1)
        self.leader = lane == 0
        far, matrix, row = lane >= WARP // 2, lane >> 3, lane & 7
        self.selectors = [ptx.select(far, reg.scalar(b32, init=a), b) for a, b in ((ODD, EVEN), (EVEN, ODD))]
        # matrices 0 and 1 hold the two columns of the first 16 keys, 2 and 3 those of the next 16
        column = (row << 1) + ((row >> 2) ^ (matrix & 1))
        self.offsets = []
        for first in range(0, self.groups, TRANSPOSE_WARPS):
            group = me + first
            written = column * self.pitch + (group % in_panel) * KEYS + (matrix >> 1) * CHUNK_BYTES
            self.offsets.append(
                Offsets(
                    swizzled((group * KEYS + lane) * PANEL_BYTES, Swizzle.B128),
                    swizzled(written, layout.swizzle) + (group // in_panel) * layout.panel_bytes,
                )
            )

    def run(self, blocks: BlockScheduler, queue: TileQueue) -> None:
        """Transpose all tiles of all blocks that the queue gives to this CTA."""
        state = queue.consumer_state()
        number = queue.next(state).copy()
        with ptx.while_(lambda: number < queue.tiles):
            block = blocks.block_at(number)
            for _ in ptx.range(block.after_first + 1, unroll=False):
                self.tile()
            number.set(queue.next(state))

    def tile(self) -> None:
        """Transpose the next tile of values."""
        values = self.values.consumer_wait(self.at).v
        transposed = self.transposed.writer_acquire(State(self.at.index, self.at.phase ^ 1)).t
        for number, offsets in enumerate(self.offsets):
            first = number * TRANSPOSE_WARPS
            if first + TRANSPOSE_WARPS <= self.groups:
                self.keys(values, transposed, offsets)
            else:
                with ptx.if_(self.me < self.groups - first):
                    self.keys(values, transposed, offsets)
        ptx.fence.proxy_async_shared_cta()  # both ways: TMA overwrites what was read here, wgmma reads what was written
        ptx.warp.sync()
        self.values.consumer_release(self.at, leader=self.leader)
        self.transposed.writer_commit(self.at, self.leader)
        self.values.advance(self.at, branch=False)

    def keys(self, values: TileSlice, transposed: TileSlice, offsets: Offsets) -> None:
        """Transpose all columns of 32 keys."""
        read = (values + offsets.read).register()
        written = (transposed + offsets.written).register()
        steps = range(self.of.columns // COLUMNS)
        for inside in range(_PER_PANEL):  # one at a time: the producer's warpgroup has few registers
            source = read ^ (inside * COLUMNS) if inside else read
            for panel, step in enumerate(steps[inside::_PER_PANEL]):
                words = ptx.ldmatrix(ptx.addr(source, panel * values.layout.panel_bytes), trans=True)
                found = [_bytes(words[at], words[at + 1], selector) for at in (0, 2) for selector in self.selectors]
                ptx.stmatrix(ptx.addr(written, step * (COLUMNS * self.pitch)), found)


def transpose_warp_index(thread: Register) -> Register:
    """The index of this transposing warp, not counting the first warp of the warpgroup, which loads."""
    index = reg.scalar(u32)
    ptx.inst.shfl.sync.idx.b32(index, thread // WARP - 1, 0, 31, -1)
    return index


def _bytes(low: Register, high: Register, selector: Register) -> Register:
    """Select four of eight bytes (prmt.b32)."""
    result = reg.scalar(b32)
    ptx.inst("prmt.b32", result, low, high, selector)
    return result
