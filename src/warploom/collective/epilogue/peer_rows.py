"""Rows of a result to individual destinations on several GPUs: each row has its GPU and its destination row.

Accumulators are staged in shared memory 64 columns at a time, each warp's 16 rows by the warp itself. Eight lanes then
store 128 bytes of a row to the GPU that it came from.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.dtypes import b32, u32, u64
from ...lang import ptx, smem
from ...lang.arrays import RegisterArray
from ...lang.peers import PeerArrays
from ...lang.smem import SharedAddress
from ...lang.values import Register
from ..mma.fragment import ACC_REGS, pack
from ..tile.sizes import ACC_ATOM_N
from .activations import FUNCTIONS
from .arguments import BOX_ROWS
from .staged_store import Region, StagedStore

STAGED_COLUMNS = 64
PITCH = 2 * STAGED_COLUMNS + 16
"""Bytes from row to row: an odd multiple of 16."""
STAGED_BYTES = BOX_ROWS * PITCH
"""Bytes of shared memory per consumer."""


class PeerRows(StagedStore):
    """The store of rows to other GPUs; see the module's docstring.

    Args:
        returned: (places, columns) on each GPU, of 16-bit elements, rows a multiple of 16 bytes long.
        sources: u32 (rows, 2) of this GPU: the GPU and the destination row of each row of the result.
        consumers: warpgroups that store.
        activation: the function applied to the elements first.
    """

    def __init__(
        self, returned: PeerArrays, sources: PeerArrays, rank: Register, consumers: int, activation: str | None = None
    ) -> None:
        super().__init__(returned[0], False, PITCH, True)
        self.returned, self.sources, self.rank, self.activation = returned, sources, rank, activation
        self.end: Register = rank
        self.memory = smem.array(returned.dtype, (consumers, STAGED_BYTES // returned.dtype.bytes), name="staged")

    def rows(self, acc: Sequence[RegisterArray], me: int, row: Register, column: Register, end: Register) -> None:
        """Store blocks of 64 rows up to row `end`. Called by all threads of consumer `me`."""
        self.end = end
        width = STAGED_COLUMNS // ACC_ATOM_N * ACC_REGS
        for index, block in enumerate(acc):
            for first in range(0, len(block), width):
                part = block[first : min(first + width, len(block))]
                values = list(part.elements)
                if self.activation is not None:
                    values = [FUNCTIONS[self.activation](value) for value in values]
                words = [pack(values[at : at + 2], self.array.dtype) for at in range(0, len(values), 2)]
                across = column + first // ACC_REGS * ACC_ATOM_N
                where = Region(row + index * BOX_ROWS, across, row, across)
                self.store(words, self.memory[me, 0], 1 + me, where)
                ptx.warp.sync()

    def _copy_piece(
        self, start: SharedAddress, here: Register, step: int, rows: int, column: Register, region: Region
    ) -> None:
        places, width = self.array.shape
        size = self.array.dtype.bytes
        for turn in range(-(-rows // step)):
            row = region.row + here + turn * step
            exists = (row < self.end) & (column < width)
            if (turn + 1) * step > rows:
                exists = exists & (here < rows - turn * step)
            with ptx.if_(exists):
                said = self.sources.pointer(self.rank) + row.to(u64) * (2 * u32.bytes)
                source, place = ptx.load(u32, ptx.addr(said), vector=2)
                with ptx.if_(place < places):
                    target = self.returned.pointer(source) + (place.to(u64) * width + column) * size
                    ptx.store(ptx.addr(target), ptx.load(b32, start + turn * step * self.pitch, vector=4))
