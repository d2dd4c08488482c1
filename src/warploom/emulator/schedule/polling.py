"""Threads that poll: they sleep until what they read changes."""

from __future__ import annotations

from ..machine.frame import Frame
from ..machine.machine import Machine, Warp
from ..machine.operation import Operation
from ..machine.wait import Wait

RECHECK = 10_000
"""Changes of the machine after which a poll runs again in any case, as its loop may read more than it polls."""


def polls_again(machine: Machine, warp: Warp, frame: Frame) -> bool:
    """True if a warp polls the same location again while nothing has changed."""
    operation = frame.operation
    place: tuple[int, bytes] = (operation.pc, b"")
    if operation.polled_address is not None:
        place = (operation.pc, operation.polled_address(frame)[frame.active].tobytes())
    if warp.polled_at != machine.progress_count:
        warp.polled_at = machine.progress_count
        warp.polled = {}
    elif place in warp.polled:
        return True
    look = operation.watched(frame) if operation.watched is not None else None
    warp.polled[place] = (look, look()) if look is not None else None
    return False


def poll_wait(machine: Machine, warp: Warp, operation: Operation) -> Wait:
    """Sleep until what the loop polls has changed, then run the polling instruction itself.

    If the loop polls more than bytes (an atomic, an mbarrier), any change in the machine ends the sleep. A change that
    only a plain load in the loop would see ends it when nothing else can run, or after `RECHECK` changes.
    """
    then, polled = machine.progress_count, list(warp.polled.values())
    warp.polled = {}

    def ready() -> bool:
        changes = machine.progress_count - then
        if changes == 0 or changes >= RECHECK:
            return changes > 0
        return any(one is None or one[0]() != one[1] for one in polled)

    def run(frame: Frame) -> None:
        operation.step(frame)  # type: ignore[misc]

    return Wait(
        "poll",
        ready,
        lambda: f"a change of what {operation.text} reads, in a loop that polls it",
        resume=run,
        timeout=run,
        spins=True,
    )


def loop_wait(machine: Machine, operation: Operation) -> Wait:
    """Sleep, in a loop that returns to the same state, until something is written that it may read."""
    then = machine.progress_count
    return Wait(
        "loop",
        lambda: machine.progress_count != then,
        lambda: f"a change of anything it reads, in a loop through {operation.text}",
        timeout=lambda frame: None,
        parked=True,
        spins=True,
    )
