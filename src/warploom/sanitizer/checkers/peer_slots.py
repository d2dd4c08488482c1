"""Words between GPUs that are data and flag in one, and are written again before they were read.

A thread polls such a word (`received_words`), so no flag orders its accesses. Strong accesses do not race, and yet a
GPU that is a launch ahead must not write the word again before its owner has read and reset it. What a GPU may know of
another one's accesses in an earlier launch, beyond what releases and acquires tell:

    it has read a word that GPU B stored in B's launch n      all of B's launches before n are complete, and B knew the
                                                              same of other GPUs when it stored the word
    it has read what a warp stored after it, or a warp that   that read is complete; a store before it need not be
    it had met at a barrier, had read this word

An error is a store of such a word over an access in an earlier launch of another GPU of which the storing warp knows
nothing, under any schedule; and a read, in one launch, of what another GPU stored in a later one. Two buffers that
launches use alternately are right if each GPU hears from each other one in every launch.
"""

from __future__ import annotations

from collections import defaultdict
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
Launches: TypeAlias = "dict[int, int]"
"""GPU -> its latest launch that is known to be complete."""


class PeerSlots(Observer):
    """See the module's docstring. It judges an access before the shadow of global memory records it.

    Its findings are of a rule of `global_memory`, which judges buffers that flags guard.
    """

    rules = ()

    def __init__(self, context: Context) -> None:
        self.context = context
        code = context.machine.code
        self.idle = context.machine.calls == 1 or len(context.machine.devices) == 1
        self._messages = {} if self.idle else code.fact("received words", lambda: received_words(code))
        self.idle = not self._messages
        self._uses = frozenset().union(*self._messages.values())
        self._run: set[int] = set()
        self._slots: dict[Region, np.ndarray] = {}
        """The load that polls each granule, plus 1."""
        self._known_after: dict[tuple[int, int], Launches] = {}
        """(GPU, launch) -> what any of its warps has learned so far."""
        self._learned: dict[int, Launches] = defaultdict(dict)
        """The same of a warp of the grid, in its launch."""
        self._when: dict[tuple[int, int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
        """(GPU, launch, other GPU) -> the warps that have learned of its launches: their epochs, and which."""
        self._fronts: dict[int, np.ndarray] = {}
        """A warp of the grid -> what it knew of its cluster's warps when it last stored a word."""
        self._seen: dict[tuple[int, int], np.ndarray] = {}
        """(warp, cluster) -> the same of warps there that stored what this one has read."""
        self._seen_in: dict[tuple[int, int, int], np.ndarray] = {}
        """(GPU, launch, cluster) -> the same of all its warps."""
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

    # -- what GPUs know --------------------------------------------------------------------------------------------

    def _gpu(self, state: ClusterState, actor: int) -> tuple[int, int]:
        """The GPU of a warp of the grid, and its launch."""
        cluster = (actor - 1) // state.count
        return self.context.devices[cluster], self.context.calls[cluster]

    def _before(self, device: int, call: int) -> Launches:
        """What a GPU knows at the beginning of a launch."""
        return self._known(device, call - 1) if call else {}

    def _known(self, device: int, call: int) -> Launches:
        found = self._known_after.get((device, call))
        if found is None:
            found = self._known_after[device, call] = dict(self._before(device, call))
        return found

    def _learn(self, state: ClusterState, clock: WarpClock, writer: UnpackedAccess) -> None:
        """A warp reads what a warp of another GPU stored."""
        me = state.actor(clock.me)
        device, call = self._gpu(state, me)
        other, launch = self._gpu(state, writer.actor)
        front, cluster = self._fronts.get(writer.actor), (writer.actor - 1) // state.count
        if front is not None:
            self._seen[me, cluster] = np.maximum(front, self._seen.get((me, cluster), front))
            at = (device, call, cluster)
            self._seen_in[at] = np.maximum(front, self._seen_in.get(at, front))
        learned, known = self._learned[me], self._known(device, call)
        for gpu, which in (*self._known(other, launch).items(), (other, launch - 1)):
            if which > learned.get(gpu, -1):
                learned[gpu] = which
                known[gpu] = max(which, known.get(gpu, -1))
                self._when[device, call, gpu][me] = (clock.epoch, which)

    def _knows(self, state: ClusterState, clock: WarpClock, access: UnpackedAccess) -> bool:
        """True if an earlier launch's access by another GPU is complete for all that a warp knows."""
        if knows(clock, state, access.actor, access.epoch):
            return True
        me = state.actor(clock.me)
        device, call = self._gpu(state, me)
        other, launch = self._gpu(state, access.actor)
        if max(self._before(device, call).get(other, -1), self._learned[me].get(other, -1)) >= launch:
            return True
        if not access.writes:
            cluster, theirs = divmod(access.actor - 1, state.count)
            fronts = [self._seen.get((me, cluster)), *(self._seen_in.get((device, at, cluster)) for at in range(call))]
            if any(front is not None and front[theirs] >= access.epoch for front in fronts):
                return True
        told = self._when.get((device, call, other), {})
        return any(which >= launch and knows(clock, state, one, epoch) for one, (epoch, which) in told.items())

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
            self._learn(state, clock, access)
            if pc in self._messages and self._gpu(state, access.actor)[1] > frame.cta.cluster.call:
                self._suspect(pc, state, shadow, frame, at_warp, int(mine[last == number].flat[0]), access, False)

    def _write(
        self, state: ClusterState, shadow: GlobalShadow, frame: Frame, at_warp: int, clock: WarpClock, mine: np.ndarray
    ) -> None:
        self._fronts[state.actor(clock.me)] = clock.weak.copy()
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
                if self._gpu(state, access.actor)[1] < frame.cta.cluster.call and not self._knows(state, clock, access):
                    first = int(np.flatnonzero(before == number)[0])
                    pc = int(polled[first]) - 1
                    self._suspect(pc, state, shadow, frame, at_warp, int(mine[first]), access, True)

    def _of_others(
        self, state: ClusterState, clock: WarpClock, accesses: np.ndarray, writes: bool
    ) -> list[tuple[int, UnpackedAccess]]:
        """The accesses by threads of other GPUs."""
        device = self._gpu(state, state.actor(clock.me))[0]
        others = accesses[(accesses != 0) & (accesses >> ACTOR_SHIFT != state.actor(clock.me))]
        found = ((number, unpack(number, writes)) for number in distinct(others))
        return [
            (number, access)
            for number, access in found
            if access.level and not access.asynchronous and self._gpu(state, access.actor)[0] != device
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
        other, theirs = self._gpu(state, access.actor)
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
