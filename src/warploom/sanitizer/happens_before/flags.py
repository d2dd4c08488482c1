"""Flags, locks and counters in global memory: how warps of different CTAs learn of each other. PTX ISA 8.9.

A strong store or atomic that releases (or follows a fence) leaves at its address what its warp knows. A strong load or
atomic that acquires (or that a fence follows) takes it, if each scope includes the other side. Atomics extend what
others left there (a release sequence), stores replace it. A strong access that releases nothing still passes on the
fences.sc before the write, the thread's own and those it knows of, to a thread with a fence.sc after the read. A
thread that saw an address change also knows that the accesses of that address which it saw are complete (observation
order, 8.9.6).
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from .clocks import WarpClock
from .divergent_lanes import DivergentLanes, Key
from .kept_lanes import KeptLanes
from .known_clusters import Front, join_far
from .partial_waits import PartialWaits
from .released import NO_FENCES, WEAK, WHOLE_WARPS, Fences, Q, Released, join_fences
from .scopes import LEVELS, ThreadLocation, needed
from .state import ClusterState

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.memory import Region
    from ...emulator.machine.operation import Operation

FLAGS = 32
"""Maximum number of addresses of one warp's access that are tracked as flags: each lane may have one."""
SIGNALS = 64
"""Signals of a cluster that are remembered."""
HINTED = 2
"""Maximum number of addresses for which a non-releasing access is remembered, to report reliance on it."""


@dataclass(eq=False)
class FlagValue:
    """What one CTA left at an address, and the reach of its scope.

    Attributes:
        released, level: what it released, and the scope of that; strong: the scope of the access itself.
        fences: what fences.sc before it covered; code: the latest such access.
    """

    released: Released
    level: int
    code: Operation
    strong: int = 0
    fences: Fences = field(default_factory=lambda: NO_FENCES)


