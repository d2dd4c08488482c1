"""The vectors of an epilogue, loaded while the tile is multiplied.

Each thread loads a few elements before the main loop and writes them to shared memory after it:

    load      one element of the rows' vector and one of each 128 columns per thread, coalesced, into registers
    ...       the main loop hides the latency, which is that of HBM if every tile has its own part of a vector
    publish   write them to the consumer's part of shared memory, barrier
    (store)   the epilogue reads pairs of columns, the same ones in eight lanes

Without this, each thread loads its own columns between the main loop and the store, and waits for HBM once per box.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...isa.dtypes import f32, u64
from ...lang import ptx, reg, smem
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..mma.fragment import HALF_ROWS, thread_of_warpgroup
from ..tile.roles import WARP, WARPGROUP
from ..tile.sizes import ACC_ATOM_N

if TYPE_CHECKING:
    from .apply import Epilogue


class TileVectors:
    """The elements of one consumer's part of a tile, in shared memory; the consumers' threads call everything here.

    Args:
        epilogue: has row scales or a bias of the column; from now on it reads its vectors here.
        consumers: warpgroups with a part of their own.
        rows, columns: of a consumer's part of a tile, at most 128 rows.
        first_barrier: the named barrier of the first consumer; those of the others follow.
    """

    def __init__(self, epilogue: Epilogue, consumers: int, rows: int, columns: int, first_barrier: int) -> None:
        self.epilogue, self.rows, self.columns, self.first_barrier = epilogue, rows, columns, first_barrier
        fusion, args = epilogue.fusion, epilogue.args
        self._near: ArrayHandle | None = args["scale_a"] if fusion.scales == "row" else None
        names = [("scale_b", fusion.scales == "row"), ("bias", fusion.bias == "column")]
        self._along: dict[str, ArrayHandle] = {name: args[name] for name, there in names if there}
        self.elements = (rows if self._near is not None else 0) + columns * len(self._along)
        self.buffer = smem.array(f32, consumers * self.elements, name="vectors")
        self._me = 0
        self._row: Register | int = 0
        self._loaded: list[tuple[int, int, Register]] = []
        epilogue.ahead = self

    def load(self, me: int, row: Register, column: Register, begin: Register) -> None:
        """Start loading, before the main loop of the tile at (row, column), what belongs to consumer `me`. begin: the
        first element of the vectors along the columns, as `Epilogue.vectors_from`."""
        self._me, self._row = me, row
        thread = thread_of_warpgroup()
        height, width = self.epilogue.D.shape[-2:]
        self._loaded, place = [], 0
        if self._near is not None:
            own = row + thread
            self._start(self._near, own, own < height, place, self.rows)
            place += self.rows
        for array in self._along.values():
            for first in range(0, self.columns, WARPGROUP):
                own = column + (thread + first)
                self._start(array, begin + own, own < width, place + first, self.columns - first)
            place += self.columns

    def publish(self) -> None:
        """Write to shared memory what `load` has loaded; after this, all threads of the consumer may read it."""
        thread = thread_of_warpgroup()
        place = self.buffer[self._me * self.elements + thread]
        for first, count, value in self._loaded:
            only = thread < count if count < WARPGROUP else None
            ptx.store(place + first * f32.bytes, value.to(f32), pred=only)
        ptx.bar.sync(self.first_barrier + self._me, WARPGROUP)

    def release(self) -> None:
        """Wait until all threads of the consumer have read, if no store through boxes did."""
        ptx.bar.sync(self.first_barrier + self._me, WARPGROUP)

    def near(self, row: Register) -> list[Register]:
        """The elements of the rows' vector for a row of the tile and the row 8 below it."""
        place = self.buffer[self._me * self.elements + (row - self._row)]
        return [ptx.load(f32, place + half * HALF_ROWS * f32.bytes) for half in range(2)]

    def along(self, name: str, first: int, atoms: int) -> list[list[Register]]:
        """The elements of a vector for the thread's two columns of each of `atoms` atoms, from atom `first`."""
        before = list(self._along).index(name) * self.columns + (self.rows if self._near is not None else 0)
        lane = thread_of_warpgroup() & (WARP - 1)
        place = self.buffer[self._me * self.elements + before + ((lane & 3) << 1)]
        return [
            list(ptx.load(f32, place + atom * ACC_ATOM_N * f32.bytes, vector=2)) for atom in range(first, first + atoms)
        ]

    def _start(self, array: ArrayHandle, index: Register, inside: Predicate, place: int, count: int) -> None:
        """Start loading an element for each of the first `count` threads; zeros outside."""
        dtype = array.dtype
        value = reg.scalar(dtype, init=0.0)
        kind = dtype.name if dtype is f32 else f"b{dtype.bits}"
        address = array.pointer() + index.to(u64) * dtype.bytes
        if count < WARPGROUP:
            inside = inside & (thread_of_warpgroup() < count)
        ptx.inst(f"ld.global.{kind}", value, ptx.addr(address), pred=inside)
        self._loaded.append((place, count, value))
