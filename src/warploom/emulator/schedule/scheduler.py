"""Runs the machine: which warp runs next, and what happens if none can.

Warps of one CTA at the same instruction run together (`executor`). A warp whose threads diverged runs its lowest
program counter first, so that its threads reconverge after the branch (at the post-dominator, for structured code). If
no warp can run, the engine completes an asynchronous operation. If nothing is in flight, waits with a time limit end.
If that changes nothing, it is a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable

from ..diagnosis.deadlock import report_deadlock
from ..diagnosis.livelock import SpinWatch
from ..machine.frame import Frame, frame_of
from ..machine.machine import Cluster, Cta, Fragment, Machine, Warp
from ..machine.operation import EXIT
from ..machine.wait import Wait
from .executor import Runner
from .fragments import Group, merge
from .policy import Policy
from .turns import together

TURN = 20_000
"""Warp instructions that a cluster runs before operations in flight and clusters that have not started get their turn:
it may be waiting for them in a loop through a barrier, in which every iteration is a new state."""


class Scheduler:
    """Runs a machine to its end. `on_progress(done, total)` is called as clusters exit."""

    def __init__(
        self, machine: Machine, policy: Policy, max_steps: int, on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.machine = machine
        self.policy = policy
        self.runner = Runner(machine, policy, max_steps)
        self.on_progress = on_progress
        self.long_turn = False
        self.turns = self.runner.turns
        self.together = 1 if self.turns is None else together(machine)
        self.operations = machine.code.operations
        self._leaves = [one.kind == EXIT and one.guard < 0 for one in self.operations]

    def run(self) -> None:
        """Run all CTAs. Raises DeadlockError, StepLimitError and what the instructions raise."""
        machine, policy = self.machine, self.policy
        done = 0
        spins = SpinWatch()
        while True:
            ran = self.long_turn = False
            if policy.start_all:
                self._start(machine.to_run)
            elif not machine.resident or self.turns is not None:
                self._start(len(machine.devices) * self.together - len(machine.resident))
            held = policy.held_back(len(machine.devices))
            for late in (False, True) if held >= 0 else (False,):
                if late and (ran or machine.engine.advance()):
                    ran = True
                    break
                order = policy.order if self.turns is None else self.turns.order
                for cluster in order(list(machine.resident)):
                    if (cluster.device.index == held) is not late:
                        continue
                    before = machine.progress_count
                    ran |= self._run_cluster(cluster, step=late)
                    first_again = self.turns is not None and self.turns.from_first()
                    if cluster.exited:
                        machine.engine.drain_cluster(cluster)
                        machine.retire(cluster)
                        done += 1
                        first_again |= self.turns is not None  # the next one starts beside those that remain
                        if self.on_progress is not None:
                            self.on_progress(done + machine.cancelled, machine.to_run)
                    if first_again or (late and machine.progress_count != before):
                        break  # the others may run again
            if self.long_turn:
                self._start(1)
                while machine.engine.advance():
                    pass
                self._deliver()
            if policy.engine_first or not ran:
                # If each round draws from the seed, none may be skipped: a seed must always mean the same run.
                quiet = not (ran or policy.engine_first or policy.engine_between or self._spins())
                signals = machine.signals
                ran |= machine.engine.advance()
                while quiet and ran and machine.signals == signals and machine.engine.advance():
                    pass  # nothing waits for it
            if machine.streams is not None:
                ran |= machine.streams.advance(not ran)
            if machine.links is not None:
                machine.links.step()
            if ran or self._deliver():
                continue
            if not machine.resident and machine.started >= machine.to_run:
                machine.engine.drain()
                return
            if self._start(1):
                continue
            spinning = spins.dead(machine)
            if spinning or not self._time_out():
                raise report_deadlock(machine, spinning=spinning)

    def _start(self, count: int) -> bool:
        """Make up to `count` more clusters resident, as slots allow."""
        machine, started = self.machine, False
        while count and machine.started < machine.to_run and machine.start_cluster():
            count -= 1
            started = True
            newest = machine.resident[-1]
            if machine.links is not None and newest.index == (0, 0, 0):
                machine.links.fence(newest.device.index)
        return started

    def _deliver(self) -> bool:
        """Let everything in flight between GPUs arrive. True if there was anything."""
        return self.machine.links is not None and self.machine.links.deliver()

    def _time_out(self) -> bool:
        """End every wait that hardware would end by itself. True if there was one."""
        any_ended = False
        for cluster in self.machine.resident:
            for cta in cluster.ctas:
                for warp in cta.warps:
                    for fragment in list(warp.fragments):
                        wait = fragment.wait
                        if wait is not None and wait.timeout is not None:
                            self._wake(warp, fragment, wait.timeout)
                            any_ended = True
        return any_ended

    def _spins(self) -> bool:
        """True if a plain store may let a warp continue."""
        warps = (warp for cluster in self.machine.resident for cta in cluster.ctas for warp in cta.warps)
        return any(part.wait is not None and part.wait.spins for warp in warps for part in warp.fragments)

    # -- choosing ------------------------------------------------------------------------------------------------

    def _run_cluster(self, cluster: Cluster, step: bool = False) -> bool:
        """Run every runnable group of a cluster, until none can run or its turn was long. True if any did.

        step: only until something has happened that another cluster may be waiting for.
        """
        ran = False
        again = True
        ends = self.machine.steps + TURN
        before = self.machine.progress_count
        while again:
            again = False
            for cta in self.policy.order(cluster.ctas):
                group = self._pick(cta)
                while group is not None:
                    ran = again = True
                    self.runner.run(group, step)
                    if self.policy.engine_between and self.machine.engine.advance():
                        pass
                    if step and self.machine.progress_count != before:
                        return True
                    if self.policy.yields_cta():
                        break
                    if self.turns is not None and self.turns.over:
                        return True
                    if self.machine.steps > ends:
                        self.long_turn = True
                        break
                    group = self._pick(cta)
            if self.policy.yields_cluster() or self.machine.steps > ends:
                break
        return ran

    def _pick(self, cta: Cta) -> Group | None:
        """The next group of a CTA: the policy's choice among the runnable fragments, and all at its instruction."""
        machine = self.machine
        runnable: dict[int, Fragment] = {}
        leaving: dict[int, Fragment] = {}
        for warp in cta.warps:
            fragments = warp.fragments
            if len(fragments) == 1:
                fragment: Fragment | None = fragments[0]
                wait = fragment.wait  # type: ignore[union-attr]
                if wait is not None:
                    if fragment.seen_progress == (machine.progress_count if wait.spins else machine.signals):  # type: ignore[union-attr]
                        continue
                    fragment = self._runnable(warp)
            else:
                fragment = self._runnable(warp) if fragments else None
                for one in fragments if self.policy.leave_first else ():
                    if one.wait is None and self._leaves[one.pc]:
                        leaving[warp.index] = one
            if fragment is not None:
                runnable[warp.index] = fragment
        if leaving:  # what is left of their warps can run together with other warps
            runnable = leaving
        if not runnable:
            return None
        chosen = self.policy.choose(runnable)
        first = last = chosen
        if self.policy.fuse:
            pc = runnable[chosen].pc
            if len(cta.warps[chosen].fragments) == 1:
                while first - 1 in runnable and self._joins(cta.warps[first - 1], runnable[first - 1], pc):
                    first -= 1
                while last + 1 in runnable and self._joins(cta.warps[last + 1], runnable[last + 1], pc):
                    last += 1
        return Group(cta, first, [runnable[index] for index in range(first, last + 1)])

    @staticmethod
    def _joins(warp: Warp, fragment: Fragment, pc: int) -> bool:
        return fragment.pc == pc and len(warp.fragments) == 1

    def _runnable(self, warp: Warp) -> Fragment | None:
        """The fragment of a warp that may run, the lowest program counter first."""
        machine, fragments = self.machine, warp.fragments
        for fragment in fragments if len(fragments) < 2 else sorted(fragments, key=lambda item: item.pc):
            wait = fragment.wait
            if wait is None:
                return fragment
            now = machine.progress_count if wait.spins else machine.signals
            if fragment.seen_progress == now:
                continue
            if wait.ready():
                self._wake(warp, fragment, wait.resume)
                if fragment in warp.fragments:
                    return fragment if fragment.wait is None else None
                return self._runnable(warp)
            fragment.seen_progress = now
        return None

    def _wake(self, warp: Warp, fragment: Fragment, then: Callable[[Frame], None] | None) -> None:
        """Finish the instruction at which a fragment waited, together with its neighbours."""
        wait = fragment.wait
        fragment.wait = None
        if then is not None:
            neighbours = self._with_it(warp, wait)
            frame = frame_of(warp.cta, warp.index, 1 + len(neighbours))
            frame.mask = fragment.wait_mask
            frame.operation = self.operations[fragment.pc]
            then(frame)
            for other in neighbours:
                other.wait = None
                other.pc += 1
        if wait is not None and not wait.parked:
            fragment.pc += 1
            merge(self.machine, warp)

    @staticmethod
    def _with_it(warp: Warp, wait: Wait | None) -> list[Fragment]:
        """The warps after this one that share its wait: when it continues, they do."""
        found = []
        for other in warp.cta.warps[warp.index + 1 :]:
            if len(other.fragments) != 1 or other.fragments[0].wait is not wait:
                break
            found.append(other.fragments[0])
        return found
