"""A discrete-event replay of the recorded warps on units that serve requests in order of arrival.

The warp with the earliest time advances next. If a step waits for an event whose time is not known yet, its warp is
parked. The machine has executed these steps in some order, so the replay cannot deadlock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any

from . import recording as kinds
from .constants import Hardware
from .instance import Actor, Instance, PendingTime
from .overlap import waits
from .recording import Recording
from .runs import Cost, cost_of
from .trace import Trace
from .units import MATRIX, Chip, Sm

CLUSTERS = (2, 4, 8)
"""Sizes of clusters whose rate of starting was measured."""


class Replay:
    """Runs `instances` copies of the recorded clusters, as many at a time as `residents` allow.

    places: the places among which the grid's clusters are distributed; this replay runs one place's share. If clusters
    differ, `lot` says which ones this place gets; without it, the pattern of the recorded ones is taken to repeat over
    the grid.
    ahead: share of what its warps do before they wait for the previous grid that is hidden, because they start while
    that grid still runs. What they load before they wait is there when the wait ends.
    ghz: SM clock. L2 and DRAM work in nanoseconds, so they take fewer clocks at a low SM clock.
    """

    def __init__(
        self, recording: Recording, hardware: Hardware, chip: Chip, *, residents: int = 1, instances: int = 1,
        places: int = 1, ahead: float = 0.0, lot: Sequence[int] = (), trace: Trace | None = None,
    ) -> None:  # fmt: skip
        self.recording, self.hardware, self.chip, self.trace = recording, hardware, chip, trace
        self.residents, self.instances, self.places, self.lot = residents, instances, places, lot
        self.costs: list[Cost | None] = [None] * len(recording.runs)
        self.heap: list[tuple[float, int, Actor | Sm]] = []
        self.sequence = self.started = 0
        self.dispatched = 0.0
        """Time at which the SMs may get their next CTAs."""
        self.ends: list[float] = []
        self.ahead = ahead
        self.waiting: list[Actor] | None = [] if ahead == 1.0 else None
        """Warps that wait for the previous grid, until all do."""
        self.waited = ahead == 0.0
        """True once a warp has waited for the previous grid."""
        self.waits = waits(recording) if ahead else {}
        self.hidden = 0.0
        self.stalls: dict[tuple[str, str], float] = {}
        self.sms: list[Sm] = []
        self.instructions = self.flops = self.doubles = self.wavefronts = self.transcendental = 0.0
        self.lives: dict[str, float] = {}
        self.actors: list[Actor] = []

    # -- clusters --------------------------------------------------------------------------------------------------

    def run(self) -> float:
        """Clocks until the last cluster has ended."""
        groups = list(self.recording.clusters.values())
        size = max(len(group) for group in groups)
        products = any(one.engine in MATRIX for one in self.recording.operations)
        self.sms = [Sm(self.hardware, products) for _ in range(size)]
        for _ in range(min(self.residents, self.instances)):
            self._start(groups[self._next(len(groups))], 0.0)
        heap = self.heap
        while heap or self._released():
            time, _, actor = heapq.heappop(heap)
            if isinstance(actor, Sm):
                self._multiply(actor, time)
                continue
            actor.time = time
            self._advance(actor)
        if self.trace is not None:
            self._leave()
        return self.end

    @property
    def end(self) -> float:
        """Clocks until the last cluster has ended."""
        return max(self.ends, default=0.0) - self.hidden

    def _released(self) -> bool:
        """End the previous grid: True if warps waited for it."""
        waiting, self.waiting = self.waiting, None
        if not waiting:
            return False
        last = max(actor.time for actor in waiting)
        self._hide(last)
        for actor in waiting:
            self._push(actor, last)
        return True

    def _hide(self, until: float) -> None:
        """Hide what the grid's first warps do until then."""
        self.hidden = self.ahead * (until - self.hardware["cta_start"])
        self.waited = True

    @property
    def stuck(self) -> list[Actor]:
        """Warps whose wait never ends."""
        return [actor for actor in self.actors if actor.at < len(actor.steps)]

    def _leave(self) -> None:
        """Add the waits that never end to the trace."""
        assert self.trace is not None
        end = self.trace.end * 1.1 + 100.0  # so that the waits that never end can be seen
        for actor in self.stuck:
            kind, pc, payload = actor.steps[actor.at]
            self.trace.wait(actor, self._what(kind, payload), actor.time, end, pc, -1, kind, payload, endless=True)

    @property
    def tensor_busy(self) -> float:
        """Clocks of the busiest SM's tensor core, for products of warpgroups or of single warps."""
        single = max(pipes.get("tensor", 0.0) for sm in self.sms for pipes in sm.used)
        return max(max(sm.tensor_busy for sm in self.sms), single)

    def pipes_busy(self) -> dict[str, float]:
        """Clocks of the busiest quarter's pipe, by pipe, without the tensor core."""
        found: dict[str, float] = {}
        for sm in self.sms:
            for used in sm.used:
                for pipe, clocks in used.items():
                    found[pipe] = max(found.get(pipe, 0.0), clocks)
        found.pop("tensor", None)
        return found

    @property
    def issue_busy(self) -> float:
        return max(max(sm.issued) for sm in self.sms)

    @property
    def lsu_busy(self) -> float:
        return max(sm.lsu_used for sm in self.sms)

    def _start(self, members: list[int], time: float) -> None:
        time = max(time, self.dispatched)
        size = min(CLUSTERS, key=lambda size: abs(size - len(members)))
        every = self.hardware["cta_every" if len(members) == 1 else f"cluster{size}_cta_every"]
        self.dispatched = time + max(every, self.hardware["warp_every"] * self.recording.warps)
        instance = Instance(self.recording, members, self.sms[: len(members)], self.started, time)
        self.started += 1
        for actor in instance.actors:
            quarter = actor.warp % 4
            actor.sm.warps[quarter] += 1
            self.actors.append(actor)
            self._push(actor, time + self.hardware["cta_start"])

    def _next(self, recorded: int) -> int:
        """Index of the recorded cluster that this place gets next: the first of round one, then the middle of a
        round."""
        if self.lot:
            return self.lot[self.started]
        return (self.started * self.places + (self.places // 2 if self.started else 0)) % recorded

    def _exit(self, actor: Actor) -> None:
        instance, role = actor.instance, self._role(actor)
        self.lives[role] = self.lives.get(role, 0.0) + actor.time - instance.start
        instance.running -= 1
        instance.end = max(instance.end, actor.time)
        if instance.running == 0:
            self.ends.append(instance.end)
            if self.started < self.instances:
                groups = list(self.recording.clusters.values())
                self._start(groups[self._next(len(groups))], instance.end)

    def _push(self, actor: Actor | Sm, time: float) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (time, self.sequence, actor))

    # -- steps -------------------------------------------------------------------------------------------------------

    def _advance(self, actor: Actor) -> None:
        """Advance a warp until a step takes time or has to wait."""
        steps = actor.steps
        trace = self.trace
        while actor.at < len(steps):
            kind, pc, payload = steps[actor.at]
            if trace is not None and trace.marks:
                trace.reached(actor)
            if kind == kinds.RUN:
                cost = self._cost(payload)
                ready = self._loaded(actor, cost, pc)
                if ready > actor.time:  # units serve other warps until then
                    self._push(actor, ready)
                    return
                actor.at += 1
                self._push(actor, self._run(actor, cost, pc))
                return
            if kind in (kinds.WAIT, kinds.PASS, kinds.GROUP):
                if not self._wait(actor, kind, pc, payload):
                    return
                continue
            if kind == kinds.ISSUE and self.recording.operations[payload].is_copy:
                if actor.copies > actor.time:
                    self._push(actor, actor.copies)
                    return
                every = "tma_repeated" if self.recording.operations[payload].repeated else "tma_issue"
                actor.copies = actor.time + self.hardware[f"{every}_clocks"]
            actor.at += 1
            if kind == kinds.GRID and self.waiting is not None:
                self.waiting.append(actor)
                return
            if kind == kinds.GRID and not self.waited:
                self._hide(actor.time)
            if kind == kinds.ISSUE:
                self._issue(actor, payload)
            elif kind == kinds.ARRIVE:
                self._arrive(actor, pc, payload)
            elif kind == kinds.MEET:
                meeting = actor.instance.meeting(payload)
                cause = trace.meet(actor, pc, payload) if trace is not None else -1
                of_cluster = self.recording.meetings[payload].kind == "cluster"
                at = actor.sm.arrive(actor.time) if of_cluster else actor.sm.meet(actor.time)
                if meeting.contribute(at, cause):
                    self._wake(meeting)
            elif kind == kinds.HOLD and trace is not None:
                trace.hold(actor, pc, payload)
            elif kind == kinds.FENCE:
                self._push(actor, actor.time + self._fence(str(self.recording.pcs[pc].opcode)))
                return
        self._exit(actor)

    def _cost(self, index: int) -> Cost:
        cost = self.costs[index]
        if cost is None:
            run, chip = self.recording.runs[index], self.chip
            cost = self.costs[index] = cost_of(
                run, self.recording.pcs, self.hardware, chip.cold and chip.dram_share > 0, chip.far, chip.spilled
            )
        return cost

    def _loaded(self, actor: Actor, cost: Cost, pc: int) -> float:
        """Return the time at which the registers that a run needs are loaded."""
        ready, cause = actor.time, -1
        if actor.late:
            actor.chases = actor.chases or not cost.address.isdisjoint(actor.late.keys())
            for register in cost.needs & actor.late.keys():
                there, origin = actor.late.pop(register), actor.origin.pop(register, -1)
                if there > ready:
                    ready, cause = there, origin
            if ready > actor.time:
                self._stalled(actor, "load", actor.time, ready, pc, cause)
        return ready

    def _run(self, actor: Actor, cost: Cost, pc: int) -> float:
        start = actor.time
        end = actor.sm.execute(actor.warp % 4, start, cost, self.chip)
        crowd = actor.sm.crowd if cost.distant else 0.0
        sooner = self.hardware["dram_latency"] - self.hardware["dram_chase_latency"] if actor.chases else 0.0
        actor.chases = False
        for register, clocks, outside in cost.late:
            there = start + clocks - sooner
            actor.late[register] = max(there + crowd, actor.sm.loaded) if outside else there
        self.instructions += cost.instructions
        self.flops += cost.flops
        self.doubles += cost.doubles
        self.wavefronts += cost.wavefronts
        self.transcendental += cost.transcendental
        if self.trace is not None:
            event = self.trace.run(actor, start, end, pc, cost)
            for register, _, _ in cost.late:
                actor.origin[register] = event
        return end

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _wait(self, actor: Actor, kind: int, pc: int, payload: Any) -> bool:
        """True if the warp continues now; otherwise it is parked or rescheduled."""
        instance, hardware = actor.instance, self.hardware
        if kind == kinds.WAIT:
            awaited, takes = [instance.phase(payload)], hardware["mbarrier_wait"]
        elif kind == kinds.PASS:
            awaited = [instance.meeting(payload)]
            takes = hardware["cluster_bar" if self.recording.meetings[payload].kind == "cluster" else "bar"]
        else:
            indices, reads_only = payload
            flying = [instance.operation(index) for index in indices]
            awaited, takes = [one.read if reads_only else one.done for one in flying], 0.0
        for one in awaited:
            if one.left > 0:
                one.parked.append(actor)
                return False
        newest = max(awaited, key=lambda one: one.time, default=None)
        until = max(actor.time, newest.time) if newest is not None else actor.time
        actor.at += 1
        if until > actor.time:
            assert newest is not None
            self._stalled(actor, self._what(kind, payload), actor.time, until, pc, newest.cause, kind, payload)
        self._push(actor, until + takes)
        return False

    def _what(self, kind: int, payload: Any) -> str:
        recording = self.recording
        if kind == kinds.WAIT:
            return recording.phases[payload].name
        if kind == kinds.PASS:
            return recording.meetings[payload].name
        return recording.operations[payload[0][0]].engine + (" reads" if payload[1] else "")

    def _stalled(
        self, actor: Actor, what: str, start: float, end: float, pc: int, cause: int, kind: int = -1,
        payload: Any = None,
    ) -> None:  # fmt: skip
        role = self._role(actor)
        self.stalls[role, what] = self.stalls.get((role, what), 0.0) + end - start
        if self.trace is not None:
            self.trace.wait(actor, what, start, end, pc, cause, kind, payload)

    def _role(self, actor: Actor) -> str:
        return self.recording.roles.get(actor.warp) or f"warp {actor.warp}"

    def _wake(self, awaited: PendingTime) -> None:
        for actor in awaited.parked:
            self._push(actor, actor.time)
        awaited.parked.clear()

    # -- effects -------------------------------------------------------------------------------------------------------

    def _arrive(self, actor: Actor, pc: int, payload: int) -> None:
        time = actor.time + self.hardware["mbarrier_arrive"]
        cause = self.trace.arrive(actor, time, pc, payload) if self.trace is not None else -1
        self._contribute(actor.instance, payload, time, cause)

    def _contribute(self, instance: Instance, phase: int, time: float, cause: int) -> None:
        awaited = instance.phase(phase)
        if awaited.contribute(time, cause):
            if self.trace is not None:
                self.trace.completed(instance, phase, awaited.time, awaited.cause)
            self._wake(awaited)

    def _fence(self, opcode: str) -> float:
        if "proxy" in opcode:
            return self.hardware["fence_proxy" if "shared" in opcode else "fence_proxy_all"]
        wide = any(word in opcode for word in (".gpu", ".sys", ".gl", ".cluster"))
        return self.hardware["fence_gpu" if wide and "init" not in opcode else "fence_cta"]

    def _issue(self, actor: Actor, index: int) -> None:
        """A warp issues an operation. With the last issuer it starts, or a product queues up for the tensor core."""
        instance, operation = actor.instance, self.recording.operations[index]
        flying = instance.operation(index)
        flying.issued = max(flying.issued, actor.time)
        flying.issuers -= 1
        if flying.issuers > 0:
            return
        start = flying.issued
        if operation.engine in MATRIX:
            actor.sm.queue((instance.number, actor.warp // 4), operation, start, (actor, index, start))
            self._call(actor.sm)
            return
        for before in operation.after:
            start = max(start, instance.operation(before).read.time)
        if operation.fetched and not operation.stores and self._before_wait(actor):  # the previous grid hides it
            begin = read = done = start
        else:
            begin, read, done = actor.sm.begin(operation, start, self.chip.of(index), instance.sms.get(operation.cta))
        self._started(actor, index, start, begin, read, done)

    def _before_wait(self, actor: Actor) -> bool:
        """True if a warp of the first clusters has not yet waited for the previous grid, and will."""
        if not self.ahead or actor.instance.number >= self.residents:
            return False
        return actor.at <= self.waits.get((actor.cta, actor.warp), -1)

    def _call(self, sm: Sm) -> None:
        """Let an SM's tensor core begin its next product when it can."""
        time = sm.next_product
        if time < sm.called:
            sm.called = time
            self._push(sm, time)

    def _multiply(self, sm: Sm, time: float) -> None:
        if time != sm.called:  # called earlier since
            return
        sm.called = math.inf
        begin, read, done, (actor, index, start) = sm.serve(time)
        self._started(actor, index, start, begin, read, done)
        self._call(sm)

    def _started(self, actor: Actor, index: int, start: float, begin: float, read: float, done: float) -> None:
        """An operation that was issued at `start` has begun, so its times are known."""
        instance, operation = actor.instance, self.recording.operations[index]
        flying = instance.operation(index)
        if self.trace is not None:
            flying.event = self.trace.operation(actor, index, start, begin, read, done)
        for awaited, time in ((flying.read, read), (flying.done, done)):
            awaited.contribute(time, flying.event)
            self._wake(awaited)
        for phase in operation.phases:
            self._contribute(instance, phase, done, flying.event)
