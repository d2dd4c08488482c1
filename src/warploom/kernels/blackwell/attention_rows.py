"""The roles of the Blackwell attention kernel that have one row per thread: softmax, and correction of O.

    m = the largest score so far, updated only if it grew by more than 2^8 since the last update (FlashAttention-4)
    P = 2^(s - m),  l = 2^(m_before - m) l + sum of P,  O = 2^(m_before - m) O

A row that has seen no key has m = -inf, and 0 is subtracted instead. Its result is zeros, and -inf as logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...collective.mma.fragment import pack
from ...collective.tile.roles import WARPGROUP
from ...isa.dtypes import f32, s32, u32, u64
from ...lang import ptx, reg
from ...lang.values import Register
from ..hopper.attention_config import LOG2_E
from ..hopper.attention_softmax import GROWTH
from ..hopper.attention_tiles import QueryBlock
from ..hopper.description import PANEL
from .attention_config import ROWS, STRANDS

PIECE = 32
"""Columns that are stored, or scaled, at a time."""
CHUNK = 8
"""16-bit elements in 16 bytes."""


def _speaks() -> Any:
    """True in the lane that arrives for its warp, after the warp has synchronised."""
    ptx.warp.sync()
    return (ptx.special.tid.x() & 31) == 0


def _release(barrier: Any) -> None:
    """Arrive once for the warp, after its threads' accesses to tensor memory."""
    ptx.tcgen05.fence_before_thread_sync()
    ptx.mbarrier.arrive(barrier, pred=_speaks())


