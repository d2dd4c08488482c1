"""O of the tiles before, in shared memory: what keeps sums of eight-bit products right, however many keys there are.

A wgmma of eight bits cuts every term to 13 bits below the largest one, its accumulator among them, toward zero. So a
sum that has grown loses a little of each new term, always toward zero where the terms have one sign. O is therefore
the accumulator for `config.flushed` tiles only; then each thread adds its registers, in f32, to memory of its own:

    tiles       [0 .. n-1]      [n .. 2n-1]     ...   [rest]
    O           accumulates     from zero              from zero, + memory
    memory      = O             += O                   is read

It is the memory that O leaves through, with as much again behind it. No thread reads what another wrote, so nobody
waits; only the first of a block waits until TMA has read the O of the block before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...collective.epilogue.whole_store import WholeStore
from ...collective.mma.fragment import thread_of_warpgroup
from ...collective.tile.roles import WARPGROUP
from ...isa.dtypes import f32, u32
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.emit import Operand
from ...lang.operand_tile import OperandTile
from ...lang.values import Register
from .attention_config import PANEL_BYTES, QUERY_ROWS

VECTOR = 4
_VECTOR_BYTES = VECTOR * f32.bytes
_STEP = WARPGROUP * _VECTOR_BYTES
"""Between two of a thread's vectors: a warp's lie next to each other, so no bank is asked twice."""
_PER_PANEL = QUERY_ROWS * PANEL_BYTES // _STEP
"""Vectors of each thread in a consumer's rows of a panel."""


class Sums:
    """See the module's docstring.

    Args:
        out: O's accumulators, f32.
        tile: two stages of O's tile in shared memory.
        me: the consumer's number.
        tiles: after which O is added.
        store: what O leaves through, in the first stage.
    """

    def __init__(self, out: RegisterArray, tile: OperandTile, me: int, tiles: int, store: WholeStore) -> None:
        self.out, self.tiles, self.store = out, tiles, store
        own = tile[0].rows(QUERY_ROWS * me, QUERY_ROWS) + thread_of_warpgroup() * _VECTOR_BYTES
        self.place, self.panel_bytes = own.register(), tile.layout.panel_bytes
        self.held, self.there = reg.scalar(u32), reg.predicate()

    def begin(self) -> None:
        """Before the first tile of a block."""
        self.held.set(0)
        self.there.set(False)

    def count(self) -> None:
        """A tile's product is in O, completely: add it to the memory if there are enough."""
        self.held += 1
        with ptx.if_(self.held >= self.tiles):
            with ptx.if_(self.there):
                for vector, address in self._vectors():
                    found = ptx.load(f32, address, vector=VECTOR, space="shared")
                    for own, other in zip(found, vector, strict=True):
                        own.set(own + other)
                    ptx.store(address, found, space="shared")
            with ptx.else_():
                self.store.wait_read()
                ptx.bar.sync(self.store.barrier, WARPGROUP)
                for vector, address in self._vectors():
                    ptx.store(address, vector, space="shared")
            self.there.set(True)
            self.held.set(0)

    def collect(self) -> None:
        """O of all tiles, after a block's last product."""
        with ptx.if_(self.there):
            for vector, address in self._vectors():
                for own, other in zip(vector, ptx.load(f32, address, vector=VECTOR, space="shared"), strict=True):
                    own.set(own + other)

    def rescale(self, roots: Sequence[Register]) -> None:
        """Multiply the rows by `roots`, twice, as those of O."""
        with ptx.if_(self.there):
            for _, address in self._vectors():
                found = ptx.load(f32, address, vector=VECTOR, space="shared")
                for index, value in enumerate(found):
                    root = roots[index // 2 % 2]
                    value.set(value * root * root)
                ptx.store(address, found, space="shared")

    def _vectors(self) -> Iterator[tuple[RegisterArray, Operand]]:
        """Four accumulators of one atom, and where they are kept."""
        for number in range(len(self.out) // VECTOR):
            panel, inside = divmod(number, _PER_PANEL)
            address = ptx.addr(self.place, panel * self.panel_bytes + inside * _STEP)
            yield self.out[VECTOR * number : VECTOR * (number + 1)], address
