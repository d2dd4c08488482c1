"""Detects threads that loop without making progress, polling or not.

A machine whose threads only poll is dead once it returns to an earlier state: the polling warps have the same
registers, and no memory was written in between. A loop that counts its polls (a bounded retry, a timeout) never
returns to an earlier state, so it gets many more rounds before it counts as dead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machine.registers import WARP

if TYPE_CHECKING:
    from ..machine.machine import Cta, Fragment, Machine

REPEATS = 64
"""Rounds in a repeated state. More than one, because some waits end by chance."""
LOOP_REPEATS = 4
"""The same limit if no warp polls and all only loop: a `LoopWatch` has already seen each of them repeat."""
CHANGES = 10_000
"""Rounds in new states."""


class SpinWatch:
    """Counts the rounds of timeouts since the last write that another thread may wait for."""

    def __init__(self) -> None:
        self._progress = -1
        self._states: set[int] = set()
        self._spent = 0.0

    def dead(self, machine: Machine) -> bool:
        """Record a round in which no warp can run and nothing is in flight. True if it exceeds the limit."""
        if self._progress != machine.progress_count:
            self._progress = machine.progress_count
            self._states.clear()
            self._spent = 0.0
        state = _state(machine)
        repeats = REPEATS if _polls(machine) else LOOP_REPEATS
        self._spent += 1 / repeats if state in self._states else 1 / CHANGES
        self._states.add(state)
        return self._spent > 1


def _polls(machine: Machine) -> bool:
    """True if a warp sleeps in an instruction that polls, rather than merely in a loop."""
    parts = (
        part for cluster in machine.resident for cta in cluster.ctas for warp in cta.warps for part in warp.fragments
    )
    return any(part.wait is not None and part.wait.timeout is not None and not part.wait.parked for part in parts)


class LoopWatch:
    """Finds warps that return to an earlier state although no thread wrote anything in between."""

    def __init__(self) -> None:
        self._progress = -1
        self._states: set[tuple[object, ...]] = set()

    def circles(self, machine: Machine, cta: Cta, first: int, fragments: list[Fragment]) -> bool:
        """Record the position of warps that have run for a while. True if they were there before, registers and all."""
        if self._progress != machine.progress_count or len(self._states) > CHANGES:
            self._progress = machine.progress_count
            self._states.clear()
        lanes = slice(first * WARP, (first + len(fragments)) * WARP)
        held = tuple(hash(bank[:, lanes].tobytes()) for bank in cta.registers.banks.values())
        state = (id(cta), first, fragments[0].pc, tuple(part.lanes for part in fragments), held)
        if state in self._states:
            return True
        self._states.add(state)
        return False


def _state(machine: Machine) -> int:
    """A hash of where the polling warps are and what their registers hold."""
    parts: list[object] = []
    for cluster in machine.resident:
        for cta in cluster.ctas:
            for warp in cta.warps:
                places = [(part.pc, part.lanes) for part in warp.fragments if part.wait and part.wait.timeout]
                if places:
                    lanes = slice(warp.index * WARP, (warp.index + 1) * WARP)
                    held = [bank[:, lanes].tobytes() for bank in cta.registers.banks.values()]
                    parts.append((cta.index, warp.index, *places, *map(hash, held)))
    return hash(tuple(parts))
