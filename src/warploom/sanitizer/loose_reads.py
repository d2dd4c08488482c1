"""Loads that race with stores of other threads, and a run in which they load different values.

If a tile has fewer elements than a CTA has threads, compilers let several warps load the same elements, and one of
them store them (Triton's in-place kernels). The loads of the other warps race with the store, but their values are
not used. A single run cannot show this, so the kernel runs again with other values in these registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..emulator.machine.events import Observer
from .happens_before.clocks import FULL
from .happens_before.journal import WARP
from .undefined_reads import read_and_written

if TYPE_CHECKING:
    from ..emulator.machine.frame import Frame
    from ..emulator.machine.machine import Cta, Machine
    from ..emulator.machine.operation import Operation
    from .happens_before.state import ClusterState
    from .shadow.global_shadow import UnpackedAccess

Indices: TypeAlias = "tuple[int, int, int]"
Reads: TypeAlias = "Mapping[int, Mapping[tuple[Indices, int], int]]"
"""The loads (pc) -> the warps that make them, by %ctaid and index -> their lanes, as a mask."""
SPOILS = ((0xFFFF, 0x3C5A), (0, 0))
"""Changes to each half of a register: bits to keep, bits to flip. The first changes signs and exponents, the second
leaves zero, because a set flag may be tested either way."""


class RacingLoads:
    """Records who makes such loads in a run."""

    def __init__(self) -> None:
        self._reads: dict[int, dict[tuple[Indices, int], int]] = {}
        self._other_races = False

    def note(
        self, indices: Sequence[Sequence[Indices]], state: ClusterState, earlier: UnpackedAccess,
        now: tuple[Cta, int, Operation], writes: bool, unordered: bool,
    ) -> None:  # fmt: skip
        """A race of an access (CTA, warp, instruction) with an earlier one; `indices`: %ctaid by cluster and rank."""
        cta, warp, code = now
        if earlier.writes == writes or earlier.asynchronous or earlier.level or code.order.strong or not unordered:
            self._other_races = True
        elif earlier.writes:
            self._note(code.pc, (cta.index, warp), FULL)
        else:
            cluster, me = divmod(earlier.actor - 1, state.count)
            rank, theirs = divmod(me, state.per_cta)
            self._note(earlier.pc, (indices[cluster][rank], theirs), FULL)

    def note_lanes(self, pc: int, cta: Indices, warp: int, lanes: np.ndarray) -> None:
        """Some lanes of a warp load what another lane of it stores."""
        self._note(pc, (cta, warp), int(np.bitwise_or.reduce(1 << lanes.astype(np.int64))))

    def note_other(self) -> None:
        """A race that is not between a load and a store."""
        self._other_races = True

    def _note(self, pc: int, warp: tuple[Indices, int], lanes: int) -> None:
        warps = self._reads.setdefault(pc, {})
        warps[warp] = warps.get(warp, 0) | lanes

    def reads(self) -> Reads:
        """These loads; none if other races were found too."""
        return {} if self._other_races else self._reads


class PerturbedLoads(Observer):
    """Lets these warps load values that differ from memory."""

    def __init__(self, machine: Machine, reads: Reads, spoil: tuple[int, int]) -> None:
        self._kept, self._change = spoil
        for pc, warps in reads.items():
            operation = machine.code.operations[pc]
            machine.code.wrap(operation, self._spoiled(operation, operation.step, warps))  # type: ignore[arg-type]

    def _spoiled(
        self, operation: Operation, step: Callable[[Any], Any], warps: Mapping[tuple[Indices, int], int]
    ) -> Callable[[Any], Any]:
        _, rows = read_and_written(operation)

        def load(frame: Frame) -> Any:
            result = step(frame)
            ours = [warps.get((frame.cta.index, frame.first_warp + at), 0) for at in range(frame.warps)]
            lanes = (np.asarray(ours)[:, None] >> np.arange(WARP) & 1).reshape(-1).astype(bool) & np.asarray(frame.mask)
            for bits, index in rows if lanes.any() else ():
                columns = frame.registers.banks[bits][index][frame.columns].view(np.uint16).reshape(frame.lanes, -1)
                columns[lanes] = columns[lanes] & self._kept ^ self._change
            return result

        return load
