"""Words between GPUs that are data and flag in one, and are written again before they were read.

A thread polls such a word (`received_words`), so no flag orders its accesses. Strong accesses do not race, and yet a
GPU that is a launch ahead must not write the word again before its owner has read and reset it. `CompleteLaunches` says
what a GPU may know of another one's accesses in an earlier launch.

An error is a store of such a word over an access in an earlier launch of another GPU of which the storing warp knows
nothing, under any schedule; and a read, in one launch, of what another GPU stored in a later one. Two buffers that
launches use alternately are right if each GPU hears from each other one in every launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...emulator.machine.events import Observer
from ...emulator.machine.places import Lanes
from ...isa import effects
from ..happens_before.flags import knows
from ..received_words import received_words
from ..report.findings import at
from ..report.words import actor as who
from ..shadow.global_shadow import ACTOR_SHIFT, UnpackedAccess, unpack
from ..shadow.shadow import distinct

if TYPE_CHECKING:
    from ...emulator.machine.finding import Finding
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.memory import Region
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.clocks import WarpClock
    from ..happens_before.state import ClusterState
    from ..shadow.global_shadow import GlobalShadow

Suspicion: TypeAlias = "tuple[str, tuple[Operation, Operation], Cta, int, str]"
"""The message, the instructions, who ran the first one, and where."""


class PeerSlots(Observer):
    """See the module's docstring. It judges an access before the shadow of global memory records it.

    Its findings are of a rule of `global_memory`, which judges buffers that flags guard.
    """

    rules = ()

    def __init__(self, context: Context) -> None:
        self.context = context
        code = context.machine.code
        self._launches = context.launches
        self.idle = not self._launches.needed
        self._messages = {} if self.idle else code.fact("received words", lambda: received_words(code))
        self._uses = frozenset().union(*self._messages.values())
        self._run: set[int] = set()
        self._slots: dict[Region, np.ndarray] = {}
        """The load that polls each granule, plus 1."""
        self._suspected: dict[tuple[int, int, int], Suspicion] = {}
        """By the load that polls, the access and the earlier one."""

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        code = frame.operation
        if code.pc in self._uses:
            self._run.add(code.pc)
        if place.space != "global" or not code.order.strong or how not in (effects.READS, effects.WRITES):
            return
        state, shadow = self.context.state(frame.cta), self.context.buffer(place.region)
        granules = shadow.granules(place.index, place.size, place.count)
        for at_warp, clock in enumerate(state.of_frame(frame)):
            mine = granules if frame.warps == 1 else granules[..., place.lanes >> 5 == at_warp]
            if how == effects.READS:
                self._read(state, shadow, frame, at_warp, clock, mine)
            else:
                self._write(state, shadow, frame, at_warp, clock, mine)

    def _knows(self, state: ClusterState, clock: WarpClock, access: UnpackedAccess) -> bool:
        """True if an earlier launch's access by another GPU is complete for all that a warp knows."""
        return (
            knows(clock, state, access.actor, access.epoch)
            or self._launches.over(state, clock, access)
            or (not access.writes and self._launches.has_read(state, clock, access))
        )

    # -- accesses --------------------------------------------------------------------------------------------------

    def _read(
        self, state: ClusterState, shadow: GlobalShadow, frame: Frame, at_warp: int, clock: WarpClock, mine: np.ndarray
    ) -> None:
        if not shadow.written:
            return
        last = shadow.last[mine]
        pc = frame.operation.pc
        if pc in self._messages:
            slots = self._slots.get(shadow.region)
            if slots is None:
                slots = self._slots[shadow.region] = np.zeros(shadow.count, np.int32)
            slots[mine] = pc + 1
        for number, access in self._of_others(state, clock, last, True):
            self._launches.learn(state, clock, access)
            if pc in self._messages and self._launches.of(state, access.actor)[1] > frame.cta.cluster.call:
                self._suspect(pc, state, shadow, frame, at_warp, int(mine[last == number].flat[0]), access, False)

    def _write(
        self, state: ClusterState, shadow: GlobalShadow, frame: Frame, at_warp: int, clock: WarpClock, mine: np.ndarray
    ) -> None:
        self._launches.stored(state, clock)
        slots = self._slots.get(shadow.region)
        if slots is None or not frame.cta.cluster.call:
            return
        polled = slots[mine]
        if not polled.any():
            return
        mine, polled = mine[polled != 0], polled[polled != 0]
        for accesses, writes in ((shadow.last, True), (shadow.reads, False), (shadow.others, False)):
            before = accesses[mine]
            for number, access in self._of_others(state, clock, before, writes):
                if self._launches.of(state, access.actor)[1] < frame.cta.cluster.call and not self._knows(
                    state, clock, access
                ):
                    first = int(np.flatnonzero(before == number)[0])
                    pc = int(polled[first]) - 1
                    self._suspect(pc, state, shadow, frame, at_warp, int(mine[first]), access, True)

    def _of_others(
        self, state: ClusterState, clock: WarpClock, accesses: np.ndarray, writes: bool
    ) -> list[tuple[int, UnpackedAccess]]:
        """The accesses by threads of other GPUs."""
        device = self._launches.of(state, state.actor(clock.me))[0]
        others = accesses[(accesses != 0) & (accesses >> ACTOR_SHIFT != state.actor(clock.me))]
        found = ((number, unpack(number, writes)) for number in distinct(others))
        return [
            (number, access)
            for number, access in found
            if access.level and not access.asynchronous and self._launches.of(state, access.actor)[0] != device
        ]

    # -- reports ---------------------------------------------------------------------------------------------------

    def _suspect(
        self, load: int, state: ClusterState, shadow: GlobalShadow, frame: Frame, at_warp: int, granule: int,
        access: UnpackedAccess, writes: bool,
    ) -> None:  # fmt: skip
        """Note an error; whether the word is a message is known when what uses it has run."""
        codes = (frame.operation, self.context.operation(access.pc))
        key = (load, codes[0].pc, codes[1].pc)
        if key in self._suspected:
            return
        other, theirs = self._launches.of(state, access.actor)
        mine, gpu = frame.cta.cluster.call, frame.cta.device.index
        where, warp = f"`{shadow.region.name}` at byte {granule * shadow.granule}", frame.first_warp + at_warp
        actor = who(frame.cta, warp)
        if writes:
            did = "wrote" if access.writes else "read"
            message = (
                f"{actor} stores {where} with {at(codes[0])} in launch {mine}, and nothing tells GPU {gpu} that launch "
                f"{theirs} of GPU {other}, which {did} it with {at(codes[1])}, is complete: GPU {gpu} may be a launch "
                f"ahead, and what it sent in launch {theirs} is lost"
            )
        else:
            message = (
                f"{actor} reads {where} with {at(codes[0])} in launch {mine}, and finds what GPU {other} stored in "
                f"launch {theirs} with {at(codes[1])}: GPU {other} is a launch ahead, and what it sent in launch "
                f"{mine} is lost"
            )
        self._suspected[key] = (message, codes, frame.cta, warp, where)

    def report(self) -> list[Finding]:
        for (load, *_), (message, codes, cta, warp, where) in self._suspected.items():
            if self._messages[load] & self._run or load in self._messages[load]:
                self.context.findings.add("peer-buffer-reused", message, codes, cta, warp, address=where)
        return []
