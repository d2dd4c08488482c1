"""How threads run: warp by warp or many warps at once, until they part, block or have run a while.

Warps of one CTA that stand at the same instruction run it together, in one NumPy operation. What goes warp by warp,
polls, or needs a whole warp or warpgroup is told by the instruction's handler.
"""

from __future__ import annotations

import numpy as np

from ..diagnosis.livelock import LoopWatch
from ..diagnosis.step_limit import report_step_limit
from ..machine.frame import Frame
from ..machine.machine import FULL, Machine, Warp, lanes_of
from ..machine.registers import WARP
from ..program.code import BRANCH, INDEXED_BRANCH, PLAIN, Operation
from ..program.handlers import Wait
from .fragments import Group, converge, divide, merge
from .policy import Policy

QUANTUM = 20_000
"""Instructions a group may run before others get their turn."""


class Runner:
    """Runs groups of a machine. `loops` watches for threads that go round in circles."""

    def __init__(self, machine: Machine, policy: Policy, max_steps: int) -> None:
        self.machine = machine
        self.policy = policy
        self.max_steps = max_steps
        self.operations = machine.code.operations
        self.loops = LoopWatch()

    def run(self, group: Group) -> None:
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
                divide(machine, group, frame, operation, pc)
                self._check_limit()
                return
            if stop >= 0 and pc >= stop:
                break
        for fragment in group.fragments:
            fragment.pc = pc
        if budget <= 0 and circling and self.loops.circles(machine, cta, group.first, group.fragments):
            for fragment in group.fragments:
                fragment.wait = self._loop_wait(operations[pc])
                fragment.seen_progress = machine.progress_count
        for at in range(count):
            merge(machine, cta.warps[group.first + at])
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
            raise report_step_limit(self.machine, self.max_steps)

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
            if handler.aligned and fragment.lanes != warp.alive and not converge(self.machine, warp, fragment):  # type: ignore[union-attr]
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
                merge(self.machine, cta.warps[group.first + at])
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
