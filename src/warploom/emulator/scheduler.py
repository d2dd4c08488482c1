"""The machine in motion: who runs next, and what happens when nobody can.

Warps of one CTA that stand at the same instruction run together until they part, block or have run a while. A
warp whose threads diverged runs its lowest program counter first, so that its threads meet again behind the
branch (reconvergence at the post-dominator, for structured code). When no warp can run, the engine completes an
asynchronous operation; when nothing is in flight, waits with a time limit end; when that changes nothing, it is a
deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import StepLimitError
from .code import BRANCH, EXIT, INDEXED_BRANCH, PLAIN, Operation
from .deadlock import report_deadlock
from .frame import Frame
from .handlers import Wait
from .machine import FULL, Cluster, Cta, Fragment, Machine, Warp, lanes_of, mask_of
from .policy import Policy
from .registers import WARP
from .spinning import LoopWatch, SpinWatch

QUANTUM = 20_000
"""Instructions a group may run before others get their turn."""


@dataclass(eq=False)
class Group:
    """Consecutive warps of a CTA whose fragments stand at the same instruction."""

    cta: Cta
    first: int
    fragments: list[Fragment]

    @property
    def pc(self) -> int:
        return self.fragments[0].pc


class Scheduler:
    """Runs a machine to its end. `on_progress(done, total)` is called as clusters exit."""

    def __init__(
        self, machine: Machine, policy: Policy, max_steps: int, on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.machine = machine
        self.policy = policy
        self.max_steps = max_steps
        self.on_progress = on_progress
        self.operations = machine.code.operations
        self._started = 0
        self._loops = LoopWatch()
        x, y, z = machine.clusters_in_grid
        self.total = x * y * z

    def run(self) -> None:
        """Run all CTAs. Raises DeadlockError, StepLimitError and what the instructions raise."""
        machine, policy = self.machine, self.policy
        done = 0
        spins = SpinWatch()
        while True:
            ran = False
            if self._started < self.total and (not machine.resident or policy.start_all):
                self._start(machine.places if policy.start_all else 1)
            for cluster in policy.order(list(machine.resident)):
                ran |= self._run_cluster(cluster)
                if cluster.exited:
                    machine.engine.drain_cluster(cluster)
                    machine.retire(cluster)
                    done += 1
                    if self.on_progress is not None:
                        self.on_progress(done, self.total)
            if policy.engine_first or not ran:
                ran |= machine.engine.advance()
            if ran:
                continue
            if not machine.resident and self._started == self.total:
                machine.engine.drain()
                return
            if self._start(1):
                continue
            spinning = spins.dead(machine)
            if spinning or not self._time_out():
                raise report_deadlock(machine, spinning=spinning)

    def _start(self, count: int) -> bool:
        """Make up to `count` more clusters resident, as places allow."""
        machine = self.machine
        started = False
        while count and self._started < self.total and len(machine.resident) < machine.places:
            x, y, _ = machine.clusters_in_grid
            number = self._started
            index = (number % x, number // x % y, number // (x * y))
            machine.resident.append(Cluster(machine, index, number))
            self._started += 1
            count -= 1
            started = True
        return started

    def _time_out(self) -> bool:
        """End every wait that hardware would end by itself. Whether there was one."""
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

    # -- choosing ------------------------------------------------------------------------------------------------

    def _run_cluster(self, cluster: Cluster) -> bool:
        """Run every group of a cluster that can run, until none can. Whether any did."""
        ran = False
        again = True
        while again:
            again = False
            for cta in self.policy.order(cluster.ctas):
                group = self._pick(cta)
                while group is not None:
                    ran = again = True
                    self._run_group(group)
                    if self.policy.engine_between and self.machine.engine.advance():
                        pass
                    if self.policy.yields_cta():
                        break
                    group = self._pick(cta)
            if self.policy.yields_cluster():
                break
        return ran

    def _pick(self, cta: Cta) -> Group | None:
        """The next group of a CTA: the policy's choice among the runnable fragments, and all that stand beside it."""
        runnable: dict[int, Fragment] = {}
        for warp in cta.warps:
            fragment = self._runnable(warp)
            if fragment is not None:
                runnable[warp.index] = fragment
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
        for fragment in sorted(warp.fragments, key=lambda item: item.pc):
            wait = fragment.wait
            if wait is None:
                return fragment
            if fragment.seen_progress == self.machine.progress_count:
                continue
            if wait.ready():
                self._wake(warp, fragment, wait.resume)
                if fragment in warp.fragments:
                    return fragment if fragment.wait is None else None
                return self._runnable(warp)
            fragment.seen_progress = self.machine.progress_count
        return None

    def _wake(self, warp: Warp, fragment: Fragment, then: Callable[[Frame], None] | None) -> None:
        """Finish the instruction a fragment slept behind."""
        wait = fragment.wait
        fragment.wait = None
        if then is not None:
            frame = warp.cta.frame(warp.index, 1)
            frame.mask = fragment.wait_mask
            frame.operation = self.operations[fragment.pc]
            then(frame)
        if wait is not None and wait.kind not in ("convergence", "warpgroup", "loop"):
            fragment.pc += 1
            self._merge(warp)

    # -- running -------------------------------------------------------------------------------------------------

    def _run_group(self, group: Group) -> None:
        """Run a group until its warps part, block, meet other fragments of their warp, or the quantum is over."""
        machine, cta = self.machine, group.cta
        count = len(group.fragments)
        frame = cta.frame(group.first, count)
        whole = all(fragment.lanes == FULL for fragment in group.fragments)
        base: np.ndarray | bool = (
            True if whole else np.concatenate([lanes_of(fragment.lanes) for fragment in group.fragments])
        )
        lanes = frame.lanes if whole else int(np.count_nonzero(base))
        stop = self._stop(group)
        operations, values = self.operations, frame.values
        pc = group.pc
        budget = self.policy.quantum(QUANTUM)
        closing = budget // 10 if budget >= QUANTUM else 0  # from here on the next turn of a loop is a good end
        circling = True
        while budget > 0:
            budget -= 1
            operation = operations[pc]
            machine.steps += count
            frame.operation = operation
            if operation.guard < 0:
                frame.mask = base
            else:
                wanted = values[operation.guard]
                mask = ~wanted if operation.guard_negated else wanted  # type: ignore[operator]
                if base is not True:
                    mask = mask & base
                chosen = int(np.count_nonzero(mask))
                if chosen == lanes:
                    frame.mask = base
                elif chosen == 0 and operation.kind != INDEXED_BRANCH:
                    pc += 1
                    if pc == stop:
                        break
                    continue
                else:
                    frame.mask = mask if operation.kind == PLAIN else np.array(mask)
            if operation.refresh:
                cta.refresh(operation.refresh)
                circling = False  # a clock goes on while everything else stands
            if operation.kind == PLAIN:
                handler = operation.handler
                if handler is None or not handler.per_warp or (handler.whole and frame.mask is True):
                    operation.step(frame)  # type: ignore[misc]
                    pc += 1
                elif self._run_single(group, frame, operation, pc):
                    pc += 1
                else:
                    self._check_limit()
                    return
            elif operation.kind == BRANCH and (frame.mask is base or frame.mask is True):
                target = operation.targets[0]
                if target <= pc:
                    budget -= 4
                    if budget < closing:
                        budget = 0
                pc = target
            else:
                self._part(group, frame, operation, pc)
                self._check_limit()
                return
            if stop >= 0 and pc >= stop:
                break
        for fragment in group.fragments:
            fragment.pc = pc
        if budget <= 0 and circling and self._loops.circles(machine, cta, group.first, group.fragments):
            for fragment in group.fragments:
                fragment.wait = self._loop_wait(operations[pc])
                fragment.seen_progress = machine.progress_count
        for at in range(count):
            self._merge(cta.warps[group.first + at])
        self._check_limit()

    def _loop_wait(self, operation: Operation) -> Wait:
        """Sleep, in a loop that comes back to where it was, until something is written that it may read."""
        then = self.machine.progress_count
        return Wait(
            "loop",
            lambda: self.machine.progress_count != then,
            lambda: f"a change of anything it reads, in a loop through {operation.text}",
            timeout=lambda frame: None,
        )

    def _stop(self, group: Group) -> int:
        """The lowest other program counter of a divided warp: there the threads may meet. -1 where there is none."""
        if len(group.fragments) > 1:
            return -1
        warp = group.cta.warps[group.first]
        others = [fragment.pc for fragment in warp.fragments if fragment.pc > group.pc]
        return min(others) if others else -1

    def _check_limit(self) -> None:
        if self.machine.steps > self.max_steps:
            raise StepLimitError(
                f"the emulation ran {self.machine.steps} warp instructions and the kernel has not ended",
                expected=f"at most max_steps = {self.max_steps}",
                hint="raise max_steps if the kernel is only long; else look for a loop that never ends",
            )

    def _run_single(self, group: Group, frame: Frame, operation: Operation, pc: int) -> bool:
        """Run an instruction that goes warp by warp. Whether all warps of the group went on to the next one."""
        handler = operation.handler
        if handler.warpgroup:  # type: ignore[union-attr]
            return self._run_warpgroups(group, operation, pc)
        cta, went_on = group.cta, True
        outer = frame.mask
        for at, fragment in enumerate(group.fragments):
            warp = cta.warps[group.first + at]
            part = frame if len(group.fragments) == 1 else cta.frame(warp.index, 1)
            mask = outer if outer is True else outer[at * WARP : (at + 1) * WARP]  # type: ignore[index]
            part.operation = operation
            if mask is not True:
                chosen = int(np.count_nonzero(mask))
                if chosen == 0:
                    fragment.pc = pc + 1
                    continue
                mask = True if chosen == WARP else mask
            part.mask = mask
            fragment.pc = pc
            if handler.aligned and fragment.lanes != warp.alive and not self._converge(warp, fragment):  # type: ignore[union-attr]
                went_on = False
                continue
            if handler.polls and self._polls_again(warp, part):  # type: ignore[union-attr]
                fragment.wait = self._poll_wait(warp, operation)
                fragment.wait_mask = mask
                fragment.pc = pc
                went_on = False
                continue
            wait = operation.step(part)  # type: ignore[misc]
            if wait is None:
                fragment.pc = pc + 1
                continue
            if wait.ready():
                if wait.resume is not None:
                    wait.resume(part)
                fragment.pc = pc + 1
                continue
            fragment.wait, fragment.wait_mask, fragment.seen_progress = wait, mask, self.machine.progress_count
            went_on = False
        if not went_on or len(group.fragments) == 1:
            for at in range(len(group.fragments)):
                self._merge(cta.warps[group.first + at])
            if len(group.fragments) == 1:
                warp = cta.warps[group.first]
                return went_on and group.fragments[0] in warp.fragments and self._stop(group) != pc + 1
            return False
        return True

    def _run_warpgroups(self, group: Group, operation: Operation, pc: int) -> bool:
        """Run a warpgroup instruction for every complete warpgroup of the group; the other warps wait for theirs."""
        cta = group.cta
        first, count = group.first, len(group.fragments)
        went_on = True
        for fragment in group.fragments:
            fragment.pc = pc
        for number in range(first // 4, (first + count - 1) // 4 + 1):
            members = cta.warps[number * 4 : number * 4 + 4]
            if operation.guard >= 0 and not self._wants(cta.frame(number * 4, len(members)), operation):
                for warp in members:
                    if first <= warp.index < first + count:
                        group.fragments[warp.index - first].pc = pc + 1
                went_on &= first <= number * 4 and number * 4 + 4 <= first + count
                continue
            together = len(members) == 4 and all(self._stands_whole(warp, pc) for warp in members)
            if not together:
                went_on = False
                for warp in members:
                    if first <= warp.index < first + count:
                        fragment = group.fragments[warp.index - first]
                        fragment.pc = pc
                        fragment.wait = self._warpgroup_wait(members, operation, pc)
                        fragment.seen_progress = self.machine.progress_count
                self.machine.progress()
                continue
            frame = cta.frame(number * 4, 4)
            frame.operation, frame.mask = operation, True
            wait = operation.step(frame)  # type: ignore[misc]
            blocked = wait is not None and not wait.ready()
            for warp in members:
                fragment = warp.fragments[0]
                if blocked:
                    fragment.pc = pc
                    fragment.wait, fragment.wait_mask = wait, True
                    fragment.seen_progress = self.machine.progress_count
                else:
                    fragment.wait = None
                    fragment.pc = pc + 1
            if not blocked and wait is not None and wait.resume is not None:
                wait.resume(frame)
            inside = first <= number * 4 and number * 4 + 4 <= first + count
            went_on &= inside and not blocked
        return went_on

    @staticmethod
    def _wants(frame: Frame, operation: Operation) -> bool:
        """Whether the guard lets any thread of a warpgroup execute a warpgroup instruction."""
        return bool(np.any(frame.values[operation.guard] != operation.guard_negated))

    @staticmethod
    def _stands_whole(warp: Warp, pc: int) -> bool:
        """Whether all threads of a warp stand at `pc`, ready or waiting for their warpgroup there."""
        if len(warp.fragments) != 1 or warp.fragments[0].lanes != FULL:
            return False
        fragment = warp.fragments[0]
        return fragment.pc == pc and (fragment.wait is None or fragment.wait.kind == "warpgroup")

    def _warpgroup_wait(self, members: list[Warp], operation: Operation, pc: int) -> Wait:
        def describe() -> str:
            missing = [str(warp.index) for warp in members if not self._stands_whole(warp, pc)]
            absent = ", ".join(missing) or "(fewer than 4 warps)"
            return f"the whole warpgroup at {operation.text}; not there: warp {absent}"

        return Wait(
            "warpgroup", lambda: len(members) == 4 and all(self._stands_whole(warp, pc) for warp in members), describe
        )

    # -- polling -------------------------------------------------------------------------------------------------

    def _polls_again(self, warp: Warp, frame: Frame) -> bool:
        """Whether this warp polls the same place again while nothing changed in between."""
        operation = frame.operation
        place: tuple[int, bytes] = (operation.pc, b"")
        if operation.polled_address is not None:
            place = (operation.pc, operation.polled_address.compute(frame)[frame.active].tobytes())
        if warp.polled_at != self.machine.progress_count:
            warp.polled_at = self.machine.progress_count
            warp.polled = {place}
            return False
        if place in warp.polled:
            warp.polled.clear()
            return True
        warp.polled.add(place)
        return False

    def _poll_wait(self, warp: Warp, operation: Operation) -> Wait:
        """Sleep until something changes, then run the polling instruction itself."""
        then = self.machine.progress_count

        def run(frame: Frame) -> None:
            operation.step(frame)  # type: ignore[misc]

        return Wait(
            "poll",
            lambda: self.machine.progress_count != then,
            lambda: f"a change of what {operation.text} reads, in a loop that polls it",
            resume=run,
            timeout=run,
        )

    # -- diverging and meeting -----------------------------------------------------------------------------------

    def _part(self, group: Group, frame: Frame, operation: Operation, pc: int) -> None:
        """A branch or exit that not all threads take, or all leave by: give each warp its new fragments."""
        chosen = np.broadcast_to(frame.active, (frame.lanes,))
        for at, fragment in enumerate(group.fragments):
            warp = group.cta.warps[group.first + at]
            taken = mask_of(chosen[at * WARP : (at + 1) * WARP]) & fragment.lanes
            stay = fragment.lanes & ~taken
            warp.fragments.remove(fragment)
            if stay:
                warp.fragments.append(Fragment(pc + 1, stay))
            if not taken:
                pass
            elif operation.kind == BRANCH:
                warp.fragments.append(Fragment(operation.targets[0], taken))
            elif operation.kind == EXIT:
                warp.alive &= ~taken
                self.machine.progress()
                if not warp.alive:
                    self.machine.engine.warp_exited(warp)
            else:
                self._index_branch(warp, frame, operation, taken, at)
            self._merge(warp)

    def _index_branch(self, warp: Warp, frame: Frame, operation: Operation, taken: int, at: int) -> None:
        index = np.broadcast_to(frame.values[operation.index_slot], (frame.lanes,))[at * WARP : (at + 1) * WARP]
        for number, target in enumerate(operation.targets):
            lanes = mask_of(index == number) & taken
            if lanes:
                warp.fragments.append(Fragment(target, lanes))
                taken &= ~lanes
        if taken:
            lane = at * WARP + (taken & -taken).bit_length() - 1
            from ..errors import InvalidOperandError

            frame.error(
                InvalidOperandError,
                "brx.idx jumps past the end of its target list",
                lane,
                expected=f"an index below {len(operation.targets)}",
            )

    def _converge(self, warp: Warp, fragment: Fragment) -> bool:
        """Let a fragment wait at an aligned instruction for the rest of its warp. Whether the warp is whole."""
        self._merge(warp)
        if len(warp.fragments) == 1:
            return True

        def describe() -> str:
            others = [other for other in warp.fragments if other is not fragment]
            places = ", ".join(
                f"{other.lanes.bit_count()} thread(s) at {self.operations[other.pc].text}" for other in others
            )
            return f"the rest of its warp, which must execute this instruction together; elsewhere: {places}"

        fragment.wait = Wait("convergence", lambda: len(warp.fragments) == 1, describe)
        fragment.seen_progress = self.machine.progress_count
        return False

    def _merge(self, warp: Warp) -> None:
        """Join fragments that stand at the same instruction and are not blocked behind it."""
        if len(warp.fragments) < 2:
            if warp.fragments and warp.fragments[0].wait is not None and warp.fragments[0].wait.kind == "convergence":
                warp.fragments[0].wait = None
            return
        by_place: dict[int, Fragment] = {}
        kept = []
        for fragment in warp.fragments:
            if fragment.wait is not None and fragment.wait.kind != "convergence":
                kept.append(fragment)
                continue
            other = by_place.get(fragment.pc)
            if other is None:
                by_place[fragment.pc] = fragment
                kept.append(fragment)
            else:
                other.lanes |= fragment.lanes
                other.wait = None
                self.machine.progress()
        warp.fragments[:] = kept
        if len(kept) == 1 and kept[0].wait is not None and kept[0].wait.kind == "convergence":
            kept[0].wait = None
