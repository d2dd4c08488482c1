"""Gradients of captured arrays, which the kernel of dQ, dK and dV adds to a workspace in f32.

For t = score_mod(s, …, x) of an element x of an array, the gradient of x is the sum of P (dP - delta) dt/dx over all
scores that read it. What is read at one index is added up before it is added to memory:

    index depends on    added up                                                            atomic additions
    nothing             a thread's scores of the tile, then those of the warp               1 for each warp and tile
    the key             a thread's queries of the tile, then the quad that shares the row   16
    the query           a thread's two keys, then the 8 lanes that share the column         1 for each query
    both, or the score  nothing                                                             1 for each score but zeros

Additions of many CTAs have no order, so the sums differ in their last bits from run to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...collective.mma.fragment import QUAD, half_of
from ...collective.tile.roles import WARP
from ...isa.dtypes import f32, u64
from ...lang import ptx
from ...lang.dependence import Dependence
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle, Tile
from ...lang.values import Register
from .attention_config import Attention
from .attention_functions import Read
from .attention_values import trace_error

QUERY, KEY = 1, 2
"""What an index depends on."""
COLUMN = (4, 8, 16)
"""Lane distances (xor) across the lanes that share a column."""
_MULTIPLE = 4


def workspace(of: Attention) -> dict[str, int]:
    """The f32 arrays of the sums by name, with their numbers of elements, which are multiples of 4."""
    wanted = {} if of.score_mod is None else of.score_mod.gradients()
    return {f"dscore_{number}": -(-size // _MULTIPLE) * _MULTIPLE for number, size in wanted.items()}


def workspace_tiles(of: Attention) -> dict[str, Tile]:
    """The same as arguments of the kernel; they must be zeros."""
    return {name: Tile(size, f32, inout=True) for name, size in workspace(of).items()}


def weighted(p: Register, gradient: Register) -> Register:
    """P times a gradient; 0 where P is 0, even if a function gave inf or NaN for a masked score."""
    return ptx.select(p == 0.0, 0.0, p * gradient)


class ReadSums:
    """The gradients of what a function reads for the scores of one tile.

    Args:
        call: the kernel's arguments.
    """

    def __init__(self, call: Mapping[str, ArrayHandle]) -> None:
        self.call = call
        self.lane = ptx.special.tid.x() & (WARP - 1)
        self.read: list[tuple[int, int]] | None = None
        self.partial: dict[tuple[int, int], tuple[Register, Register]] = {}

    def add(
        self, index: int, p: Register, gradient: Register, reads: Sequence[Read], dependence: Dependence
    ) -> None:  # fmt: skip
        """Add those of register `index` of a fragment, the next one: p, and gradient dP - delta."""
        read = [(each.array, dependence.of(each.at.held)) for each in reads]
        if self.read not in (None, read):
            raise trace_error("a function of scores reads other elements each time", self.read, read)
        self.read = read
        for number, each in enumerate(reads):
            slope = each.slope
            known = slope.held if isinstance(slope.held, (int, float)) else None
            if known != 0:
                found = weighted(p, gradient if known == 1 else gradient * slope.floating())
                self._add(index, number, found, each.at.integer())

    def _add(self, index: int, number: int, found: Register, at: Register) -> None:
        assert self.read is not None
        array, depends = self.read[number]
        if depends == QUERY | KEY:
            self._to_memory(array, found, at, None)
            return
        place = number, half_of(index) if depends == KEY else index % 2 if depends == QUERY else 0
        before = self.partial.pop(place, None)
        found = found if before is None else before[0] + found
        if depends == QUERY and half_of(index):
            self._to_memory(array, self._across(found, COLUMN), at, (self.lane & sum(COLUMN)) == 0)
        else:
            self.partial[place] = found, at

    def finish(self) -> None:
        """Add what is left to memory, once, after the last register."""
        for (number, _), (found, at) in self.partial.items():
            assert self.read is not None
            array, depends = self.read[number]
            lanes = QUAD if depends == KEY else (*QUAD, *COLUMN)
            self._to_memory(array, self._across(found, lanes), at, (self.lane & sum(lanes)) == 0)

    def _across(self, value: Register, lanes: tuple[int, ...]) -> Register:
        for distance in lanes:
            value = value + ptx.warp.shuffle_xor(value, distance)
        return value

    def _to_memory(self, array: int, value: Register, at: Register, leads: Predicate | None) -> None:
        """Add to the workspace, in the lanes for which `leads` is true; zeros change nothing."""
        some = ~(value == 0.0)
        address = ptx.addr(self.call[f"dscore_{array}"].pointer() + at.to(u64) * f32.bytes)
        ptx.inst("red.relaxed.gpu.global.add.f32", address, value, pred=some if leads is None else some & leads)
