"""Gives operations, barriers and exits their place in the clocks, so that checkers can judge them; see `order`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.machine.events import Observer
from ...emulator.machine.mbarrier import MBarrier, mbarriers_of
from ...isa import effects
from .access import BARRIER, InFlight
from .released import WEAK, Released
from .signals import commit_of, signalled
from .state import BarrierRecord, ClusterState, PhaseRecord

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Issuer
    from ...emulator.machine.machine import Warp
    from ..context import Context


class Entry(Observer):
    """Gives operations, barriers and exits their place in the clocks, before the checkers judge them."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def issued(self, operation: AsyncOperation) -> None:
        issuer = operation.issuer
        state, code = self.context.state(issuer.frame.cta), issuer.operation
        starts = code.starts
        if starts is None:
            operation.mark = self._carried(state, operation)
            return
        if starts.parts == "warp":
            warps = state.active(issuer.frame)
            operation.mark = tuple(self._flight(state, operation, clock.me, starts, mask) for clock, mask in warps)
        else:
            operation.mark = (self._flight(state, operation, state.clock_of(issuer).me, starts),)
        for flight in operation.mark:
            state.note_issued(flight)

    @staticmethod
    def _flight(
        state: ClusterState, operation: AsyncOperation, me: int, starts: effects.Starts, lanes: int = 0
    ) -> InFlight:
        flight = state.flight(operation, operation.issuer.frame.cta, me % state.per_cta, starts)
        flight.waiting = lanes
        if operation.barrier is not None:
            cta, offset = operation.barrier
            barrier = mbarriers_of(cta).get(offset)
            flight.phase = barrier.phase if barrier is not None else -1
            flight.heard = state.clocks[me].fronts[WEAK].copy()
            flight.heard[me] = state.clocks[me].used
        return flight

    @staticmethod
    def _carried(state: ClusterState, operation: AsyncOperation) -> Released:
        """What a delayed arrival carries: the earlier accesses of its thread, or the operations that it covers."""
        issuer = operation.issuer
        commit = commit_of(issuer.operation)
        if commit is not None and issuer.lane is None:
            released = Released.nothing(state.count)
            for clock in state.of_frame(issuer.frame):
                released.known |= state.issued.get((commit.family, clock.me, None), 0)
            return released
        ((clock, mask),) = state.clocks_of(issuer)
        if commit is None:
            remote = operation.barrier is not None and operation.barrier[0] is not issuer.frame.cta
            return signalled(clock, mask, issuer.operation, remote)
        released = clock.release(mask, issuer.operation.pc)
        # issued by one thread: whatever preceded them at issue is complete when they are
        released.known |= state.issued.get((commit.family, clock.me, issuer.lane_of_warp), 0)
        return released

    def made(self, kind: str, what: object, by: Issuer) -> None:
        if not isinstance(what, MBarrier):
            return
        state = self.context.state(what.cta)
        clock = state.clock_of(by)
        clock.touch(1 << (by.lane or 0) % 32, by.operation.pc)
        access = state.generic(clock, by.frame.cta, by.operation, True, False, BARRIER)
        record = BarrierRecord(PhaseRecord.empty(state.count), PhaseRecord.empty(state.count), access)
        what.mark = record
        state.unfenced.setdefault(clock.me, []).append(record)

    def exited(self, warp: Warp) -> None:
        state = self.context.state(warp.cta)
        me = state.me(warp.cta, warp.index)
        state.exits[me] = state.clocks[me].snapshot(0xFFFFFFFF)
