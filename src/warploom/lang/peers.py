"""Arrays that each GPU of a group has one of, as a kernel sees them: `Tile(M, N, bf16, peers=4)`.

    def push(A, C, rank):                       # C: one array on each of four GPUs
        pointer = C.pointer(rank)               # on the GPU whose rank is in a register (a chain of selp)
        other = C[3].tma_desc()                 # on GPU 3

A store to another GPU is a store to an address; releases and acquires of .sys scope order it (PTX ISA 8.5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .control import select
from .pointers import TensorMap
from .tile import ArrayHandle, Tile
from .trace import Trace
from .values import Register

Index = int | Register


def wrapped(rank: Register, ranks: int) -> Register:
    """A rank wrapped around after the last one: for values below `2 * ranks`."""
    return select(rank >= ranks, rank - ranks, rank)


class PeerArrays(Sequence[ArrayHandle]):
    """One array per rank, all of one shape and type.

    Attributes:
        ranks: the arrays; `peers[rank]` is one of them, for a Python int.
    """

    def __init__(self, trace: Trace, name: str, spec: Tile) -> None:
        self.trace, self.name, self.spec, self.dtype = trace, name, spec, spec.dtype
        self.ranks = tuple(ArrayHandle(trace, f"{name}_rank{rank}", spec) for rank in range(spec.peers))

    def __len__(self) -> int:
        return len(self.ranks)

    def __getitem__(self, rank: Any) -> Any:
        if isinstance(rank, Register):
            raise self.trace.error(
                f"{self.name}[…] takes a Python int",
                got=repr(rank),
                hint=f"with a rank in a register: {self.name}.pointer(rank), {self.name}.tma_desc(rank)",
                code="array-indexed",
            )
        return self.ranks[rank]

    @property
    def shape(self) -> Any:
        """Extents of each array, outermost first."""
        return self.ranks[0].shape

    def pointer(self, rank: Index) -> Register:
        """The global address of a rank's array, u64; a rank in a register must be between 0 and peers - 1."""
        return self._select(rank, lambda array: array.pointer())

    def tma_desc(self, rank: Index, box: tuple[int, ...] | None = None) -> TensorMap:
        """The tensor map of a rank's array; `box` as in `ArrayHandle.tma_desc`."""
        maps = [array.tma_desc(box) for array in (self.ranks if isinstance(rank, Register) else [self.ranks[rank]])]
        register = maps[0].register
        if isinstance(rank, Register):
            by_array = dict(zip(self.ranks, maps, strict=True))
            register = self._select(rank, lambda array: by_array[array].register)
        chosen = TensorMap(register, maps[0].array, maps[0].box)
        chosen.origin = frozenset(name for one in maps for name in one.origin)
        return chosen

    def _select(self, rank: Index, of: Callable[[ArrayHandle], Register]) -> Register:
        if not isinstance(rank, Register):
            return of(self.ranks[rank])
        every = [of(array) for array in self.ranks]
        chosen = every[0]
        for number, one in enumerate(every[1:], 1):
            chosen = select(rank == number, one, chosen)
        chosen.origin = frozenset(name for one in every for name in one.origin)
        return chosen

    def __repr__(self) -> str:
        return f"{self.name}: {self.spec!r} of {len(self)} GPUs"