@dataclass(eq=False)
class LooseSignal:
    """A strong write without a release of all that its warp knows.

    Attributes:
        reached: the warps' epochs that happened before the write; released: those that it does release.
        last: the warp's last write in front of it.
        seers: warps of the grid that have seen it -> their epoch then.
    """

    code: Operation
    reached: Front
    released: Front
    last: Key
    seers: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class Flag:
    """One address.

    Attributes:
        left: what CTAs left there; idle: warps (of the grid) that wrote it without releasing anything, with their
            epoch, the write, and their last one in front of it.
        signals: the same writes, and those that release less than their warp has done.
        seen: warps of the grid that read it strongly -> their latest epoch.
        writers: warps that wrote it strongly -> epoch of their latest such write seen by the readers.
    """

    left: dict[ThreadLocation, FlagValue] = field(default_factory=dict)
    idle: dict[int, tuple[int, Operation, Key]] = field(default_factory=dict)
    signals: dict[int, LooseSignal] = field(default_factory=dict)
    writers: dict[int, int] = field(default_factory=dict)
    seen: dict[int, tuple[int, dict[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Hint:
    """Why an observation orders nothing: the writer's progress (its fronts), and the reason in words; `narrow`:
    True if the reason is a scope.

    `code`: the access of the flag that lacks a fence or a wider scope; `last`: if it writes the flag, its warp's last
    write in front of it.
    """

    epoch: int
    reason: str
    narrow: bool = False
    code: Operation | None = None
    last: Key | None = None


class Flags:
    """All flags of a launch."""

    def __init__(self) -> None:
        self._flags: dict[tuple[Region, int], Flag] = {}
        self.hints: dict[tuple[ThreadLocation, int], Hint] = {}
        """(reader, writing warp of the grid) -> why that ordered nothing."""
        self._signals: dict[int, deque[LooseSignal]] = defaultdict(lambda: deque(maxlen=SIGNALS))
        """The signals of each cluster that others have seen."""
        self.apart: dict[int, DivergentLanes] = {}
        """Warps of the grid in which one lane raised a flag for others."""
        self.fencing: dict[int, WarpClock] = {}
        """Warps of the grid of which some lanes executed a fence.proxy.async for global memory without the others."""

    def touched(
        self, state: ClusterState, frame: Frame, region: Region, offsets: np.ndarray, lanes: np.ndarray, reads: bool,
        writes: bool, atomic: bool,
    ) -> None:  # fmt: skip
        """A strong access: `offsets` in bytes, one for each of `lanes`."""
        code = frame.operation
        sem = code.order.sem
        level = LEVELS[code.order.scope]
        me = ThreadLocation(state.number, frame.cta.rank, frame.cta.device.index)
        for at, clock in enumerate(state.of_frame(frame)):
            here = lanes >> 5 == at
            mine = set(offsets[here].tolist())
            if not mine or len(mine) > FLAGS:
                continue
            mask = sum(1 << lane for lane in (lanes[here] & 31).tolist())
            actor = state.actor(clock.me)
            alive = frame.cta.warps[frame.first_warp + at].alive
            if reads:
                for offset in mine:
                    flag = self._flags.get((region, offset))
                    if flag is not None:
                        self._take(state, clock, flag, me, level, sem, actor, code, mask, alive)
            if writes:
                self._leave(state, clock, region, mine, me, level, sem, actor, code, mask, atomic)

    # -- taking ----------------------------------------------------------------------------------------------------

    def _take(
        self, state: ClusterState, clock: WarpClock, flag: Flag, me: ThreadLocation, level: int, sem: str, actor: int,
        code: Operation, mask: int, alive: int,
    ) -> None:  # fmt: skip
        gained: dict[int, Released] = {}
        for who, left in flag.left.items():
            reach = needed(who, me)
            wide = max(reach, LEVELS["gpu"])
            if wide in left.fences and min(left.strong, level) >= reach:
                clock.remember_fences(wide, self._seen_from(state, left.fences[wide], who, me))
            if not left.level:
                continue
            if min(left.level, level) < reach:
                narrow = "the release" if left.level < reach else "the acquire"
                about = left.code if left.level < reach else code
                self._hint_all(state, left, who, me, f"the scope of {narrow} does not include the other side", about)
                continue
            seen = gained.setdefault(reach, Released.nothing(state.count))
            seen.add(self._seen_from(state, left.released, who, me))
        for writer, signal in flag.signals.items():
            if actor not in signal.seers and (cluster := (writer - 1) // state.count) != state.number:
                if not signal.seers:
                    self._signals[cluster].append(signal)
                signal.seers[actor] = clock.epoch
        for writer, (epoch, where, last) in flag.idle.items():
            self.hints[me, writer] = Hint(epoch, f"`{where.instruction.opcode}` releases nothing", False, where, last)
        for reach, seen in gained.items():
            if sem in ("acquire", "acq_rel"):
                state.notes(PartialWaits).waited(clock, mask, alive, (flag, clock.heard), code, seen)
                clock.acquire(seen)
            else:
                clock.remember(seen, reach)
                self._hint_pending(state, seen, me, code)
        flag.seen[actor] = (clock.epoch, dict(flag.writers))

    @staticmethod
    def _seen_from(state: ClusterState, released: Released, who: ThreadLocation, me: ThreadLocation) -> Released:
        """A release as seen from another location: of another cluster it is known what that cluster did, and what it
        had heard of the others, the reader's own among them."""
        if who.cluster == me.cluster:
            return released
        far = dict(join_far(released.far, {who.cluster: released.reach()}))
        seen = Released.nothing(state.count)
        if (own := far.pop(me.cluster, None)) is not None:
            seen.fronts[WEAK] = seen.fronts[WHOLE_WARPS] = own.c
            seen.fronts[Q], seen.known = own.q, own.known
        fences, ahead = (
            {level: Flags._seen_from(state, one, who, me) for level, one in some.items()}
            for some in (released.fences, released.ahead)
        )
        return replace(seen, far=far, fences=fences, ahead=ahead)

    def _hint_all(
        self, state: ClusterState, left: FlagValue, who: ThreadLocation, me: ThreadLocation, reason: str,
        about: Operation,
    ) -> None:  # fmt: skip
        for warp, epoch in enumerate(left.released.weak):
            if epoch:
                self.hints[me, who.cluster * state.count + warp + 1] = Hint(epoch, reason, True, about)

    def _hint_pending(self, state: ClusterState, gained: Released, me: ThreadLocation, code: Operation) -> None:
        """A relaxed read has seen a release; unless a fence follows, this is why there is no order."""
        reason = (
            f"`{code.instruction.opcode}` acquires nothing, and no later fence of its thread has a scope that includes "
            "the writer"
        )
        for cluster, reach in gained.far.items():
            for warp, epoch in enumerate(reach.c):
                if epoch:
                    self.hints[me, cluster * state.count + warp + 1] = Hint(epoch, reason, False, code)

    # -- leaving ---------------------------------------------------------------------------------------------------

    def _leave(
        self, state: ClusterState, clock: WarpClock, region: Region, offsets: set[int], me: ThreadLocation, level: int,
        sem: str, actor: int, code: Operation, mask: int, atomic: bool,
    ) -> None:  # fmt: skip
        epoch, strong = clock.epoch, level
        covered = epoch
        if sem in ("release", "acq_rel"):
            carried: Released | None = clock.release(mask)
        else:
            carried = clock.published
            clock.begin_epoch()  # the warp's next accesses are told apart from this one
            level = min(level, LEVELS[clock.published_scope or "gpu"])
            covered = int(carried.weak[clock.me]) if carried is not None else 0
        if carried is not None:
            self.spoken(state, clock, mask, covered, code.pc)
        fences = clock.fences
        if carried is None and not fences and len(offsets) > HINTED:
            return
        signal = None
        if sem not in ("release", "acq_rel"):
            reached = clock.weak.copy()
            reached[clock.me] = epoch - 1
            last = clock.last_write(code.pc)
            signal = LooseSignal(code, reached, np.zeros_like(reached) if carried is None else carried.weak, last)
        for offset in offsets:
            flag = self._flags.get((region, offset))
            if flag is None:
                flag = self._flags[region, offset] = Flag()
            elif not atomic:
                flag.left.clear()
                flag.idle.clear()
                flag.signals.clear()
            flag.writers[actor] = epoch
            if signal is not None:
                flag.signals[actor] = signal
            else:
                flag.signals.pop(actor, None)
            if carried is None:
                flag.idle[actor] = (epoch, code, clock.last_write(code.pc))
                if not fences:
                    continue
            before = flag.left.get(me)
            if before is None or not atomic:
                kept = carried.copy() if carried else Released.nothing(state.count)
                flag.left[me] = FlagValue(kept, level if carried else 0, code, strong, fences)
                continue
            before.code = code
            if carried:
                before.released.add(carried)
                before.level = max(before.level, level)
            before.strong = max(before.strong, strong)
            before.fences = join_fences(before.fences, fences)

    def spoken(self, state: ClusterState, clock: WarpClock, lanes: int, until: int, pc: int) -> None:
        """These lanes signal, with the instruction at `pc`, what their warp did up to an epoch."""
        if clock.apart.left:
            now, together = clock.epoch, state.notes(KeptLanes)

            def known(epoch: int) -> int:
                return clock.written.heard_by(lanes, epoch, now)

            def kept(epoch: int) -> int:
                return together.since(clock.me, lanes, epoch, now)[0]

            if clock.apart.speak(lanes, until, pc, known, kept):
                self.apart[state.actor(clock.me)] = clock.apart

    # -- observation -----------------------------------------------------------------------------------------------

    def observed(
        self, region: Region, offset: int, clock: WarpClock, state: ClusterState, actor: int, epoch: int
    ) -> bool:
        """True if this warp knows of a thread that saw another's strong write of this address."""
        flag = self._flags.get((region, offset))
        if flag is None:
            return False
        for seer, (when, writers) in flag.seen.items():
            if writers.get(actor, -1) >= epoch and knows(clock, state, seer, when):
                return True
        return False

    def unreleased(self, clock: WarpClock, state: ClusterState, actor: int, epoch: int) -> LooseSignal | None:
        """What tells this warp that a warp of another cluster has done something, and releases none of it."""
        cluster, me = divmod(actor - 1, state.count)
        for signal in self._signals.get(cluster, ()):
            if signal.released[me] < epoch <= signal.reached[me]:
                mine = state.actor(clock.me)
                if mine in signal.seers or any(knows(clock, state, *seer) for seer in signal.seers.items()):
                    return signal
        return None

    def by_another_lane(
        self, clock: WarpClock, state: ClusterState, actor: int, epoch: int, pc: int, lanes: int = 0
    ) -> bool:
        """True if accesses of a warp are known only through another lane, which had not synchronised with them. lanes:
        that made them; 0 if that is not known."""
        apart = self.apart.get(actor)
        if apart is None:
            return False
        cluster, me = divmod(actor - 1, state.count)
        front = clock.warps if cluster == state.number else clock.far[cluster].c
        return apart.uncovered(epoch, pc, int(front[me]), lanes)


def knows(clock: WarpClock, state: ClusterState, actor: int, epoch: int) -> bool:
    """True if a grid's warp's accesses in an epoch happened before the current one of this warp."""
    cluster, me = divmod(actor - 1, state.count)
    if cluster == state.number:
        return me == clock.me or clock.warps[me] >= epoch
    reach = clock.far.get(cluster)
    return reach is not None and reach.c[me] >= epoch
