"""Runs threads: warp by warp or many warps at once, until they diverge, block or have run for a while.

Warps of one CTA at the same instruction run it together, in one NumPy operation. An instruction that may block,
polls, or is executed by a whole warp or warpgroup runs warp by warp (`Operation.by`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...isa.effects import Synchronises
from ...plural import counted
from ..diagnosis.livelock import LoopWatch
from ..diagnosis.step_limit import report_step_limit
from ..machine.frame import Frame, frame_of
from ..machine.machine import FULL, Cta, Fragment, Machine, Warp, lanes_of
from ..machine.operation import BRANCH, INDEXED_BRANCH, MANY, MANY_SEEN, PLAIN, WARPGROUP, WHOLE, Operation
from ..machine.registers import WARP as WARP_SIZE
from ..machine.registers import Mask
from ..machine.wait import Wait
from .convergence import who_executes
from .fragments import Group, divide, leave_behind, merge
from .policy import Policy
from .polling import loop_wait, poll_wait, polls_again
from .turns import turns_for

QUANTUM = 20_000
"""Instructions that a group may run before others get their turn."""


class Runner:
    """Runs groups of a machine. `loops` detects threads that repeat themselves; `turns`: when clusters give way."""

    def __init__(self, machine: Machine, policy: Policy, max_steps: int) -> None:
        self.machine = machine
        self.policy = policy
        self.max_steps = max_steps
        self.operations = machine.code.operations
        self.loops = LoopWatch()
        self.turns = turns_for(machine) if policy.takes_turns else None
        self.listeners = machine.events.executed_at(len(self.operations))

    def run(self, group: Group, step: bool = False) -> None:
        """Run a group until its warps diverge, block, meet other fragments of their warp, or the quantum ends."""
        machine, cta, pc = self.machine, group.cta, group.pc
        count = len(group.fragments)
        frame = frame_of(cta, group.first, count)
        whole = all(fragment.lanes == FULL for fragment in group.fragments)
        base: Mask = True if whole else np.concatenate([lanes_of(fragment.lanes) for fragment in group.fragments])
        lanes = frame.lanes if whole else int(np.count_nonzero(base))
        warp = cta.warps[group.first]
        diverged = len(warp.fragments) > 1  # if so, it is the only warp of the group
        stop = _next_reconvergence(warp, group.fragments[0], pc + 1) if diverged else -1
        operations, values, listeners = self.operations, frame.values, self.listeners
        budget = self.policy.quantum(QUANTUM)
        before = machine.progress_count
        nearly_spent = budget // 10 if budget >= QUANTUM else 0  # from then on, stop at the end of a loop iteration
        looped_back = read_clock = False
        while budget > 0:
            budget -= 1
            operation = operations[pc]
            machine.steps += count
            frame.operation, frame.mask = operation, base
            for listener in listeners[pc]:
                listener(frame)
            if operation.guard >= 0:
                wanted = values[operation.guard]
                mask = ~wanted if operation.guard_negated else wanted
                if base is not True:
                    mask = mask & base
                chosen = int(np.count_nonzero(mask))
                if chosen == 0 and operation.kind != INDEXED_BRANCH:
                    pc += 1
                    if pc == stop:
                        break
                    continue
                if chosen != lanes:
                    frame.mask = mask if operation.kind == PLAIN else np.array(mask)
            if operation.refresh:
                cta.refresh(operation.refresh)
                read_clock, looped_back = True, False  # a loop that reads a clock makes progress
            if operation.kind == PLAIN:
                by = operation.by
                if by == MANY or (by == WHOLE and frame.mask is True):
                    operation.step(frame)  # type: ignore[misc]
                elif by == MANY_SEEN:
                    operation.step(frame)  # type: ignore[misc]
                    if self.turns is not None and self.turns.end(cta.cluster, operation):
                        pc += 1
                        break
                elif not (self._warpgroups if by == WARPGROUP else self._warp_by_warp)(group, frame, operation):
                    self._check_limit()
                    return
                pc += 1
                if step and machine.progress_count != before:
                    break
            elif operation.kind == BRANCH and (frame.mask is base or frame.mask is True):
                target = operation.targets[0]
                if target <= pc:
                    budget -= 4
                    looped_back = not read_clock
                    if budget < nearly_spent:
                        budget = 0
                    if diverged:
                        stop = _next_reconvergence(warp, group.fragments[0], target)
                pc = target
            else:
                divide(machine, group, frame, operation, pc)
                self._check_limit()
                return
            if stop >= 0 and pc >= stop:
                break
        for fragment in group.fragments:
            fragment.pc = pc
        if budget <= 0 and looped_back and self.loops.circles(machine, cta, group.first, group.fragments):
            for fragment in group.fragments:
                fragment.wait = loop_wait(machine, operations[pc])
                fragment.seen_progress = machine.progress_count
        self._merge(group)
        self._check_limit()

    def _merge(self, group: Group) -> None:
        """Join threads of a diverged warp; it is the only warp of its group."""
        if len(group.fragments) == 1:
            merge(self.machine, group.cta.warps[group.first])

    def _check_limit(self) -> None:
        if self.machine.steps > self.max_steps:
            raise report_step_limit(self.machine, self.max_steps)

    # -- warp by warp --------------------------------------------------------------------------------------------

    def _warp_by_warp(self, group: Group, frame: Frame, operation: Operation) -> bool:
        """Run an instruction warp by warp. True if all threads of the group continued to the next one together."""
        cta, pc, continued, outer = group.cta, operation.pc, True, frame.mask
        if outer is True and operation.together is not None and len(group.fragments) > 1:
            return self._by_runs_of_warps(group, operation, operation.together(frame))
        for at, fragment in enumerate(group.fragments):
            warp = cta.warps[group.first + at]
            part = frame if len(group.fragments) == 1 else frame_of(cta, warp.index, 1)
            mask = outer if outer is True else outer[at * WARP_SIZE : (at + 1) * WARP_SIZE]
            part.operation = operation
            fragment.pc = pc
            if mask is not True:
                chosen = int(np.count_nonzero(mask))
                if chosen == 0:
                    fragment.pc = pc + 1
                    continue
                mask = True if chosen == WARP_SIZE else mask
            part.mask = mask
            if (fragment.lanes != FULL and operation.converged) or (operation.meets_anywhere and mask is not True):
                lanes = fragment.lanes
                ready = who_executes(self.machine, warp, fragment, part)
                continued &= fragment.lanes == lanes and bool(ready)
                if not ready:
                    continue
                part.mask = lanes_of(ready)
            continued &= self._execute(warp, (fragment,), part)
        if continued and len(group.fragments) > 1:
            return True
        self._merge(group)
        return continued and len(cta.warps[group.first].fragments) == 1

    def _by_runs_of_warps(self, group: Group, operation: Operation, counts: Sequence[int]) -> bool:
        """Run an instruction for several warps at a time, all of whose threads reach it. True if all continued."""
        cta, at, continued = group.cta, 0, True
        for count in counts:
            part = frame_of(cta, group.first + at, count)
            part.operation, part.mask = operation, True
            fragments = group.fragments[at : at + count]
            for fragment in fragments:
                fragment.pc = operation.pc
            continued &= self._execute(cta.warps[group.first + at], fragments, part)
            at += count
        return continued

    def _execute(self, warp: Warp, fragments: Sequence[Fragment], frame: Frame) -> bool:
        """Run an instruction for a fragment, or for whole warps starting with this one. True if they all continued."""
        operation = frame.operation
        wait: Wait | None
        if operation.polls and polls_again(self.machine, warp, frame):
            wait = poll_wait(self.machine, warp, operation)
        else:
            wait = operation.step(frame)  # type: ignore[misc]
            if wait is not None and wait.ready():
                if wait.resume is not None:
                    wait.resume(frame)
                wait = None
        if wait is None:
            for fragment in fragments:
                fragment.pc += 1
            return not (operation.seen and self.turns is not None and self.turns.end(warp.cta.cluster, operation))
        assert wait.spins or operation.blocks, f"the row of {operation.text} does not say that it may block"
        if any(isinstance(one, Synchronises) for one in operation.effects):
            leave_behind(warp, fragments[0], frame)
        for fragment in fragments:
            self._block(fragment, wait, frame.mask)
        return False

    def _block(self, fragment: Fragment, wait: Wait, mask: Mask) -> None:
        fragment.wait, fragment.wait_mask = wait, mask
        fragment.seen_progress = self.machine.progress_count if wait.spins else self.machine.signals

    # -- by warpgroups -------------------------------------------------------------------------------------------

    def _warpgroups(self, group: Group, frame: Frame, operation: Operation) -> bool:
        """Run an instruction for every complete warpgroup of the group; the other warps wait for theirs."""
        cta, pc, continued = group.cta, operation.pc, True
        first, last = group.first, group.first + len(group.fragments) - 1
        for fragment in group.fragments:
            fragment.pc = pc
        self._merge(group)  # threads of a diverged warp may be parked here
        for number in range(first // 4, last // 4 + 1):
            members = cta.warps[number * 4 : number * 4 + 4]
            mine = [warp for warp in members if first <= warp.index <= last]
            whole_frame = frame_of(cta, number * 4, len(members))
            if operation.guard >= 0 and not np.any(whole_frame.values[operation.guard] != operation.guard_negated):
                for warp in mine:
                    group.fragments[warp.index - first].pc = pc + 1
            elif len(members) == 4 and all(_is_whole_at(warp, pc) for warp in members):
                whole_frame.operation, whole_frame.mask = operation, True
                operation.step(whole_frame)  # type: ignore[misc]
                for warp in members:
                    warp.fragments[0].wait = None
                    warp.fragments[0].pc = pc + 1
            else:
                for warp in mine:
                    for fragment in warp.fragments:
                        if fragment.pc == pc and fragment.wait is None:
                            self._block(fragment, self._for_warpgroup(cta, members, operation), True)
                self.machine.progress()
                continued = False
            continued &= mine == members
        return continued

    def _for_warpgroup(self, cta: Cta, members: list[Warp], operation: Operation) -> Wait:
        def describe() -> str:
            absent = [warp for warp in members if not _is_whole_at(warp, operation.pc)]
            missing = ", ".join(str(warp.index) for warp in absent) or "(fewer than 4 warps)"
            parted = [
                f"{counted(part.lanes.bit_count(), 'thread')} of warp {warp.index} at {self.operations[part.pc].text}"
                for warp in absent
                if len(warp.fragments) > 1
                for part in warp.fragments
                if part.pc != operation.pc
            ]
            elsewhere = f"; elsewhere: {', '.join(parted)}" if parted else ""
            return f"the whole warpgroup at {operation.text}; not there: warp {missing}{elsewhere}"

        def ready() -> bool:
            return len(members) == 4 and all(_is_whole_at(warp, operation.pc) for warp in members)

        return Wait("warpgroup", ready, describe, parked=True)


def _is_whole_at(warp: Warp, pc: int) -> bool:
    """True if all threads of a warp are at `pc` and have not executed it."""
    fragment = warp.fragments[0] if len(warp.fragments) == 1 else None
    return (
        fragment is not None
        and fragment.lanes == FULL
        and fragment.pc == pc
        and (fragment.wait is None or fragment.wait.joins)
    )


def _next_reconvergence(warp: Warp, mine: Fragment, at: int) -> int:
    """The lowest program counter from `at` on where other threads of a diverged warp are; -1 if there is none.

    At `at` itself only threads that can be joined count: otherwise one that spins around a blocked thread would yield
    in every iteration.
    """
    others = [
        part.pc
        for part in warp.fragments
        if part is not mine and (part.pc > at or (part.pc == at and (part.wait is None or part.wait.joins)))
    ]
    return min(others) if others else -1