class Softmax:
    """One strand: a thread has a row of S, one tile of keys after the other.

    Args:
        cta: see `attention.Cta`.
        factors: f32, one per row of both strands, for the correction warps.
        strand: index of the warpgroup.
        scale: log2(e) times the factor of the scores.
        LSE: (B, H, S).
    """

    def __init__(self, cta: Any, factors: Any, strand: Register, scale: Register, LSE: Any) -> None:  # noqa: N803
        self.cta, self.bars, self.strand, self.scale, self.LSE = cta, cta.bars, strand, scale, LSE
        self.lane = ptx.special.tid.x() & (WARPGROUP - 1)
        self.factor = factors[strand * ROWS + self.lane]
        self.scores, self.p = cta.scores[strand], cta.p(strand).mine()
        self.largest, self.total = reg.scalar(f32), reg.scalar(f32)
        self.tile, self.told = reg.scalar(u32, init=0), reg.scalar(u32, init=1)

    def run(self) -> None:
        """Process all blocks."""
        for block in self.cta.each_block():
            row = (self.strand * ROWS + self.lane).view(s32) + block.row
            start = block.start.copy()
            self.largest.set(-math.inf)
            self.total.set(0.0)
            self.step(block, row, start, masked=True, first=True)
            if self.cta.of.window_right:
                for _ in ptx.range(block.above):
                    start -= self.cta.config.tile_n
                    self.step(block, row, start, masked=True)
            for _ in ptx.range(block.full):
                start -= self.cta.config.tile_n
                self.step(block, row, start)
            self.finish(block, row)

    def step(
        self, block: QueryBlock, row: Register, start: Register, *, masked: bool = False, first: bool = False
    ) -> None:
        """Process a tile: read S; when `ready` completes, P is in S's columns or in its own."""
        ptx.mbarrier.wait(self.bars.scores[self.strand], self.tile)
        ptx.tcgen05.fence_after_thread_sync()
        pieces = [self.scores.load(at, PIECE).registers for at in range(0, self.cta.config.tile_n, PIECE)]
        scores = [score for piece in pieces for score in piece]
        ptx.tcgen05.wait_ld()
        if masked:
            stop = block.keys if block.last is None else ptx.math.min(block.keys, row + block.last + 1)
            after = stop - start
            for column, score in enumerate(scores):
                score.set(ptx.select(after > column, score, -math.inf))
        factor = self.renew(_largest(scores, self.largest))
        if not first:
            self.tell(factor)
        offset = -(_finite(self.largest) * self.scale)
        parts = [self.total * factor, reg.scalar(f32, init=0.0)]
        words = []
        for index in range(0, len(scores), 2):
            pair = [ptx.math.ex2(ptx.math.fma(score, self.scale, offset)) for score in scores[index : index + 2]]
            parts = [part + each for part, each in zip(parts, pair, strict=True)]
            words.append(pack(pair, self.cta.of.dtype))
            if len(words) == PIECE // 2:
                ptx.tcgen05.st(self.p + (index + 2 - PIECE) // 2, words)
                words = []
        self.total.set(parts[0] + parts[1])
        ptx.tcgen05.wait_st()
        _release(self.bars.ready[self.strand])
        self.tile ^= 1

    def renew(self, newest: Register) -> Register:
        """Update the maximum if it grew enough. Returns the factor of previous sums."""
        before = self.largest.copy()
        grew = (newest - _finite(before)) * self.scale > GROWTH
        grew = grew | ((before == -math.inf) & (newest > -math.inf))
        self.largest.set(ptx.select(grew, newest, before))
        return ptx.math.ex2((_finite(before) - _finite(self.largest)) * self.scale)

    def tell(self, factor: Register) -> None:
        """Pass the row's factor to the correction warps."""
        ptx.mbarrier.wait(self.bars.heard[self.strand], self.told)
        ptx.store(self.factor, factor)
        ptx.mbarrier.arrive(self.bars.told[self.strand], pred=_speaks())
        self.told ^= 1

    def finish(self, block: QueryBlock, row: Register) -> None:
        """Pass on the final factor of O, and store the logarithm of the row's sum."""
        self.tell(ptx.select(self.total == 0.0, 0.0, ptx.math.rcp(self.total)))
        logarithm = ptx.math.fma(_finite(self.largest), self.scale, ptx.math.lg2(self.total)) * (1 / LOG2_E)
        line = (block.batch * self.cta.blocks.heads + block.head) * self.cta.blocks.queries + row.view(u32)
        place = self.LSE.pointer() + line.to(u64) * 4
        ptx.store(ptx.addr(place), logarithm, pred=row < block.queries)


class Correction:
    """Both strands: scale O if a maximum grew, and store the final O. A thread has a row of each strand."""

    def __init__(self, cta: Any, factors: Any) -> None:
        self.cta, self.bars = cta, cta.bars
        self.lane = ptx.special.tid.x() & (WARPGROUP - 1)
        self.factors = [factors[self.lane + strand * ROWS] for strand in range(STRANDS)]
        self.sums = [cta.sums[strand] for strand in range(STRANDS)]
        self.told, self.block = reg.scalar(u32, init=0), reg.scalar(u32, init=0)

    def run(self) -> None:
        """Process all blocks."""
        for block in self.cta.each_block():
            for strand in range(STRANDS):
                _release(self.bars.ready[strand])  # the first P V of a block overwrites O
            for _ in ptx.range(block.after_first):
                for strand in range(STRANDS):
                    self.rescale(strand)
                self.told ^= 1
            for strand in range(STRANDS):
                self.finish(strand)
            self.told ^= 1
            self.block ^= 1

    def hear(self, strand: int) -> Register:
        """The row's factor."""
        ptx.mbarrier.wait(self.bars.told[strand], self.told)
        factor = ptx.load(f32, self.factors[strand])
        ptx.mbarrier.arrive(self.bars.heard[strand], pred=_speaks())
        return factor

    def rescale(self, strand: int) -> None:
        """Multiply O by the factor if any row of the warp needs it. The previous MMA is complete, since the S issued
        after it is."""
        factor = self.hear(strand)
        ptx.tcgen05.fence_after_thread_sync()
        with ptx.if_(ptx.warp.any(factor != 1.0)):
            for at in range(0, self.cta.of.head_dim, PIECE):
                values = self.sums[strand].load(at, PIECE).registers
                ptx.tcgen05.wait_ld()
                self.sums[strand].store([value * factor for value in values], at)
            ptx.tcgen05.wait_st()
        _release(self.bars.ready[strand])

    def finish(self, strand: int) -> None:
        """Write O divided by the row's sum to shared memory, rounded, for the store warp."""
        factor = self.hear(strand)
        ptx.mbarrier.wait(self.bars.finished[strand], self.block)
        ptx.tcgen05.fence_after_thread_sync()
        ptx.mbarrier.wait(self.bars.free[strand], self.block ^ 1)
        row = self.cta.out[strand] + self.lane * (PANEL * 2)
        swizzle = (self.lane & 7) << 4
        for at in range(0, self.cta.of.head_dim, PIECE):
            values = self.sums[strand].load(at, PIECE).registers
            ptx.tcgen05.wait_ld()
            scaled = [value * factor for value in values]
            words = [pack(scaled[i : i + 2], self.cta.of.dtype) for i in range(0, PIECE, 2)]
            panel = row + at // PANEL * self.cta.out.layout.panel_bytes
            for chunk in range(PIECE // CHUNK):
                inside = swizzle ^ ((at % PANEL // CHUNK + chunk) << 4)
                ptx.store(panel + inside, words[4 * chunk : 4 * chunk + 4])
        ptx.fence.proxy_async_shared_cta()
        _release(self.bars.stored[strand])


def _largest(scores: Sequence[Register], before: Register) -> Register:
    """The largest of a row's scores and of `before`: odd and even ones separately, by three-input maxima."""
    found = [before, scores[0]]
    rest = list(scores[1:])
    for index in range(0, len(rest) - 1, 2):
        found[index // 2 % 2] = _max3(found[index // 2 % 2], rest[index], rest[index + 1])
    return _max3(found[0], found[1], rest[-1])


def _max3(a: Register, b: Register, c: Register) -> Register:
    result = reg.scalar(f32)
    ptx.inst.max.f32(result, a, b, c)
    return result


def _finite(largest: Register) -> Register:
    return ptx.select(largest == -math.inf, 0.0, largest)
