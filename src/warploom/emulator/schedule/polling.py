"""Threads that poll: they sleep until the machine changes."""

from __future__ import annotations

from ..machine.frame import Frame
from ..machine.machine import Machine, Warp
from ..machine.operation import Operation
from ..machine.wait import Wait


def polls_again(machine: Machine, warp: Warp, frame: Frame) -> bool:
    """True if a warp polls the same location again while nothing has changed."""
    operation = frame.operation
    place: tuple[int, bytes] = (operation.pc, b"")
    if operation.polled_address is not None:
        place = (operation.pc, operation.polled_address(frame)[frame.active].tobytes())
    if warp.polled_at != machine.progress_count:
        warp.polled_at = machine.progress_count
        warp.polled = {place}
        return False
    if place in warp.polled:
        warp.polled.clear()
        return True
    warp.polled.add(place)
    return False


def poll_wait(machine: Machine, operation: Operation) -> Wait:
    """Sleep until something changes, then run the polling instruction itself."""
    then = machine.progress_count

    def run(frame: Frame) -> None:
        operation.step(frame)  # type: ignore[misc]

    return Wait(
        "poll",
        lambda: machine.progress_count != then,
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
