"""Which lanes of a warp an order between accesses of global memory covers.

The shadow of a buffer and the clocks know warps. What one lane does for its warp, a signal, a fence.proxy.async or a
wait, covers the other lanes only if they have synchronised with it (PTX ISA 8.9.5): before a signal or a fence, and
after a fence or a wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .happens_before.clocks import FULL, WarpClock
from .happens_before.divergent_lanes import FENCE
from .happens_before.flags import knows
from .happens_before.journal import Journals
from .happens_before.kept_lanes import KeptLanes
from .happens_before.partial_waits import PartialWaits
from .held_lanes import held_between
from .report.unwaited import report_untold

if TYPE_CHECKING:
    from ..emulator.machine.frame import Frame
    from .context import Context
    from .happens_before.access import InFlight
    from .happens_before.state import ClusterState
    from .shadow.global_shadow import GlobalShadow, UnpackedAccess


class GlobalLanes:
    """See the module's docstring."""

    def __init__(self, context: Context) -> None:
        self.context = context

    # -- signals ---------------------------------------------------------------------------------------------------

    def spoken_for(self, state: ClusterState, clock: WarpClock, deed: UnpackedAccess) -> bool:
        """True if a warp knows of an access by some lanes only because another lane of theirs has signalled."""
        flags = self.context.flags
        if not flags.apart or deed.level or deed.actor == state.actor(clock.me):
            return False
        return flags.by_another_lane(clock, state, deed.actor, deed.epoch, deed.pc, FULL)

    def silent(
        self, state: ClusterState, shadow: GlobalShadow, clock: WarpClock, deed: UnpackedAccess, places: np.ndarray
    ) -> bool:
        """True if the lanes that accessed these granules are among those lanes."""
        lanes = self.made_by(state, shadow, deed, places)
        return self.context.flags.by_another_lane(clock, state, deed.actor, deed.epoch, deed.pc, lanes)

    def alone(self, deed: UnpackedAccess) -> bool:
        """True if nothing kept the lanes of a warp together between this and the signal of one lane for all."""
        one = self.context.flags.apart[deed.actor].spoken_for.get((deed.epoch, deed.pc))
        return one is not None and not one.kept and not held_between(self.context.machine.code, deed.pc, one.pc)

    @staticmethod
    def made_by(state: ClusterState, shadow: GlobalShadow, deed: UnpackedAccess, places: np.ndarray) -> int:
        """The lanes of a warp of this cluster that made an access of these granules; 0 if that is not known."""
        cluster, me = divmod(deed.actor - 1, state.count)
        if cluster != state.number:
            return 0
        return state.notes(Journals).writers(me, deed.epoch, shadow, places, -1 if deed.writes else deed.pc)

    # -- proxy fences ----------------------------------------------------------------------------------------------

    def carried(
        self, state: ClusterState, shadow: GlobalShadow, flight: InFlight, clock: WarpClock, deed: UnpackedAccess,
        places: np.ndarray,
    ) -> bool:  # fmt: skip
        """True if the lanes that made a write, or lanes that they synchronised with, each executed a fence that a copy
        follows."""
        writer = self.context.flags.fencing.get(deed.actor)
        if writer is None:
            return False
        lanes = self.made_by(state, shadow, deed, places) or writer.written.accessed.get((deed.epoch, deed.pc), 0)

        def followed(at: int) -> int:
            lane = flight.operation.issuer.lane_of_warp
            if writer is not clock:
                known = knows(clock, state, deed.actor, at + 1)
                apart = known and self.context.flags.by_another_lane(clock, state, deed.actor, at, FENCE)
                return FULL if known and not apart else 0
            return FULL if at < clock.floor or lane is None else writer.written.heard_by(1 << lane, at, clock.epoch)

        return writer.written.carried(lanes, deed.epoch, followed)

    # -- waits -----------------------------------------------------------------------------------------------------

    def untold(self, state: ClusterState, frame: Frame, clock: WarpClock, deed: UnpackedAccess, lanes: int) -> None:
        """These lanes access what another cluster or a copy did: check that they have waited for it, too."""
        cluster, me = divmod(deed.actor - 1, state.count)
        if self.context.of_stream(deed.pc):
            return
        behind, code = state.notes(PartialWaits), self.context.machine.code
        if deed.asynchronous and cluster == state.number:
            found = behind.untold(clock.me, lanes, me, 0, (2 if deed.writes else 1) << 2 * deed.epoch)
        elif deed.asynchronous or cluster == state.number:
            return
        else:
            found = behind.untold_far(clock.me, lanes, cluster, me, deed.epoch)
        if found is None or held_between(code, found.code.pc, frame.operation.pc):
            return
        kept = state.notes(KeptLanes)
        if mask := kept.apart(clock.me, lanes, found.lanes, int(found.c[clock.me]), clock.epoch):
            did, earlier = "wrote" if deed.writes else "read", code.operations[deed.pc]
            report_untold(self.context, frame, clock.me % state.per_cta, mask, found, earlier, did)
