"""A machine whose every choice is made from outside: which threads continue, which asynchronous operation completes.

Effects that nothing else can observe are not a choice: threads run up to their next *visible* instruction (barriers,
waits, atomics, strong accesses) one after the other. Threads of a CTA at the same instruction move together. Plain
loads and stores are not visible: the sanitizer reports their races in any order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...isa.effects import is_scheduling_point
from ..diagnosis.deadlock import report_deadlock
from ..diagnosis.livelock import LoopWatch, SpinWatch
from ..machine.async_operation import AsyncOperation
from ..machine.machine import Cta, Machine
from ..machine.operation import PLAIN
from ..machine.slots import digest as digest_of
from .fragments import Group
from .policy import Policy
from .scheduler import Scheduler

Choose = Callable[[Machine, "list[Move]"], int]
"""Gets the possible moves, and returns the index of the chosen one."""
STRAIGHT = 4096
"""Maximum number of instructions that threads run in one step, if none of them is visible."""


@dataclass(frozen=True)
class Move:
    """One thing that can happen next: threads continue, or an asynchronous operation takes effect."""

    what: Group | AsyncOperation

    def words(self) -> str:
        """The move as a sentence; call it before the move is made."""
        return _instruction(self.what) if isinstance(self.what, Group) else _landing(self.what)


class _Steps(Policy):
    """Lets a group run as far as it is told to."""

    name = "controlled"
    start_all = True
    takes_turns = False

    def __init__(self) -> None:
        super().__init__(0)
        self.budget = 1

    def quantum(self, most: int) -> int:
        return self.budget


class ControlledScheduler(Scheduler):
    """Runs a machine to its end; `choose` is called wherever more than one thing can happen."""

    def __init__(self, machine: Machine, max_steps: int, choose: Choose) -> None:
        self.steps = _Steps()
        super().__init__(machine, self.steps, max_steps)
        self.choose = choose
        self._visible = [is_scheduling_point(operation.effects) for operation in self.operations]

    def run(self) -> None:
        """Run all CTAs. Raises DeadlockError, StepLimitError, and the errors of instructions and of `choose`."""
        machine = self.machine
        spins, timed_out = SpinWatch(), -1
        while True:
            self._start(machine.to_run)
            self._retire()
            groups = [group for cluster in machine.resident for cta in cluster.ctas for group in self._groups(cta)]
            hidden = next((group for group in groups if not self._visible[group.pc]), None)
            if hidden is not None:
                self._go(hidden, self._straight(hidden.pc))
                continue
            moves = [Move(group) for group in groups]
            moves += [Move(one) for one in machine.engine.pending() if one.may_start]
            if moves:
                # Threads whose waits timed out poll again in turn: not a choice while nothing changes.
                free = len(moves) > 1 and machine.progress_count != timed_out
                self._make(moves[self.choose(machine, moves) if free else 0])
            elif not machine.resident:
                if machine.started >= machine.to_run:
                    machine.engine.drain()
                    return
            else:
                spinning = spins.dead(machine)
                if spinning or not self._time_out():
                    raise report_deadlock(machine, spinning=spinning)
                timed_out = machine.progress_count

    def _retire(self) -> None:
        machine = self.machine
        for cluster in list(machine.resident):
            if cluster.exited:
                machine.engine.drain_cluster(cluster)
                machine.retire(cluster)

    def _groups(self, cta: Cta) -> list[Group]:
        """The threads of a CTA that can continue; those of adjacent warps at one instruction together."""
        groups: list[Group] = []
        for warp in cta.warps:
            fragment = self._runnable(warp)
            if fragment is None:
                continue
            last = groups[-1] if groups else None
            if (
                last is not None
                and last.pc == fragment.pc
                and last.first + len(last.fragments) == warp.index
                and len(warp.fragments) == 1
                and len(cta.warps[warp.index - 1].fragments) == 1
            ):
                last.fragments.append(fragment)
            else:
                groups.append(Group(cta, warp.index, [fragment]))
        return groups

    def _straight(self, pc: int) -> int:
        """Number of instructions from here on that are neither branches nor visible: at least one."""
        count = 1
        while count < STRAIGHT:
            operation = self.operations[pc]
            if operation.kind != PLAIN or self._visible[pc + 1]:
                break
            pc, count = pc + 1, count + 1
        return count

    def _go(self, group: Group, count: int) -> None:
        self.steps.budget = count
        self.runner.run(group)

    def _make(self, move: Move) -> None:
        if isinstance(move.what, Group):
            self.runner.loops = LoopWatch()  # the wait identifies waiting threads, not the loop
            self._go(move.what, 1)
        else:
            self.machine.engine.take_effect(move.what)


def _instruction(group: Group) -> str:
    operation = group.cta.machine.code.operations[group.pc]
    location = operation.instruction.location
    who = group.cta.describe_warps([group.first + at for at in range(len(group.fragments))])
    return f"{who} of {group.cta.describe()}: {operation.text}" + (f"  at {location}" if location else "")


def _landing(operation: AsyncOperation) -> str:
    verb = "has read its source" if operation.unit.reads_apart and not operation.read_done else "takes effect"
    return f"{operation.description}, issued by {operation.issuer.short()}: {verb}"


# -- states --------------------------------------------------------------------------------------------------------


def state_of(machine: Machine) -> bytes:
    """A digest of everything that decides the future: threads, registers, memory, barriers, operations."""
    digest = hashlib.blake2b(digest_size=16)
    for device in machine.devices:
        digest.update(repr([(sm.index, digest_of(sm)) for sm in device.sms.values()]).encode())
        digest.update(repr((device.started, device.retired)).encode())
    for cluster in machine.resident:
        digest.update(repr((cluster.device.index, cluster.call, cluster.index, digest_of(cluster))).encode())
        for cta in cluster.ctas:
            fragments = [
                (warp.index, warp.alive, fragment.pc, fragment.lanes, fragment.wait.kind if fragment.wait else "")
                for warp in cta.warps
                for fragment in warp.fragments
            ]
            digest.update(repr((fragments, digest_of(cta))).encode())
            for bank in cta.registers.banks.values():
                digest.update(np.ascontiguousarray(bank).view(np.uint8).tobytes())
            digest.update(cta.shared.data.tobytes())
    digest.update(repr(sorted(operation.digest() for operation in machine.engine.pending())).encode())
    return digest.digest()
