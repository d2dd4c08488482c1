"""Accumulators to a row-major array of 16-bit elements: staged in shared memory, stored 16 bytes per lane.

    straight     the rows of the accumulators are rows of the array. A warp stages its 16 rows and stores them itself.

                     warp   [stmatrix 16 rows x columns] | warp sync  | [8 lanes store 128 bytes of a row]

    transposed   they are columns of the array. stmatrix.trans transposes 8 x 8 blocks (PTX ISA 9.7.14.5.16); a
                 warpgroup stages its 64 columns of every row, and synchronises before it stores them.

A tile that was moved back inside the array overlaps the previous one. It stores only its own `Region`, so that no
element is written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...isa.dtypes import b16, b32, u64
from ...lang import ptx, reg
from ...lang.smem import SharedAddress
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..tile.roles import WARPGROUP

_CHUNK = 8
"""16-bit elements in 16 bytes."""
_WARP_ROWS = 16


@dataclass
class Region:
    """The position of accumulators in the array, and the part of them that is stored.

    Attributes:
        row, column: coordinates of the first element in the array.
        first_row, first_column: elements before these belong to another tile.
    """

    row: Register
    column: Register
    first_row: Register
    first_column: Register


class StagedStore:
    """A staged store; see the module's docstring.

    Args:
        array: the result, of 16-bit elements.
        transposed: the accumulators' rows are columns of the array.
        pitch: bytes of shared memory from row to row, an odd multiple of 16.
        vector_store: rows of the array are multiples of 16 bytes; otherwise elements are stored one by one.
    """

    def __init__(self, array: ArrayHandle, transposed: bool, pitch: int, vector_store: bool) -> None:
        if array.dtype.bits != 16:
            raise array.trace.error("stmatrix moves elements of 16 bits", got=str(array.dtype))
        self.array, self.transposed, self.pitch, self.vector_store = array, transposed, pitch, vector_store
        self.stride = array.row_stride() if array.spec.order == "rows" else array.shape[1]
        thread = ptx.special.tid.x() & (WARPGROUP - 1)
        self.thread, self.lane, self.warp = thread, thread & 31, thread >> 5

    def store(self, words: Sequence[Register], memory: SharedAddress, barrier: int, region: Region) -> None:
        """Store 64 x 8 g accumulators of a warpgroup; called by all its threads.

        Args:
            words: per group of 8 columns, two registers of two elements: rows l / 4 and l / 4 + 8 of the warp's 16.
            memory: the warpgroup's staging buffer, which no thread reads any more.
            barrier: a named barrier of the warpgroup's own.
            region: the region of the array that the warpgroup's 64 rows (transposed: columns) cover.
        """
        groups = len(words) // 2
        if self.transposed:
            self._stage(words, memory + ((self.lane >> 4) * _CHUNK + (self.lane & 7)) * self.pitch
                        + ((self.lane >> 3) & 1) * 16 + self.warp * (2 * _WARP_ROWS), _CHUNK * self.pitch)  # fmt: skip
            ptx.bar.sync(barrier, WARPGROUP)
            self._copy(memory, self.thread, WARPGROUP, groups * _CHUNK, _CHUNK, region)
            return
        mine = memory + self.warp * (_WARP_ROWS * self.pitch)
        self._stage(words, mine + (self.lane & 15) * self.pitch + (self.lane >> 4) * 16, 16)
        ptx.inst.bar.warp.sync(-1)
        rows = Region(region.row + (self.warp << 4), region.column, region.first_row, region.first_column)
        self._copy(mine, self.lane, 32, _WARP_ROWS, groups, rows)

    def _stage(self, words: Sequence[Register], start: SharedAddress, step: int) -> None:
        for index in range(0, len(words), 4):
            ptx.stmatrix(start + index // 2 * step, list(words[index : index + 4]), trans=self.transposed)

    def _copy(
        self, memory: SharedAddress, lane: Register, lanes: int, rows: int, chunks: int, region: Region
    ) -> None:  # fmt: skip
        """Store `rows` rows of `chunks` times 16 bytes with `lanes` lanes, 128 bytes of a row at a time."""
        first = 0
        for width in (8, 4, 2, 1):
            while chunks - first >= width:
                here, at = _row_of_lane(lane, width), lane & (width - 1)
                start = memory + (here * self.pitch + at * 16) + first * 16
                column = region.column + at * _CHUNK + first * _CHUNK
                self._copy_piece(start, here, lanes // width, rows, column, region)
                first += width

    def _copy_piece(
        self, start: SharedAddress, here: Register, step: int, rows: int, column: Register, region: Region
    ) -> None:
        height, width = self.array.shape
        size = self.array.dtype.bytes
        row = region.row + here
        target = self.array.pointer() + (row.to(u64) * self.stride + column) * size
        iterations = -(-rows // step)
        stride = self.stride.to(u64) * (step * size) if iterations > 1 else None
        if not self.vector_store:
            self._copy_elements(start, target, here, column, RowIterations(rows, step, stride), region)
            return
        across = (column < width) & (column >= region.first_column)
        for iteration in range(iterations):
            below = row + iteration * step if iteration else row
            exists = (below < height) & (below >= region.first_row) & across
            if (iteration + 1) * step > rows:
                exists = exists & (here < rows - iteration * step)
            if iteration:
                assert stride is not None
                target = target + stride
            values = ptx.load(b32, start + iteration * step * self.pitch, vector=4, pred=exists)
            ptx.store(ptx.addr(target), values, pred=exists)

    def _copy_elements(
        self, start: SharedAddress, target: Register, here: Register, column: Register, iterations: RowIterations,
        region: Region,
    ) -> None:  # fmt: skip
        """As a loop, because eight guards per iteration take all predicate registers."""
        height, width = self.array.shape
        source = start.register().copy()
        for at in ptx.range(here, iterations.rows, iterations.step, unroll=False):
            row = region.row + at
            exists = (row < height) & (row >= region.first_row)
            words = ptx.load(b32, SharedAddress(self.array.trace, 0, source), vector=4, pred=exists)
            for pair, word in enumerate(words):
                halves = [reg.scalar(b16), reg.scalar(b16)]
                ptx.inst.mov.b32(halves, word, pred=exists)
                for odd, value in enumerate(halves):
                    element = column + (2 * pair + odd)
                    inside = exists & (element < width) & (element >= region.first_column)
                    ptx.store(ptx.addr(target, (2 * pair + odd) * 2), value, pred=inside)
            source += iterations.step * self.pitch
            if iterations.stride is not None:
                target += iterations.stride


@dataclass
class RowIterations:
    """Iterations over rows: the number of rows, the rows stored at a time, and their bytes in the array (None if there
    is only one iteration)."""

    rows: int
    step: int
    stride: Register | None


def _row_of_lane(lane: Register, width: int) -> Register:
    """The row that a lane reads if `width` lanes share a row. The eight lanes that shared memory serves at a time read
    rows `width` apart; with a pitch of an odd multiple of 16 bytes, these are in different banks."""
    if width in (1, 8):
        return lane // width if width > 1 else lane
    spread = (lane & 7) // width * width
    above = lane >> 3
    return spread + (above if width == 4 else (above & 1) + (above >> 1) * _CHUNK)
