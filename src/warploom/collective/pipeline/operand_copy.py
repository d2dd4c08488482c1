"""Operand tiles copied by the threads themselves, 16 bytes at a time: by cp.async, or through registers.

The tile is a K-major `smem.wgmma_tile` with the layout that TMA gives it, so that ldmatrix reads it without bank
conflicts, and a warpgroup MMA through its descriptor. Threads are arranged in rows: thread t copies chunk t % c of row
t / c, and the same chunk of every row `threads / c` further down, with c chunks per row.
"""

from __future__ import annotations

from ...isa.dtypes import b32, u64
from ...isa.swizzle import CHUNK_BYTES
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.operand_tile import OperandTile, TileSlice
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .swizzling import swizzled

_WORDS = CHUNK_BYTES // b32.bytes


class OperandCopy:
    """The copies of one operand's tiles by the threads of a CTA.

    Args:
        array: the operand in global memory, row-major (rows, K); K a multiple of 16 bytes' worth.
        tile: the destination; one panel wide (tile_k elements are the swizzle's span).
        first_row: row of the array at which the CTA's tile begins.
        threads: threads of the CTA, all of which call every method.

    Elements outside the array become zeros.
    """

    def __init__(self, array: ArrayHandle, tile: OperandTile, first_row: Register, threads: int) -> None:
        layout = tile.layout
        self.tile, self.array, self.span = tile, array, layout.swizzle.span
        chunks = self.span // CHUNK_BYTES
        self.step = threads // chunks
        if layout.panels != 1 or layout.major != "K":
            raise tile.trace.error(
                f"threads copy tiles that are one K-major panel, and {tile.buffer.name} is not",
                expected=f"{layout.panel_inner} elements in k",
                got=f"{layout.inner} in {layout.major}, {layout.panels} panels",
            )
        if layout.rows % self.step or self.step * self.span % layout.swizzle.repeat:
            raise tile.trace.error(
                f"{threads} threads do not divide {tile.buffer.name} evenly",
                expected=f"rows in multiples of {self.step}, in multiples of the swizzle's pattern",
                got=f"{layout.rows} rows of {self.span} bytes, a pattern of {layout.swizzle.repeat}",
            )
        self.passes = layout.rows // self.step
        self.extent, self.depth = array.shape
        thread = ptx.special.tid.x()
        row, chunk = thread // chunks, thread % chunks
        self.row = first_row + row
        self.column = chunk * (CHUNK_BYTES // array.dtype.bytes)
        self.offset = swizzled(row * self.span + chunk * CHUNK_BYTES, layout.swizzle)
        size = array.dtype.bytes
        self.source = array.pointer() + (self.row.to(u64) * self.depth + self.column) * size
        self.stride = self.depth.to(u64) * (self.step * size)

    def _sources(self, start: Register) -> list[Register]:
        """The addresses of this thread's chunks of the tile at k = start."""
        sources = [self.source + start.to(u64) * self.array.dtype.bytes]
        for _ in range(self.passes - 1):
            sources.append(sources[-1] + self.stride)
        return sources

    def start(self, stage: TileSlice, start: Register) -> None:
        """Copy the tile at k = start into a stage by cp.async, as part of the thread's current group."""
        inside = ptx.select(start + self.column < self.depth, reg.scalar(b32, init=CHUNK_BYTES), 0)
        target = stage + self.offset
        for i, source in enumerate(self._sources(start)):
            size = ptx.select(self.row + i * self.step < self.extent, inside, 0)
            ptx.cp.async_.cg(target + i * self.step * self.span, ptx.addr(source), CHUNK_BYTES, src_bytes=size)

    def buffer(self) -> list[RegisterArray]:
        """Registers for one tile: 16 bytes per pass."""
        return [reg.array(b32, _WORDS) for _ in range(self.passes)]

    def load(self, values: list[RegisterArray], start: Register) -> None:
        """Start loading the tile at k = start into registers (ld.global.v4)."""
        within = start + self.column < self.depth
        for i, (chunk, source) in enumerate(zip(values, self._sources(start), strict=True)):
            for word in chunk:
                word.set(0)
            inside = within & (self.row + i * self.step < self.extent)
            ptx.inst.ld.global_.nc.v4.b32(chunk, ptx.addr(source), pred=inside)

    def put(self, stage: TileSlice, values: list[RegisterArray]) -> None:
        """Write the loaded values into a stage (st.shared.v4)."""
        target = stage + self.offset
        for i, chunk in enumerate(values):
            ptx.inst.st.shared.v4.b32(target + i * self.step * self.span, chunk)
