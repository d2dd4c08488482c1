"""Flags, locks and counters in global memory: how warps of different CTAs learn of each other. PTX ISA 8.9.

A strong store or atomic that releases (or follows a fence) leaves at its address what its warp knows; a strong load or
atomic that acquires (or that a fence follows) takes it, if the scopes of both include the other side. Atomics go on
with what others left there (a release sequence), stores replace it. Who saw an address change also knows that the
accesses of that address which it saw are over (observation order, 8.9.6).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..shadow.global_shadow import LEVELS
from .clocks import Released, WarpClock, join_far
from .state import ClusterState, lane_masks

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.memory import Region
    from ...emulator.program.code import Operation

FLAGS = 32
"""Addresses of one warp's access that are looked at as flags: each lane may have one."""
HINTED = 2
"""Addresses up to which an access that releases nothing is remembered, to say so if somebody relies on it."""

Who: TypeAlias = "tuple[int, int]"
"""A CTA: its cluster's number, its rank."""


@dataclass(eq=False)
class Left:
    """What one CTA left at an address: by the level of its scope (1 .cta, 2 .cluster, 3 wider)."""

    released: Released
    level: int


@dataclass(eq=False)
class Flag:
    """One address.

    Attributes:
        left: what CTAs left there; idle: warps (of the grid) that wrote it and released nothing.
        seen: warps of the grid that read it strongly -> epoch, latest of each.
        writers: warps that wrote it strongly -> epoch of the latest such write that was seen by the readers.
    """

    left: dict[Who, Left] = field(default_factory=dict)
    idle: dict[int, tuple[int, Operation]] = field(default_factory=dict)
    writers: dict[int, int] = field(default_factory=dict)
    seen: dict[int, tuple[int, dict[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Hint:
    """Why an observation orders nothing: what the writer had done (its fronts), and the reason in words."""

    epoch: int
    reason: str


class Flags:
    """All flags of a launch."""

    def __init__(self) -> None:
        self._flags: dict[tuple[Region, int], Flag] = {}
        self.hints: dict[tuple[Who, int], Hint] = {}
        """(who read, warp of the grid that wrote) -> why that ordered nothing."""

    def at(self, region: Region, offset: int) -> Flag | None:
        return self._flags.get((region, offset))

    def touched(
        self, state: ClusterState, frame: Frame, region: Region, offsets: np.ndarray, lanes: np.ndarray, reads: bool,
        writes: bool, atomic: bool,
    ) -> None:  # fmt: skip
        """A strong access: `offsets` in bytes, one for each of `lanes`."""
        code = frame.operation
        sem = code.order.sem
        level = LEVELS[code.order.scope]
        me: Who = (state.number, frame.cta.rank)
        for at, (clock, mask) in enumerate(zip(state.of_frame(frame), lane_masks(frame, lanes), strict=True)):
            if not mask:
                continue
            mine = set(offsets[lanes >> 5 == at].tolist()) if frame.warps > 1 else set(offsets.tolist())
            if len(mine) > FLAGS:
                continue
            actor = state.number * state.count + clock.me + 1
            if reads:
                for offset in mine:
                    flag = self._flags.get((region, offset))
                    if flag is not None:
                        self._take(state, clock, flag, me, level, sem, actor, code)
            if writes:
                self._leave(state, clock, region, mine, me, level, sem, actor, code, mask, atomic)

    # -- taking ----------------------------------------------------------------------------------------------------

    def _take(
        self, state: ClusterState, clock: WarpClock, flag: Flag, me: Who, level: int, sem: str, actor: int,
        code: Operation,
    ) -> None:  # fmt: skip
        gained: Released | None = None
        for who, left in flag.left.items():
            needed = 1 if who == me else 2 if who[0] == me[0] else 3
            if min(left.level, level) < needed:
                narrow = "the release" if left.level < needed else "the acquire"
                self._hint_all(state, left, who, me, f"the scope of {narrow} does not reach from one to the other")
                continue
            if gained is None:
                gained = Released.nothing(state.count)
            if who[0] == me[0]:
                gained.add(left.released)
            else:
                reach = {who[0]: left.released.reach()}
                gained.far = join_far(join_far(gained.far, left.released.far), reach)
        for writer, (epoch, where) in flag.idle.items():
            self.hints[me, writer] = Hint(epoch, f"`{where.instruction.opcode}` releases nothing")
        if gained is not None:
            if sem in ("acquire", "acq_rel"):
                clock.acquire(gained)
            else:
                clock.remember(gained)
                self._hint_pending(state, gained, me, code)
        flag.seen[actor] = (clock.epoch, dict(flag.writers))

    def _hint_all(self, state: ClusterState, left: Left, who: Who, me: Who, reason: str) -> None:
        for warp, epoch in enumerate(left.released.weak):
            if epoch:
                self.hints[me, who[0] * state.count + warp + 1] = Hint(epoch, reason)

    def _hint_pending(self, state: ClusterState, gained: Released, me: Who, code: Operation) -> None:
        """A relaxed read has seen a release; if no fence follows, this is why there is no order."""
        reason = f"`{code.instruction.opcode}` acquires nothing, and no fence of its thread follows it"
        for cluster, reach in gained.far.items():
            for warp, epoch in enumerate(reach.c):
                if epoch:
                    self.hints[me, cluster * state.count + warp + 1] = Hint(epoch, reason)

    # -- leaving ---------------------------------------------------------------------------------------------------

    def _leave(
        self, state: ClusterState, clock: WarpClock, region: Region, offsets: set[int], me: Who, level: int, sem: str,
        actor: int, code: Operation, mask: int, atomic: bool,
    ) -> None:  # fmt: skip
        epoch = clock.epoch
        if sem in ("release", "acq_rel"):
            carried: Released | None = clock.release(mask)
        else:
            carried = clock.published
            level = min(level, LEVELS.get(clock.published_scope or "gpu", 3))
        if carried is None and len(offsets) > HINTED:
            return
        for offset in offsets:
            flag = self._flags.get((region, offset))
            if flag is None:
                flag = self._flags[region, offset] = Flag()
            elif not atomic:
                flag.left.clear()
                flag.idle.clear()
            flag.writers[actor] = epoch
            if carried is None:
                flag.idle[actor] = (epoch, code)
                continue
            before = flag.left.get(me)
            if before is None or not atomic:
                flag.left[me] = Left(carried.copy(), level)
            else:
                before.released.add(carried)
                before.level = max(before.level, level)

    # -- observation -----------------------------------------------------------------------------------------------

    def observed(
        self, region: Region, offset: int, clock: WarpClock, state: ClusterState, actor: int, epoch: int
    ) -> bool:
        """Whether this warp knows of somebody who saw another's strong write of this address."""
        flag = self._flags.get((region, offset))
        if flag is None:
            return False
        for seer, (when, writers) in flag.seen.items():
            if writers.get(actor, -1) >= epoch and knows(clock, state, seer, when):
                return True
        return False


def knows(clock: WarpClock, state: ClusterState, actor: int, epoch: int) -> bool:
    """Whether what a warp of the grid did in an epoch happened before what this one does now."""
    cluster, me = divmod(actor - 1, state.count)
    if cluster == state.number:
        return me == clock.me or clock.weak[me] >= epoch
    reach = clock.far.get(cluster)
    return reach is not None and reach.c[me] >= epoch
