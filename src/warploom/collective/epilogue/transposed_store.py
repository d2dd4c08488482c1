"""Accumulators whose rows are columns of the result: a warp transposes them in shared memory, a lane stores 16 bytes.

A thread of a warpgroup MMA has two rows and many columns. If the rows are contiguous in memory, it could only store
single elements. stmatrix.trans writes 8 x 8 blocks transposed (PTX ISA 9.7.14.5.16), so that 16 columns of the
accumulators become 16 rows of 32 bytes, and each lane stores half a row. Warps do not wait for each other: each has two
buffers, and writes one while slower lanes still read the other.

    columns 0..15   write buffer 0 | warp sync | read it, store
    columns 16..31                               write buffer 1 | warp sync | read it, store
    columns 32..47                                                            write buffer 0 ...
"""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.dtypes import b32, u64
from ...lang import ptx, smem
from ...lang.operand_tile import TileSlice
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..tile.roles import WARPGROUP
from ..tile.sizes import TRANSPOSED_BYTES as BYTES
from ..tile.sizes import TRANSPOSED_PITCH as _PITCH
from ..tile.sizes import TRANSPOSED_PLACES as _PLACES
from ..tile.sizes import TRANSPOSED_ROWS as ROWS
from ..tile.sizes import WARPGROUP_ROWS

COLUMNS = 8
"""Columns of one matrix of stmatrix."""
_PLACE_BYTES = ROWS * _PITCH * 2


class TransposedStore:
    """A transposed store; see the module's docstring.

    Args:
        array: the result, row-major, of 16-bit elements, with rows of a multiple of 8 elements.
        consumers: warpgroups that store, beginning with warp 0.
        reused: a tile whose memory it takes, at least `BYTES` of each consumer's 64 rows. Every consumer must have read
            its rows, and no thread may write them any more. By default memory is allocated.
    """

    def __init__(self, array: ArrayHandle, consumers: int, reused: TileSlice | None = None) -> None:
        if array.dtype.bits != 16:
            raise array.trace.error("stmatrix moves elements of 16 bits", got=str(array.dtype))
        self.array, self.reused = array, reused
        if reused is None:
            self.memory = smem.array(array.dtype, (consumers, BYTES // array.dtype.bytes), name="transposed")

    def begin(self, me: int) -> None:
        """Synchronise consumer `me` before the first `store` of a tile: all of its threads have read `reused`."""
        if self.reused is not None:
            ptx.bar.sync(1 + me, WARPGROUP)

    def store(self, words: Sequence[Register], me: int, turn: int, row: Register, column: Register) -> None:
        """Store 8 or 16 rows of the result, 16 columns of each; called by all lanes of a warp.

        Args:
            words: per 8 rows, two registers, for columns 0 to 7 and 8 to 15, each with elements of two rows, in the
                layout of the accumulators.
            me: index of the consumer.
            turn: counts the calls, so that consecutive calls use different buffers.
            row, column: coordinates in the result; elements outside it are not stored.
        """
        thread = ptx.special.tid.x()
        lane, warp = thread & 31, (thread & (WARPGROUP - 1)) >> 5
        start = self.memory[me] if self.reused is None else self.reused.rows(me * WARPGROUP_ROWS, WARPGROUP_ROWS)
        mine = start + (warp * (_PLACES * _PLACE_BYTES) + turn % _PLACES * _PLACE_BYTES)
        blocks = len(words) // 2
        size = self.array.dtype.bytes
        # lane 8 j + i addresses row i of matrix j; matrices are (rows 0-7, left), (rows 0-7, right), (rows 8-15, ...
        written = ((lane >> 4) * COLUMNS + (lane & 7)) * (_PITCH * size) + ((lane >> 3) & 1) * (COLUMNS * size)
        ptx.stmatrix(mine + written, list(words), trans=True)
        ptx.inst.bar.warp.sync(-1)
        height, width = self.array.shape
        here, half = lane >> 1, (lane & 1) * COLUMNS
        inside = (row + here < height) & (column + half < width)
        if blocks == 1:
            inside = inside & (here < COLUMNS)
        values = ptx.load(b32, mine + (here * (_PITCH * size) + half * size), vector=4)
        target = self.array.pointer() + ((row + here).to(u64) * width + (column + half)) * size
        ptx.store(ptx.addr(target), values, pred=inside)
